import pytest

from frameworks.sample_models import A100, model, stated
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.recipe import Checkpointing, DType, LossPath, Method


def resolve(recipe, *, cards=1):
    return resolve_recipe(recipe, model(), A100, world_size=cards)


def test_a_blank_framework_is_the_newest_trl():
    found = resolve(stated())
    assert (found.recipe.framework, found.recipe.framework_version) == ("trl", "1.16.0")
    assert found.recipe.method is Method.FULL
    assert found.recipe.trainable_dtype is DType.FLOAT32  # TRL loads a model name in float32
    assert found.recipe.autocast


def test_a_wrapper_takes_the_libraries_of_its_own_day():
    # TRL 0.13.0 came out on 2024-12-15: transformers 4.47.0 of 2024-12-05 was the newest
    found = resolve(stated("trl==0.13.0"))
    assert found.software["transformers"] == "4.47.0"
    assert found.software["peft"] == "0.14.0"
    assert found.software["accelerate"] == "1.2.1"


def test_a_stated_date_dates_all_software():
    found = resolve(stated("trl", date="2024-03"))
    assert found.software["trl"] == "0.8.1"
    assert found.software["bitsandbytes"] == "0.43.0"


@pytest.mark.parametrize(
    ("version", "hidden", "norm", "outer", "adapter"),
    [
        ("0.24.0", DType.FLOAT32, DType.FLOAT32, DType.BFLOAT16, DType.FLOAT32),
        ("0.25.0", DType.FLOAT32, DType.FLOAT32, DType.BFLOAT16, DType.FLOAT32),
        ("0.26.0", DType.BFLOAT16, DType.BFLOAT16, DType.BFLOAT16, DType.BFLOAT16),
    ],
)
def test_qlora_hidden_states_are_fp32_to_0_25_and_bf16_since(version, hidden, norm, outer, adapter):
    found = resolve(stated("trl", "qlora", version=version, dtype="bfloat16", precision="bf16"))
    recipe = found.recipe
    assert (recipe.hidden_dtype, recipe.norm_dtype, recipe.outer_dtype) == (hidden, norm, outer)
    assert recipe.adapter.dtype is adapter


def test_the_peft_helper_of_2023_left_embeddings_in_fp32():
    found = resolve(stated("trl", "qlora", version="0.7.4", dtype="bfloat16", precision="bf16"))
    assert found.recipe.outer_dtype is DType.FLOAT32


def test_dpo_kept_the_helper_until_0_28():
    def adapter(version):
        recipe = stated(
            "trl", "qlora", version=version, objective="dpo", dtype="bfloat16", precision="bf16"
        )
        return resolve(recipe).recipe

    assert adapter("0.28.0").hidden_dtype is DType.FLOAT32
    assert adapter("0.29.0").hidden_dtype is DType.BFLOAT16


def test_preparation_is_skipped_where_the_base_is_sharded():
    recipe = stated(
        "trl", "qlora", version="0.24.0", dtype="bfloat16", precision="bf16", strategy="fsdp"
    )
    found = resolve(recipe, cards=2).recipe
    assert found.hidden_dtype is DType.BFLOAT16
    assert found.quantization.storage_dtype is DType.BFLOAT16


@pytest.mark.parametrize(
    ("version", "checkpointing", "precision_is_bf16"),
    [("0.18.2", False, False), ("0.19.0", False, True), ("0.22.0", True, True)],
)
def test_bf16_and_checkpointing_became_defaults(version, checkpointing, precision_is_bf16):
    recipe = resolve(stated("trl", "full", version=version)).recipe
    assert (recipe.gradient_checkpointing is Checkpointing.FULL) is checkpointing
    assert recipe.autocast is precision_is_bf16


@pytest.mark.parametrize(
    ("version", "path", "tokens", "vocabulary"),
    [
        ("1.6.0", LossPath.FULL, 0, 0),
        ("1.7.0", LossPath.CHUNKED, 256, 0),
        ("1.14.0", LossPath.CHUNKED, 256, 0),
        ("1.15.0", LossPath.CHUNKED, 4096, 32768),
        ("1.16.0", LossPath.CHUNKED, 4096, 32768),
    ],
)
def test_the_default_loss_by_version(version, path, tokens, vocabulary):
    loss = resolve(stated("trl", "lora", version=version)).recipe.loss
    assert (loss.path, loss.chunk_tokens, loss.chunk_vocabulary) == (path, tokens, vocabulary)
    assert loss.skips_masked is (path is LossPath.CHUNKED)


def test_the_token_accuracy_of_0_15_to_1_6_copies_the_logits_once_more():
    def copies(version):
        recipe = stated("trl", "lora", version=version, precision="bf16", dtype="bfloat16")
        return resolve(recipe).recipe.loss.output_fp32_copies

    assert copies("0.14.0") == 1  # accelerate's
    assert copies("0.15.0") == 2  # and the shifted contiguous copy


def test_liger_fuses_norms_but_not_the_head_since_1_15():
    def fused(version):
        return resolve(stated("trl", "lora", version=version, use_liger_kernel=True)).recipe

    assert fused("1.9.0").loss.path is LossPath.FUSED_LINEAR
    assert fused("1.16.0").loss.path is LossPath.CHUNKED
    assert fused("1.16.0").kernels.fused_norm


def test_a_dpo_pair_runs_as_two_sequences_beside_a_reference_model():
    full = resolve(stated("trl", "full", objective="dpo")).recipe
    assert full.sequences_per_sample == 2
    assert full.reference_model
    lora = resolve(stated("trl", "lora", objective="dpo")).recipe
    assert not lora.reference_model  # the base without its adapter is the reference


def test_unquantised_adapters_under_zero3_stay_half_since_1_7():
    def adapter(version):
        recipe = stated(
            "trl", "lora", version=version, dtype="bfloat16", precision="none", strategy="zero3"
        )
        return resolve(recipe, cards=8).recipe

    assert adapter("1.6.0").adapter.dtype is DType.FLOAT32
    assert adapter("1.7.0").adapter.dtype is DType.BFLOAT16
    assert adapter("1.7.0").use_reentrant  # forced for PEFT under ZeRO-3
