"""ms-swift: weights in the checkpoint's dtype, the model's own length, 16 samples a step."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import (
    flag,
    hugging_face_defaults,
    hugging_face_loss,
    hugging_face_stack,
    model_length,
    number,
    peft_adapter_dtype,
    whole,
)
from tuneplan.frameworks.ledger import Default, by_rule, by_table
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, DType, LossPath, Method

_ZERO2_BUCKET = 200_000_000
_ARGUMENTS = "ms-swift swift/llm/argument"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, f"{_ARGUMENTS}: tuner_type lora")


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message(
        "strategy_swift",
        "DDP with NPROC_PER_NODE set; without it one process spreads the layers (device_map)",
    )
    return by_rule(Strategy.DDP, reason, "ms-swift swift/cli/main.py NPROC_PER_NODE")


def swift_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of the argument files; precision follows the dtype of the weights."""
    fact = context.software.fact
    base = hugging_face_defaults(context, head)
    load = fact("ms-swift", "load_dtype")
    half = "bfloat16" if context.has_bf16 else "float16"
    dtype = by_table(load, half if load.value == "half" else "auto")
    length = fact("ms-swift", "max_length")
    swift = message("swift_arguments", "its argument files say this")
    target = fact("ms-swift", "targets")
    return replace(
        base,
        dtype=dtype,
        precision=_precision(context, dtype.value),
        max_length=model_length(context) if length.value == "model" else whole(length),
        per_device_train_batch_size=whole(fact("ms-swift", "batch_size")),
        per_device_eval_batch_size=whole(fact("ms-swift", "batch_size")),
        gradient_accumulation_steps=_accumulation(context),
        gradient_checkpointing=by_rule(Checkpointing.FULL, swift, f"{_ARGUMENTS} 1.3.0 to 4.5.2"),
        max_grad_norm=number(fact("ms-swift", "max_grad_norm")),
        r=whole(fact("ms-swift", "lora_r")),
        lora_alpha=number(fact("ms-swift", "lora_alpha")),
        lora_dropout=number(fact("ms-swift", "lora_dropout")),
        attn_implementation=_attention(context, base),
        target_modules=by_table(
            target, "all-linear" if target.value == "all-linear" else "DEFAULT"
        ),
        quantization_type=by_rule("nf4", swift, f"{_ARGUMENTS}: bnb_4bit_quant_type"),
        double_quant=flag(fact("ms-swift", "bnb_double_quant")),
        num_train_epochs=base.num_train_epochs,
    )


def _precision(context: Context, dtype: str) -> Default[str]:
    """bf16 weights run under bf16 autocast, fp16 and fp32 weights under fp16 autocast."""
    stated = context.stated.training.dtype or context.measured.param_dtype or dtype
    if stated == "auto":
        stated = context.architecture.stored_dtype
    word = "bf16" if stated == "bfloat16" else "fp16"
    reason = message("swift_precision", "autocast follows the dtype of the weights ({d})", d=stated)
    return by_rule(word, reason, f"{_ARGUMENTS}: _init_mixed_precision")


def _attention(context: Context, base: Defaults) -> Default[str]:
    """The model's default; flash attention where samples are packed, which needs it."""
    if not context.stated.training.packing or not context.has_flash_attention_2:
        return base.attn_implementation
    reason = message("swift_packing", "packing needs flash attention")
    return by_rule("flash_attention_2", reason, f"{_ARGUMENTS}: packing turns padding_free on")


def _accumulation(context: Context) -> Default[int]:
    fact = context.software.fact("ms-swift", "gradient_accumulation_steps")
    return by_table(fact, -16 if fact.value == "total_16" else int(fact.value))


def swift_stack(context: Context, settings: Settings) -> Stack:
    """Trainer's behaviour, no k-bit preparation; fp16 weights that train become fp32."""
    fact = context.software.fact
    fp16 = settings.dtype is DType.FLOAT16
    reason = message("swift_fp16", "float16 weights that train are cast to fp32, others are not")
    lora = fact("ms-swift", "lora_dtype")
    adapter = (
        by_table(lora, DType.FLOAT32)
        if lora.value == "float32" or fp16
        else peft_adapter_dtype(context, settings)
    )
    loss = hugging_face_loss(context, settings)
    if fact("ms-swift", "logits_to_keep").value == "auto" and loss.value.path is LossPath.FULL:
        loss = Default(replace(loss.value, skips_masked=True), loss.reason, loss.source)
    no_kbit = message("kbit_swift", "nothing is upcast")
    zero2 = settings.strategy in (Strategy.ZERO1, Strategy.ZERO2)
    return replace(
        hugging_face_stack(
            context,
            settings,
            loss=loss,
            kbit=by_rule(KbitPreparation.NONE, no_kbit, "ms-swift swift/llm/train/tuner.py"),
            adapter_dtype=adapter,
        ),
        trains_in_fp32=by_rule(fp16, reason, "ms-swift swift/llm/train/tuner.py 2.6.1"),
        trains_vision=fact("ms-swift", "trains_vision").value == "true",
        overlap_communication=fact("ms-swift", "overlap_comm").value == "true",
        reduce_bucket_elements=_ZERO2_BUCKET if zero2 else None,
        packs_documents=True,
    )


MS_SWIFT = Framework(
    name="ms-swift",
    aliases=("swift", "ms_swift", "ms-swift (deepspeed)"),
    package="ms-swift",
    method=_method,
    strategy=_strategy,
    defaults=swift_defaults,
    stack=swift_stack,
    packing_needs_flash=True,
)
