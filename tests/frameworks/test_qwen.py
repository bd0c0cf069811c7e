"""Qwen 1's own script: what its shell files, JSONs and requirements say, by commit."""

from dataclasses import replace

from frameworks.sample_models import A100, T4, linear, model, stated
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.architecture import LayerGroup
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import AttentionKernel, DType, Method, OptimizerImplementation

LATE_2023 = "2df8e8ac450fa185c421a08b0090ef81826caa6e"
OCTOBER_2023 = "b5fad3d561ef60ad6582242e088573f4c50f3ce2"


def qwen_1():
    """A llama shape under the names of Qwen 1."""
    sample = model("qwen", kv_heads=32, vocabulary=151936)
    group = sample.groups[0]
    names = {"q_proj": "attn.c_attn", "o_proj": "attn.c_proj", "gate_proj": "mlp.w2"}
    names["up_proj"] = "mlp.w1"

    def renamed(weights):
        return tuple(
            linear(names[weight.leaf], *weight.shape) if weight.leaf in names else weight
            for weight in weights
        )

    layer = replace(
        group.layer,
        mixer=replace(group.layer.mixer, weights=renamed(group.layer.mixer.weights)),
        feed_forward=replace(
            group.layer.feed_forward, weights=renamed(group.layer.feed_forward.weights)
        ),
    )
    return replace(sample, groups=(LayerGroup(layer=layer, count=group.count),))


def found(method, *, version=LATE_2023, cards=1, chip=A100, **parts):
    recipe = stated("qwen", method, version=version, **parts)
    return resolve_recipe(recipe, qwen_1(), chip, world_size=cards)


def test_the_shell_file_for_lora_is_bf16_autocast_over_half_adapters_with_dropout():
    answer = found("lora")
    recipe = answer.recipe
    assert recipe.autocast
    assert recipe.compute_dtype is DType.BFLOAT16
    assert recipe.frozen_dtype is DType.BFLOAT16
    # peft 0.7.1, the newest of December 2023, keeps adapters in the dtype of the base.
    assert answer.software["peft"] == "0.7.1"
    assert answer.software["transformers"] == "4.32.0"
    assert recipe.adapter.dtype is DType.BFLOAT16
    assert recipe.adapter.lora_dropout == 0.05
    assert recipe.adapter.r == 64
    assert set(recipe.adapter.target_modules) == {"c_attn", "c_proj", "w1", "w2"}
    assert recipe.attention is AttentionKernel.FLASH_2
    assert answer.run.padding == "max_length"


def test_before_the_chat_rule_lora_trained_embedding_and_head():
    assert found("lora").recipe.adapter.modules_to_save == ()
    assert found("lora", version=OCTOBER_2023).recipe.adapter.modules_to_save == (
        "embed_tokens",
        "lm_head",
    )


def test_gptq_runs_in_fp16_under_zero_2_even_on_one_card():
    answer = found("gptq-lora", strategy="zero2", facts={"compute_dtype": "fp16"})
    recipe = answer.recipe
    assert recipe.method is Method.GPTQ_LORA
    assert not recipe.autocast
    assert recipe.compute_dtype is DType.FLOAT16
    assert recipe.adapter.dtype is DType.FLOAT16
    assert recipe.optimizer.master_weights
    assert recipe.optimizer.implementation is OptimizerImplementation.FUSED
    assert answer.parallelism.reduce_bucket_elements == 200_000_000
    assert answer.parallelism.overlap_communication


def test_several_cards_take_the_stage_of_the_shell_file():
    assert found("full", cards=2).parallelism.strategy is Strategy.ZERO3
    assert found("lora", cards=2).parallelism.strategy is Strategy.ZERO2
    hidden = qwen_1().hidden_size
    assert found("full", cards=2).parallelism.reduce_bucket_elements == hidden * hidden


def test_a_chip_without_bf16_computes_in_fp16():
    assert found("lora", chip=T4).recipe.compute_dtype is DType.FLOAT16


def test_on_another_model_peft_chooses_the_linears():
    recipe = resolve_recipe(stated("qwen", "lora"), model(), A100, world_size=1).recipe
    assert recipe.adapter.target_modules == ("q_proj", "v_proj")
