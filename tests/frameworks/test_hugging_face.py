"""What transformers, PEFT, bitsandbytes and accelerate do, by version."""

from dataclasses import replace

import pytest

from frameworks.sample_models import A100, H100, T4, model, stated
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.recipe import (
    AttentionKernel,
    Checkpointing,
    DType,
    LossPath,
    OptimizerImplementation,
)
from tuneplan.spec.stated import StatedParallelism


def resolve(recipe, *, architecture=None, chip=A100, cards=1):
    return resolve_recipe(recipe, architecture or model(), chip, world_size=cards)


def trainer(method="lora", *, software, **rest):
    return stated("transformers", method, software=software, **rest)


@pytest.mark.parametrize(
    ("version", "upcast", "shifted", "copies", "holds"),
    [
        ("4.30.2", False, True, 1, False),  # half logits; accelerate returns an fp32 copy
        ("4.31.0", True, True, 0, False),  # logits.float() in the model: nothing left to copy
        ("4.45.2", True, True, 0, False),
        ("4.48.1", True, True, 1, True),  # the loss upcasts, the model returns half logits
        ("4.49.0", True, False, 1, True),  # labels are shifted instead of logits
        ("5.24.0", True, False, 1, True),
    ],
)
def test_logits_by_version_of_transformers(version, upcast, shifted, copies, holds):
    recipe = trainer(software={"transformers": version}, precision="bf16", dtype="bfloat16")
    loss = resolve(recipe).recipe.loss
    assert loss.path is LossPath.FULL
    assert (loss.upcast_logits, loss.shifted_copy) == (upcast, shifted)
    assert (loss.output_fp32_copies, loss.holds_model_logits) == (copies, holds)


@pytest.mark.parametrize(
    ("transformers", "torch", "name", "implementation"),
    [
        ("4.31.0", "2.0.1", "adamw_hf", OptimizerImplementation.FOR_LOOP),
        ("4.32.0", "1.13.1", "adamw_torch", OptimizerImplementation.FOR_LOOP),
        ("4.32.0", "2.0.1", "adamw_torch", OptimizerImplementation.FOREACH),
        ("4.53.0", "2.8.0", "adamw_torch", OptimizerImplementation.FOREACH),
        ("4.54.0", "2.7.1", "adamw_torch", OptimizerImplementation.FOREACH),
        ("4.54.0", "2.8.0", "adamw_torch_fused", OptimizerImplementation.FUSED),
    ],
)
def test_the_step_of_the_default_optimizer(transformers, torch, name, implementation):
    software = {"transformers": transformers, "torch": torch}
    optimizer = resolve(trainer("full", software=software)).recipe.optimizer
    assert (optimizer.name, optimizer.implementation) == (name, implementation)


@pytest.mark.parametrize(
    ("version", "dtype"), [("4.57.0", DType.FLOAT32), ("5.0.0", DType.BFLOAT16)]
)
def test_transformers_5_loads_in_the_dtype_of_the_checkpoint(version, dtype):
    recipe = resolve(trainer("full", software={"transformers": version})).recipe
    assert recipe.trainable_dtype is dtype  # 16 bytes a parameter with Adam, or 8


@pytest.mark.parametrize(
    ("version", "dtype"),
    [("0.5.0", DType.FLOAT32), ("0.11.1", DType.BFLOAT16), ("0.12.0", DType.FLOAT32)],
)
def test_adapters_on_a_half_base_by_version_of_peft(version, dtype):
    recipe = trainer(software={"peft": version}, dtype="bfloat16")
    assert resolve(recipe).recipe.adapter.dtype is dtype


@pytest.mark.parametrize(("version", "keeps"), [("0.43.1", True), ("0.43.2", False)])
def test_bitsandbytes_keeps_the_inputs_of_quantised_linears_to_0_43_1(version, keeps):
    recipe = trainer("qlora", software={"bitsandbytes": version})
    assert resolve(recipe).recipe.quantization.keeps_inputs is keeps


@pytest.mark.parametrize(("version", "reaches"), [("4.57.0", True), ("5.0.0", False)])
def test_stacked_experts_of_transformers_5_are_not_quantised(version, reaches):
    recipe = trainer("qlora", software={"transformers": version})
    quantization = resolve(recipe, architecture=model(num_experts=8)).recipe.quantization
    assert quantization.quantizes_experts is reaches


