"""Recipes and models that many tests start from."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.catalog.models import load_models
from tuneplan.spec.recipe import (
    Adapter,
    AttentionKernel,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    Objective,
    Optimizer,
    OptimizerFamily,
    OptimizerImplementation,
    TrainingRecipe,
)

MODELS = load_models()
MISTRAL_7B = MODELS.resolve("mistralai/Mistral-7B-v0.1").architecture
LLAMA_3_8B = MODELS.resolve("meta-llama/Meta-Llama-3-8B").architecture
TINY_LLAMA = MODELS.resolve("TinyLlama/TinyLlama-1.1B-Chat-v1.0").architecture
MIXTRAL = MODELS.resolve("mistralai/Mixtral-8x7B-v0.1").architecture

PURE_BF16_ADAMW = Optimizer(
    name="adamw_torch",
    family=OptimizerFamily.ADAMW,
    implementation=OptimizerImplementation.FOREACH,
    state_dtype=DType.BFLOAT16,
)
FP32_ADAMW = replace(PURE_BF16_ADAMW, state_dtype=DType.FLOAT32)


def adapter(**changes: object) -> Adapter:
    """LoRA r16 on the attention projections, fp32 adapters as PEFT keeps them."""
    plain = Adapter(r=16, lora_alpha=32, target_modules=("q_proj", "k_proj", "v_proj", "o_proj"))
    return replace(plain, **changes)


def recipe(**changes: object) -> TrainingRecipe:
    """LoRA in bf16 with flash attention and reentrant checkpointing; changed as asked."""
    plain = TrainingRecipe(
        framework="transformers",
        framework_version="4.48.1",
        objective=Objective.SFT,
        method=Method.LORA,
        adapter=None,
        quantization=None,
        frozen_dtype=DType.BFLOAT16,
        outer_dtype=DType.BFLOAT16,
        trainable_dtype=DType.BFLOAT16,
        compute_dtype=DType.BFLOAT16,
        autocast=False,
        hidden_dtype=DType.BFLOAT16,
        norm_dtype=DType.BFLOAT16,
        optimizer=FP32_ADAMW,
        gradient_checkpointing=Checkpointing.FULL,
        use_reentrant=True,
        attention=AttentionKernel.FLASH_2,
        loss=Loss(path=LossPath.FULL),
        kernels=Kernels(),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        max_length=4096,
        packing=True,
    )
    return replace(plain, **changes)
