import pytest

from frameworks.sample_models import A100, T4, chip, model, stated
from tuneplan.catalog.models import load_models
from tuneplan.errors import InvalidRequest, NotSupported, UnknownName
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.recipe import DType
from tuneplan.spec.stated import StatedAdapter, StatedParallelism, StatedQuantization, StatedRecipe


def resolve(recipe, *, chip=A100, cards=1, architecture=None):
    return resolve_recipe(recipe, architecture or model(), chip, world_size=cards)


def mistakes_of(recipe, **where):
    with pytest.raises(InvalidRequest) as caught:
        resolve(recipe, **where)
    return {mistake.path: mistake for mistake in caught.value.mistakes}


def test_every_contradiction_is_reported_at_once():
    recipe = stated(
        "trl",
        "lora",
        quantization=StatedQuantization(bits=4),
        attn_implementation="flash_attention_2",
        dtype="bfloat16",
        precision="fp32",
        trained_layers=2,
    )
    found = mistakes_of(recipe, chip=T4)
    assert set(found) == {
        *("quantization", "training.attn_implementation"),
        *("training.precision", "training.trained_layers"),
    }


def test_lora_with_4_bits_is_sent_to_qlora():
    mistake = mistakes_of(stated("trl", "lora", quantization=StatedQuantization(bits=4)))
    assert mistake["quantization"].near == ("qlora",)


@pytest.mark.parametrize(("kind", "bits"), [("nf4", 8), ("int8", 4), ("gptq", 5), (None, 3)])
def test_bits_that_a_format_does_not_store_are_refused(kind, bits):
    recipe = stated("trl", "qlora", quantization=StatedQuantization(bits=bits, type=kind))
    assert "quantization.bits" in mistakes_of(recipe)


def test_an_awq_base_is_refused_by_name():
    recipe = stated("trl", "qlora", quantization=StatedQuantization(type="awq"))
    mistake = mistakes_of(recipe)["quantization.type"]
    assert "AWQ base" in str(mistake.message)
    assert mistake.near == ("nf4", "fp4", "int8", "gptq")


def test_an_adapter_with_full_training_is_refused():
    recipe = stated("trl", "full", adapter=StatedAdapter(r=8))
    assert mistakes_of(recipe)["adapter.r"].near == ("lora", "qlora")


def test_a_target_that_the_model_lacks_names_the_near_ones():
    recipe = stated("trl", "lora", adapter=StatedAdapter(target_modules=("q_porj", "v_proj")))
    (mistake,) = mistakes_of(recipe).values()
    assert "q_porj" in str(mistake.message)
    assert "q_proj" in mistake.near


def test_a_mistyped_optimizer_names_the_near_ones():
    mistake = mistakes_of(stated("trl", "lora", optim="adamw_torch_fussed"))["training.optim"]
    assert mistake.near[0] == "adamw_torch_fused"


@pytest.mark.parametrize("optim", ["galore_adamw", "apollo_adamw", "schedule_free_adamw"])
def test_an_optimizer_without_formula_is_refused_by_name(optim):
    with pytest.raises(NotSupported, match=optim):
        resolve(stated("trl", "full", optim=optim))


@pytest.mark.parametrize("name", ["maxtext", "colossalai", "xtuner"])
def test_a_framework_of_a_later_release_is_refused_by_name(name):
    with pytest.raises(NotSupported, match="later release"):
        resolve(stated(name))


def test_an_unknown_framework_names_the_near_ones():
    with pytest.raises(UnknownName) as caught:
        resolve(stated("llama-factry"))
    assert caught.value.near[0] == "llamafactory"


@pytest.mark.parametrize("objective", ["grpo", "ppo"])
def test_reinforcement_learning_is_part_of_a_later_release(objective):
    with pytest.raises(NotSupported, match=objective):
        resolve(stated("trl", "lora", objective=objective))


@pytest.mark.parametrize("degree", ["tensor", "pipeline", "context", "expert"])
def test_other_parallel_degrees_are_refused_by_name(degree):
    recipe = StatedRecipe(framework="trl", parallelism=StatedParallelism(**{degree: 2}))
    with pytest.raises(NotSupported, match=degree):
        resolve(recipe, cards=8)


def test_a_row_that_names_tensor_parallelism_is_refused():
    recipe = stated("transformers", "full", facts={"parallelism": "tp=4,pp=1,dp=16,zero=3"})
    with pytest.raises(NotSupported, match="tensor"):
        resolve(recipe, cards=64)


def test_device_map_spreads_layers_over_the_cards_of_one_node_alone():
    recipe = stated("ms-swift", "lora", strategy="device_map")
    found = resolve(recipe, cards=2)
    assert (found.parallelism.data, found.parallelism.pipeline) == (1, 2)
    assert "behaviour.device_map" in {assumption.name for assumption in found.assumptions}
    with pytest.raises(NotSupported, match="inside one node"):
        resolve_recipe(recipe, model(), A100, world_size=16, num_nodes=2)
    with pytest.raises(NotSupported, match="freeze"):
        resolve(stated("ms-swift", "freeze", strategy="device_map"), cards=2)