@pytest.mark.parametrize(
    ("version", "trainable"), [("0.29.3", DType.BFLOAT16), ("0.30.0", DType.FLOAT32)]
)
def test_accelerate_turns_fsdp1_trainables_into_fp32_since_0_30(version, trainable):
    software = {"accelerate": version, "transformers": "4.48.0"}
    recipe = trainer("full", software=software, dtype="bfloat16", precision="bf16", strategy="fsdp")
    found = resolve(recipe, cards=8).recipe
    assert found.trainable_dtype is trainable  # 8 or 16 bytes a parameter over the ranks
    assert found.upcast_under_fsdp is (trainable is DType.FLOAT32)
    assert found.hidden_dtype is DType.BFLOAT16


@pytest.mark.parametrize(
    ("version", "frozen", "adapter"),
    [
        ("1.12.0", DType.FLOAT32, DType.FLOAT32),  # the whole model, frozen base too
        ("1.14.0", DType.BFLOAT16, DType.FLOAT32),  # trainables only
    ],
)
def test_accelerate_and_fsdp2(version, frozen, adapter):
    software = {"accelerate": version, "transformers": "5.0.0"}
    recipe = trainer(software=software, dtype="bfloat16", precision="bf16", strategy="fsdp2")
    found = resolve(recipe, cards=8).recipe
    assert (found.frozen_dtype, found.adapter.dtype) == (frozen, adapter)


def test_without_mixed_precision_nothing_is_upcast_under_fsdp():
    recipe = trainer("full", software={}, dtype="bfloat16", precision="none", strategy="fsdp")
    found = resolve(recipe, cards=2).recipe
    assert found.trainable_dtype is DType.BFLOAT16
    assert not found.upcast_under_fsdp


def test_deepspeed_casts_everything_to_half_and_keeps_fp32_masters():
    recipe = trainer("full", software={}, dtype="float32", precision="bf16", strategy="zero3")
    found = resolve(recipe, cards=8)
    assert found.recipe.trainable_dtype is DType.BFLOAT16
    assert found.recipe.optimizer.master_weights
    assert found.recipe.optimizer.state_dtype is DType.FLOAT32  # 2 + 2 + 4 + 8 bytes a parameter
    assert not found.recipe.autocast
    assert found.recipe.loss.output_fp32_copies == 0  # no wrapper around the engine's forward
    hidden = 4096
    assert found.parallelism.reduce_bucket_elements == hidden * hidden  # Trainer's "auto"
    assert found.parallelism.persistence_threshold == 10 * hidden


def test_buckets_that_the_job_states_go_before_those_of_the_engine():
    recipe = trainer("full", software={}, precision="bf16", strategy="zero3")
    stated_buckets = StatedParallelism(
        strategy="zero3",
        reduce_bucket_elements=5,
        allgather_bucket_elements=6,
        overlap_communication=False,
        max_live_parameters=0,
        persistence_threshold=7,
    )
    found = resolve(replace(recipe, parallelism=stated_buckets), cards=8)
    assert found.parallelism.reduce_bucket_elements == 5
    assert found.parallelism.allgather_bucket_elements == 6
    assert not found.parallelism.overlap_communication
    assert found.parallelism.max_live_parameters == 0
    assert found.parallelism.persistence_threshold == 7
    assumed = {assumption.name for assumption in found.assumptions}
    assert not {name for name in assumed if name.startswith("parallelism.reduce")}


def test_peft_preparation_leaves_everything_around_the_4_bit_linears_in_fp32():
    recipe = trainer("qlora", software={}, dtype="float16", precision="none")
    found = resolve(recipe, chip=T4).recipe
    assert (found.outer_dtype, found.norm_dtype) == (DType.FLOAT32, DType.FLOAT32)
    assert found.hidden_dtype is DType.FLOAT32
    assert found.quantization.dequantized_dtype is DType.FLOAT16


