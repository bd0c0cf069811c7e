from dataclasses import replace

import pytest

from frameworks.sample_models import A100, T4, model, stated
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import (
    AttentionKernel,
    Checkpointing,
    DType,
    LossPath,
    Method,
    OptimizerFamily,
    OptimizerImplementation,
)
from tuneplan.spec.stated import StatedAdapter


def resolve(recipe, *, architecture=None, chip=A100, cards=1):
    return resolve_recipe(recipe, architecture or model(), chip, world_size=cards)


def test_llamafactory_trains_full_models_in_fp32_whatever_it_loaded():
    """4 weight + 4 gradient + 8 moments = 16 bytes a parameter."""
    recipe = resolve(stated("llamafactory", "full")).recipe
    assert recipe.trainable_dtype is DType.FLOAT32
    assert recipe.optimizer.state_dtype is DType.FLOAT32
    assert recipe.compute_dtype is DType.BFLOAT16


def test_llamafactory_pure_bf16_halves_that():
    recipe = resolve(stated("llamafactory", "full", dtype="bfloat16", precision="none")).recipe
    assert recipe.trainable_dtype is DType.BFLOAT16


@pytest.mark.parametrize(
    ("version", "method", "strategy", "dtype"),
    [
        ("0.7.1", "lora", "zero2", DType.BFLOAT16),  # no cast under any DeepSpeed
        ("0.9.5", "lora", "fsdp", DType.FLOAT32),
        ("0.9.2", "lora", "fsdp", DType.BFLOAT16),  # FSDP was exempt until 0.9.3
        ("0.9.2", "qlora", "fsdp", DType.FLOAT32),  # a quantised base never was, since 0.8.3
    ],
)
def test_llamafactory_exempts_some_sharding_from_its_cast(version, method, strategy, dtype):
    recipe = stated(
        "llamafactory",
        method,
        version=version,
        strategy=strategy,
        software={"accelerate": "0.29.0"},
        precision="bf16",
    )
    assert resolve(recipe, cards=8).recipe.adapter.dtype is dtype


def test_llamafactory_defaults_of_a_lora_job():
    recipe = resolve(stated("llamafactory")).recipe
    assert recipe.method is Method.LORA
    assert recipe.gradient_checkpointing is Checkpointing.FULL
    assert recipe.use_reentrant
    assert recipe.max_length == 2048
    assert (recipe.adapter.r, recipe.adapter.lora_alpha) == (8, 16)  # alpha = 2 r
    assert recipe.adapter.target_modules == (
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    )
    assert recipe.hidden_dtype is DType.BFLOAT16


def test_axolotl_checkpoints_nothing_and_cuts_at_512_unless_told():
    recipe = resolve(stated("axolotl", "lora")).recipe
    assert recipe.gradient_checkpointing is Checkpointing.NONE
    assert (recipe.max_length, recipe.per_device_train_batch_size) == (512, 1)
    assert recipe.optimizer.name == "adamw_torch_fused"
    assert recipe.kernels.fused_adapter
    assert not recipe.adapter.cast_input


def test_axolotl_used_its_lora_kernels_only_with_a_stated_dropout_of_0_in_2025():
    def fused(dropout):
        adapter = StatedAdapter(lora_dropout=dropout)
        recipe = stated("axolotl", "lora", version="0.10.0", adapter=adapter)
        return resolve(recipe).recipe.kernels.fused_adapter

    assert fused(0.0)
    assert not fused(0.05)
    assert not fused(None)


def test_axolotl_full_without_flash_attention_keeps_an_fp32_residual_stream():
    def hidden(attention):
        recipe = stated("axolotl", "full", attn_implementation=attention)
        return resolve(recipe).recipe.hidden_dtype

    assert hidden("sdpa") is DType.FLOAT32
    assert hidden("flash_attention_2") is DType.BFLOAT16


