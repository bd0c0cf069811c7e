"""``generic``: a plain Trainer loop with the values that are usually recommended."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults, hugging_face_stack
from tuneplan.frameworks.ledger import Default, by_rule, switched_off, switched_on
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import ddp_by_default, method_by_section
from tuneplan.language import message
from tuneplan.spec.recipe import Checkpointing, Method

_SOURCE = "docs/reference/frameworks.md: generic"
_LENGTH = 2048


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, _SOURCE)


def generic_defaults(context: Context, head: Head) -> Defaults:
    """bf16 weights and autocast, checkpointing, fused AdamW, LoRA r 16 on all linears."""
    base = hugging_face_defaults(context, head)
    usual = message("generic_value", "a value that is usually recommended")
    half = "bfloat16" if context.has_bf16 else "float16"
    length = min(_LENGTH, context.architecture.max_position_embeddings)
    return replace(
        base,
        dtype=by_rule(half, usual, _SOURCE),
        precision=by_rule("bf16" if context.has_bf16 else "fp16", usual, _SOURCE),
        max_length=by_rule(length, usual, _SOURCE),
        per_device_train_batch_size=by_rule(1, usual, _SOURCE),
        per_device_eval_batch_size=by_rule(1, usual, _SOURCE),
        gradient_accumulation_steps=by_rule(-16, usual, _SOURCE),
        optim=by_rule("adamw_torch_fused", usual, _SOURCE),
        gradient_checkpointing=by_rule(Checkpointing.FULL, usual, _SOURCE),
        use_reentrant=switched_off(usual, _SOURCE),
        attn_implementation=by_rule("sdpa", usual, _SOURCE),
        r=by_rule(16, usual, _SOURCE),
        lora_alpha=by_rule(-2.0, usual, _SOURCE),
        lora_dropout=by_rule(0.0, usual, _SOURCE),
        target_modules=by_rule("all-linear", usual, _SOURCE),
        quantization_type=by_rule("nf4", usual, _SOURCE),
        double_quant=switched_on(usual, _SOURCE),
    )


def generic_stack(context: Context, settings: Settings) -> Stack:
    """Trainer's behaviour without k-bit preparation."""
    reason = message("kbit_generic", "nothing is upcast")
    return hugging_face_stack(
        context, settings, kbit=by_rule(KbitPreparation.NONE, reason, _SOURCE)
    )


GENERIC = Framework(
    name="generic",
    method=_method,
    strategy=ddp_by_default,
    defaults=generic_defaults,
    stack=generic_stack,
)