@pytest.mark.parametrize(
    ("model_type", "version", "kernel"),
    [
        ("llama", "4.35.0", AttentionKernel.EAGER),
        ("llama", "4.36.0", AttentionKernel.SDPA_FLASH),
        ("llama", "4.39.0", AttentionKernel.SDPA_EFFICIENT),  # always an explicit mask
        ("llama", "4.40.0", AttentionKernel.SDPA_FLASH),
        ("mistral", "4.36.0", AttentionKernel.EAGER),
        ("gemma2", "5.24.0", AttentionKernel.EAGER),
        ("gpt_oss", "5.24.0", AttentionKernel.EAGER),
    ],
)
def test_attention_by_model_and_version(model_type, version, kernel):
    recipe = trainer(
        software={"transformers": version, "torch": "2.4.1"},
        dtype="bfloat16",
        precision="bf16",
        per_device_train_batch_size=1,
    )
    assert resolve(recipe, architecture=model(model_type)).recipe.attention is kernel


def test_padded_batches_pass_a_mask_and_repeat_their_keys():
    recipe = trainer(software={}, dtype="bfloat16", precision="bf16", per_device_train_batch_size=4)
    found = resolve(recipe).recipe
    assert found.attention is AttentionKernel.SDPA_EFFICIENT
    assert found.attention_mask
    assert found.expand_key_value


@pytest.mark.parametrize(("version", "expanded"), [("4.53.0", True), ("4.54.0", False)])
def test_keys_are_repeated_before_sdpa_to_4_53(version, expanded):
    recipe = trainer(
        software={"transformers": version, "torch": "2.7.1"},
        dtype="bfloat16",
        precision="bf16",
        per_device_train_batch_size=1,
    )
    found = resolve(recipe).recipe
    assert found.attention is AttentionKernel.SDPA_FLASH
    assert found.expand_key_value is expanded


def test_fp32_with_grouped_keys_and_no_mask_is_the_math_kernel():
    recipe = trainer(software={}, dtype="float32", precision="none", per_device_train_batch_size=1)
    found = resolve(recipe)
    assert found.recipe.attention is AttentionKernel.SDPA_MATH
    assert any("math" in str(notice.message) for notice in found.notices)


def test_a_chip_below_compute_capability_8_has_no_flash_kernel():
    recipe = trainer(
        software={"transformers": "4.48.0"},
        dtype="float16",
        precision="fp16",
        per_device_train_batch_size=1,
    )
    assert resolve(recipe, chip=T4).recipe.attention is AttentionKernel.SDPA_EFFICIENT


@pytest.mark.parametrize(
    ("torch", "kernel"),
    [
        ("2.8.0", AttentionKernel.SDPA_FLASH),
        ("2.9.1", AttentionKernel.CUDNN),
        ("2.10.0", AttentionKernel.SDPA_FLASH),
        ("2.11.0", AttentionKernel.CUDNN),
    ],
)
def test_hopper_runs_cudnn_attention_where_torch_prefers_it(torch, kernel):
    recipe = trainer(
        software={"torch": torch}, dtype="bfloat16", precision="bf16", per_device_train_batch_size=1
    )
    assert resolve(recipe, chip=H100).recipe.attention is kernel
    assert resolve(recipe, chip=A100).recipe.attention is AttentionKernel.SDPA_FLASH


@pytest.mark.parametrize(("version", "expanded"), [("4.47.0", True), ("4.48.0", False)])
def test_mistral_repeated_keys_before_flash_attention_to_4_47(version, expanded):
    recipe = trainer(
        software={"transformers": version}, attn_implementation="flash_attention_2", dtype="auto"
    )
    found = resolve(recipe, architecture=model("mistral")).recipe
    assert found.expand_key_value is expanded
    assert not resolve(recipe, architecture=model("llama")).recipe.expand_key_value


@pytest.mark.parametrize(("version", "reentrant"), [("4.57.0", True), ("5.0.0", False)])
def test_checkpointing_is_reentrant_before_transformers_5(version, reentrant):
    recipe = trainer(software={"transformers": version}, gradient_checkpointing=True)
    found = resolve(recipe).recipe
    assert found.gradient_checkpointing is Checkpointing.FULL
    assert found.use_reentrant is reentrant


def test_accumulation_under_fsdp_leaves_gradients_whole_on_each_rank():
    recipe = trainer(
        "full", software={}, strategy="fsdp", gradient_accumulation_steps=4, precision="bf16"
    )
    assert resolve(recipe, cards=8).recipe.gradients_unsharded_while_accumulating
    once = trainer("full", software={}, strategy="fsdp", precision="bf16")
    assert not resolve(once, cards=8).recipe.gradients_unsharded_while_accumulating