def test_torchtune_is_pure_bf16_with_its_step_inside_backward():
    recipe = resolve(stated("torchtune", "full")).recipe
    assert recipe.trainable_dtype is DType.BFLOAT16
    assert recipe.optimizer.family is OptimizerFamily.ADAMW_8BIT
    assert recipe.optimizer.paged
    assert recipe.optimizer.in_backward
    assert recipe.max_grad_norm is None
    assert not recipe.autocast


def test_torchtune_keeps_the_softmax_of_every_chunk_unless_compiled():
    plain = resolve(stated("torchtune", "lora", version="0.4.0")).recipe.loss
    assert (plain.num_chunks, plain.keeps_logits, plain.keeps_softmax) == (8, True, True)
    compiled = stated("torchtune", "lora", version="0.4.0", torch_compile=True)
    assert not resolve(compiled).recipe.loss.keeps_softmax
    assert resolve(stated("torchtune", "lora", version="0.2.1")).recipe.loss.path is LossPath.FULL


def test_torchtune_shards_with_fsdp2_on_several_cards():
    found = resolve(stated("torchtune", "full"), cards=8)
    assert found.parallelism.strategy == "fsdp2"
    assert not found.parallelism.activation_gather
    assert not found.recipe.optimizer.in_backward


@pytest.mark.parametrize(("cards", "steps"), [(1, 16), (4, 4), (32, 1)])
def test_swift_keeps_about_16_samples_a_step(cards, steps):
    recipe = resolve(stated("ms-swift"), cards=cards).recipe
    assert recipe.gradient_accumulation_steps == steps  # ceil(16 / 1 / cards)


def test_swift_takes_the_length_and_the_dtype_of_the_model():
    recipe = resolve(stated("ms-swift", "full")).recipe
    assert recipe.max_length == 8192
    assert recipe.trainable_dtype is DType.BFLOAT16
    assert recipe.loss.skips_masked


def test_swift_full_training_of_float16_weights_is_fp32():
    recipe = resolve(stated("ms-swift", "full", dtype="float16")).recipe
    assert recipe.trainable_dtype is DType.FLOAT32
    assert recipe.compute_dtype is DType.FLOAT16


@pytest.mark.parametrize(
    ("version", "checkpointing"),
    [("2025.7.1", Checkpointing.FULL), ("2025.9.1", Checkpointing.OFFLOAD)],
)
def test_unsloth_moved_its_checkpoints_to_the_host_in_august_2025(version, checkpointing):
    recipe = resolve(stated("unsloth", version=version)).recipe
    assert recipe.gradient_checkpointing is checkpointing


def test_unsloth_trains_a_4_bit_base_with_fused_kernels_by_default():
    recipe = resolve(stated("unsloth")).recipe
    assert recipe.method is Method.QLORA
    assert recipe.quantization.double_quant
    assert recipe.hidden_dtype is DType.BFLOAT16
    assert recipe.kernels.fused_mlp
    assert recipe.loss.path is LossPath.FUSED_LINEAR
    on_t4 = resolve(stated("unsloth"), chip=T4).recipe
    assert on_t4.compute_dtype is DType.FLOAT16


def test_litgpt_quantises_its_head_and_expands_from_fp16():
    recipe = resolve(stated("litgpt", "qlora", version="lit-gpt 8641822")).recipe
    assert recipe.quantization.quantizes_head
    assert recipe.quantization.dequantized_dtype is DType.FLOAT16
    assert recipe.quantization.keeps_inputs  # its pyproject pinned bitsandbytes 0.42
    assert recipe.adapter.target_modules == ("q_proj", "v_proj")
    assert recipe.adapter.dtype is DType.BFLOAT16
    assert recipe.gradient_checkpointing is Checkpointing.NONE


def test_litgpt_checkpoints_on_several_cards_and_holds_gradients_of_frozen_weights():
    recipe = resolve(stated("litgpt", "lora", version="0.4.0"), cards=2).recipe
    assert recipe.gradient_checkpointing is Checkpointing.FULL
    assert recipe.frozen_gradients


