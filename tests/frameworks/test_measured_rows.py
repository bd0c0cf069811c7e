"""Facts of published runs override defaults, and are no assumptions."""

from frameworks.sample_models import A100, T4, model, stated
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.recipe import AttentionKernel, DType, LossPath

FITCHECK = {
    "compute_dtype": "fp16",
    "amp_dtype": "none",
    "kbit_prep": "yes",
    "attention": "sdpa",
    "activation_checkpointing": "full",
    "parallelism": "single",
    "length_kind": "fixed at seq_len",
    "fused_ce": "no",
    "double_quant": "no",
}
FMS = {
    "compute_dtype": "bf16",
    "param_dtype": "bf16",
    "attention": "flash",
    "activation_checkpointing": "full",
    "length_kind": "packed to seq_len",
}
LATE_2024 = "torch 2.4.1; transformers 4.45.2; peft 0.13.2; trl 0.11.4; accelerate 1.0.1"
EARLY_2025 = "torch 2.4.1; transformers 4.48.1; peft 0.13.2; trl 0.13.0; accelerate 1.0.1"


def fms(method, facts, *, version=EARLY_2025, cards=1):
    recipe = stated("fms-hf-tuning", method, version=version, facts={**FMS, **facts})
    return resolve_recipe(recipe, model("mistral"), A100, world_size=cards).recipe


def test_a_single_step_on_a_t4_with_k_bit_preparation():
    recipe = stated("custom", "qlora", software={"transformers": "5.0.0"}, facts=FITCHECK)
    found = resolve_recipe(recipe, model(), T4, world_size=1)
    assert found.recipe.hidden_dtype is DType.FLOAT32
    assert found.recipe.outer_dtype is DType.FLOAT32
    assert found.recipe.compute_dtype is DType.FLOAT16
    assert found.recipe.attention is AttentionKernel.SDPA_EFFICIENT  # no flash on a T4
    assert not found.recipe.attention_mask  # every sample is as long as the row
    assert found.recipe.expand_key_value  # by the loop's own shim
    assert found.recipe.keeps_outputs
    assumed = {assumption.name for assumption in found.assumptions}
    assert not assumed & {
        *("training.precision", "training.dtype", "training.gradient_checkpointing"),
        *("training.attn_implementation", "quantization.double_quant"),
        "behaviour.kbit_preparation",
    }


def test_plain_trl_prepares_and_the_plugin_does_not():
    prepared = fms("qlora", {"kernels": "baseline-peft-bnb", "kbit_prep": "yes"})
    assert prepared.hidden_dtype is DType.FLOAT32
    plugin = fms("qlora", {"kernels": "accelerated-peft-bnb", "kbit_prep": "no"})
    assert plugin.hidden_dtype is DType.BFLOAT16


def test_preparation_is_skipped_on_sharded_cards_even_where_the_row_says_yes():
    facts = {
        "kernels": "baseline-peft-bnb",
        "kbit_prep": "yes",
        "parallelism": "fsdp full_shard dp=2",
    }
    assert fms("qlora", facts, cards=2).hidden_dtype is DType.BFLOAT16


def test_fused_kernels_by_plugin_name():
    recipe = fms(
        "qlora",
        {"kernels": "accelerated-peft-bnb-foak", "fused_ce": "unsloth CE (foak)"},
        version=LATE_2024,
    )
    assert recipe.kernels.fused_norm
    assert recipe.kernels.fused_adapter
    assert not recipe.adapter.sharded
    assert recipe.loss.path is LossPath.FUSED_CROSS_ENTROPY
    liger = fms("lora", {"kernels": "foak-fast-kernels-liger", "fused_ce": "liger FLCE"})
    assert liger.loss.path is LossPath.FUSED_LINEAR
    assert not liger.kernels.fused_adapter  # only on quantised bases


def test_autocast_of_unquantised_rows_belongs_to_the_scenarios_of_late_2024():
    late = fms("full", {"parallelism": "fsdp full_shard dp=2"}, version=LATE_2024, cards=2)
    assert late.trainable_dtype is DType.FLOAT32  # 20 bytes a parameter at the step, over 2
    early = fms("full", {"parallelism": "fsdp full_shard dp=2"}, cards=2)
    assert early.trainable_dtype is DType.BFLOAT16  # 10 bytes


def test_a_run_that_happened_passes_over_targets_the_model_lacks():
    from tuneplan.spec.stated import StatedAdapter

    adapter = StatedAdapter(target_modules="q_proj k_proj v_proj o_proj c_attn")
    recipe = stated("fms-hf-tuning", "lora", adapter=adapter, version=EARLY_2025, facts=FMS)
    found = resolve_recipe(recipe, model("mistral"), A100, world_size=1).recipe
    assert found.adapter.target_modules == ("q_proj", "k_proj", "v_proj", "o_proj")


def test_unknown_is_not_a_fact():
    recipe = stated("custom", "lora", facts={"attention": "unknown", "kbit_prep": ""})
    found = resolve_recipe(recipe, model(), A100, world_size=1)
    assert "training.attn_implementation" in {a.name for a in found.assumptions}


def test_a_trainer_row_that_computes_in_half_opened_autocast():
    for dtype, compute in (("bf16", DType.BFLOAT16), ("fp16", DType.FLOAT16)):
        recipe = stated("transformers", "lora", facts={"compute_dtype": dtype})
        found = resolve_recipe(recipe, model(), A100, world_size=1).recipe
        assert found.autocast
        assert found.compute_dtype is compute
    silent = resolve_recipe(stated("transformers", "lora"), model(), A100, world_size=1).recipe
    assert not silent.autocast


def test_gptq_runs_in_one_kernel_only_where_a_plugin_loads_triton():
    plugin = fms("gptq-lora", {"compute_dtype": "fp16", "kernels": "accelerated-peft-autogptq"})
    assert plugin.quantization.one_kernel
    plain = resolve_recipe(stated("transformers", "gptq-lora"), model(), A100, world_size=1)
    assert not plain.recipe.quantization.one_kernel
    assert "behaviour.gptq_kernel" in {assumption.name for assumption in plain.assumptions}


def test_fsdp_qlora_passes_no_mask_however_rows_are_padded():
    padded = {"length_kind": "longest in batch"}
    recipe = stated("fsdp_qlora", "qlora", facts=padded)
    found = resolve_recipe(recipe, model(), A100, world_size=2).recipe
    assert not found.attention_mask
    assert found.attention is AttentionKernel.SDPA_FLASH