def test_single_on_several_cards_and_offload_without_sharding_are_refused():
    single = stated("trl", "full", strategy="single")
    assert "parallelism.strategy" in mistakes_of(single, cards=2)
    parallelism = StatedParallelism(strategy="ddp", offload="optimizer")
    recipe = StatedRecipe(framework="trl", parallelism=parallelism)
    assert "parallelism.offload" in mistakes_of(recipe, cards=2)


def test_swift_packs_only_with_flash_attention():
    recipe = stated("ms-swift", "lora", packing=True, attn_implementation="sdpa")
    assert "training.packing" in mistakes_of(recipe)
    assert resolve(stated("ms-swift", "lora", packing=True)).recipe.attention == "flash_attention_2"


def test_flash_attention_3_is_for_hopper():
    recipe = stated("trl", "lora", attn_implementation="flash_attention_3")
    assert "training.attn_implementation" in mistakes_of(recipe, chip=A100)
    assert resolve(recipe, chip=chip("H100", capability=9.0)).recipe.attention == (
        "flash_attention_3"
    )


def test_bf16_on_a_chip_without_it_is_taken_as_stated_with_a_warning():
    found = resolve(stated("trl", "lora", precision="bf16", dtype="bfloat16"), chip=T4)
    assert found.recipe.compute_dtype is DType.BFLOAT16
    assert any("emulates" in str(notice.message) for notice in found.notices)


def test_a_global_batch_that_contradicts_its_parts_is_refused():
    recipe = stated(
        "trl",
        "lora",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        global_batch_size=100,
    )
    assert mistakes_of(recipe, cards=8)["training.global_batch_size"].near == ("64",)


def test_a_global_batch_gives_the_accumulation():
    recipe = stated("trl", "lora", per_device_train_batch_size=2, global_batch_size=64)
    found = resolve(recipe, cards=8)
    assert found.recipe.gradient_accumulation_steps == 4  # 64 / (2 x 8)
    assert "training.gradient_accumulation_steps" not in {a.name for a in found.assumptions}


def test_old_deepspeed_cannot_do_without_masters():
    def recipe(version):
        software = {"deepspeed": version}
        return stated(
            "deepspeed", "full", software=software, strategy="zero3", master_weights=False
        )

    assert "training.master_weights" in mistakes_of(recipe("0.17.0"), cards=8)
    assert not resolve(recipe("0.18.3"), cards=8).recipe.optimizer.master_weights


def test_adapters_on_experts_that_are_linears_are_refused_by_name():
    adapter = StatedAdapter(target_modules=("q_proj", "w1"))
    recipe = stated("trl", "lora", adapter=adapter, software={"transformers": "4.57.0"})
    with pytest.raises(NotSupported, match="w1"):
        resolve(recipe, architecture=model(num_experts=8))


def test_names_of_stacked_experts_reach_nothing_and_the_answer_says_so():
    recipe = stated("trl", "lora", adapter=StatedAdapter(target_modules=("q_proj", "w1")))
    found = resolve(recipe, architecture=model(num_experts=8))
    assert found.recipe.adapter.target_modules == ("q_proj",)
    assert any("stacked parameters" in str(notice.message) for notice in found.notices)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_length", 0),
        ("per_device_train_batch_size", -1),
        ("attn_implementation", "flash"),
        ("precision", "bf61"),
        ("gradient_checkpointing", "sometimes"),
        ("padding", "right"),
    ],
)
def test_absurd_values_are_refused_where_they_stand(key, value):
    assert f"training.{key}" in mistakes_of(stated("trl", "lora", **{key: value}))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Phi-3.5-MoE-instruct", "router"),
        ("Llama-4-Scout-17B-16E", "router"),
        ("DeepSeek-V4-Flash", "o_a_proj"),
    ],
)
def test_linears_on_which_lora_fails_are_refused_by_name(name, target):
    architecture = load_models().architecture(name)
    for targets in ("all-linear", ("o_b_proj" if target == "o_a_proj" else "q_proj", target)):
        recipe = stated("trl", "lora", adapter=StatedAdapter(target_modules=targets))
        (mistake,) = mistakes_of(recipe, architecture=architecture).values()
        assert mistake.path == "adapter.target_modules"
        assert repr(target) in str(mistake.message)
        assert target not in mistake.near


def test_a_frameworks_own_all_linear_leaves_them_out_and_says_so():
    architecture = load_models().architecture("Phi-3.5-MoE-instruct")
    found = resolve(stated("axolotl", "lora"), architecture=architecture)
    assert "router" not in found.recipe.adapter.target_modules
    assert "q_proj" in found.recipe.adapter.target_modules
    assert any("router" in str(one.message) for one in found.notices)


def test_gemma_3n_is_not_trained_on_a_quantised_base():
    architecture = load_models().architecture("gemma-3n-E4B")
    with pytest.raises(NotSupported, match="altup_coef_clip"):
        resolve(stated("trl", "qlora"), architecture=architecture)