def test_litgpt_adapts_parts_of_one_projection_and_holds_a_head_of_its_own():
    recipe = resolve(stated("litgpt", "lora", version="lit-gpt 8641822")).recipe
    assert recipe.adapter.query_key_value == ("query", "value")
    assert recipe.longest_first  # get_batch(..., longest_seq_ix) in the first iteration
    assert not resolve(stated("litgpt", "lora", version="0.4.0")).recipe.longest_first
    assert not recipe.unties_head  # this model's head is a weight already
    tied = replace(model(), head=None)
    assert resolve(stated("litgpt", "lora"), architecture=tied).recipe.unties_head


def test_torchtune_steps_with_the_fused_kernel():
    recipe = resolve(stated("torchtune", "lora", optim="adamw_torch")).recipe
    assert recipe.optimizer.implementation is OptimizerImplementation.FUSED


def test_torchtitan_shards_fp32_weights_and_reduces_in_fp32():
    found = resolve(stated("torchtitan", "full", objective="pretrain"), cards=8)
    recipe = found.recipe
    assert found.parallelism.strategy is Strategy.FSDP2
    assert (recipe.trainable_dtype, recipe.gradient_dtype) == (DType.FLOAT32, DType.FLOAT32)
    assert recipe.compute_dtype is DType.BFLOAT16
    assert recipe.gradient_checkpointing is Checkpointing.SELECTIVE
    assert recipe.optimizer.implementation is OptimizerImplementation.FUSED


def test_torchtitan_says_how_adapters_count_that_it_does_not_have():
    found = resolve(stated("torchtitan", "lora"))
    assert any("whole models" in str(one.reason) for one in found.assumptions)


def test_llm_foundry_ran_triton_attention_where_a_table_says_flash():
    recipe = resolve(
        stated(
            "llm-foundry",
            "full",
            objective="pretrain",
            facts={"attention": "flash"},
            attn_implementation="flash_attention_2",
        ),
        cards=8,
    ).recipe
    assert recipe.attention is AttentionKernel.TRITON
    assert recipe.trainable_dtype is DType.FLOAT32
    assert recipe.compute_dtype is DType.BFLOAT16


def test_deepspeed_alone_keeps_masters_even_on_one_card():
    assert resolve(stated("deepspeed", "full")).recipe.optimizer.master_weights
    half = stated("deepspeed", "full", facts={"param_dtype": "bf16 master"}, strategy="zero3")
    assert not resolve(half, cards=4).recipe.optimizer.master_weights


def test_words_of_other_code_bases_name_the_same_linears():
    def targets(words):
        adapter = StatedAdapter(target_modules=words)
        return resolve(stated("generic", "lora", adapter=adapter)).recipe.adapter.target_modules

    assert targets("query,value") == ("q_proj", "v_proj")
    assert targets("q,k,v,o") == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert targets("linear_qkv") == ("q_proj", "k_proj", "v_proj")
    assert targets(("mlp.down_proj",)) == ("down_proj",)


@pytest.mark.parametrize("framework", ["axolotl", "torchtune"])
def test_what_saves_after_each_epoch_does_so_unless_steps_are_stated(framework):
    run = resolve(stated(framework, "lora")).run
    assert run.saves_each_epoch
    assert run.save_steps is None
    run = resolve(stated(framework, "lora", save_steps=50)).run
    assert not run.saves_each_epoch
    assert run.save_steps == 50


def test_axolotl_keeps_four_checkpoints():
    assert resolve(stated("axolotl", "lora")).run.save_total_limit == 4
    assert resolve(stated("trl", "lora")).run.save_total_limit is None


@pytest.mark.parametrize(("objective", "told"), [("sft", 0), ("dpo", 1)])
def test_nothing_is_said_of_full_logits_where_liger_fuses_the_loss(objective, told):
    found = resolve(stated("llamafactory", "lora", objective=objective, use_liger_kernel=True))
    names = [assumption.name for assumption in found.assumptions]
    assert names.count("training.loss") == told
