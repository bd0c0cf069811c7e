"""A plain loop around ``deepspeed.initialize``: the engine casts the model and keeps masters."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults, hugging_face_stack
from tuneplan.frameworks.ledger import Default, by_rule
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, Method

_ENGINE = "deepspeed runtime/engine.py"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, _ENGINE)


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_deepspeed", "people who name DeepSpeed mostly mean ZeRO-3")
    return by_rule(Strategy.ZERO3, reason, "docs/reference/frameworks.md: deepspeed")


def deepspeed_defaults(context: Context, head: Head) -> Defaults:
    """bf16 engine, checkpointing, one micro-batch a step."""
    base = hugging_face_defaults(context, head)
    usual = message("deepspeed_usual", "what its fine-tuning examples set")
    half = "bfloat16" if context.has_bf16 else "float16"
    return replace(
        base,
        dtype=by_rule(half, usual, "DeepSpeedExamples training/"),
        precision=by_rule(
            "bf16" if context.has_bf16 else "fp16", usual, "DeepSpeedExamples training/"
        ),
        per_device_train_batch_size=by_rule(1, usual, "DeepSpeedExamples training/"),
        per_device_eval_batch_size=by_rule(1, usual, "DeepSpeedExamples training/"),
        gradient_checkpointing=by_rule(Checkpointing.FULL, usual, "DeepSpeedExamples training/"),
        optim=by_rule("adamw_torch_fused", usual, "deepspeed ops/adam FusedAdam"),
        max_grad_norm=by_rule(
            1.0, message("deepspeed_clip", "gradient_clipping as shipped"), _ENGINE
        ),
        quantization_type=by_rule("nf4", usual, "QLoRA paper"),
    )


def deepspeed_stack(context: Context, settings: Settings) -> Stack:
    """The model's own code, no wrapper around its outputs."""
    reason = message("kbit_deepspeed", "nothing is upcast")
    stack = hugging_face_stack(
        context, settings, kbit=by_rule(KbitPreparation.NONE, reason, _ENGINE)
    )
    loss = replace(stack.loss.value, output_fp32_copies=0)
    return replace(
        stack,
        loss=Default(loss, stack.loss.reason, stack.loss.source),
        fsdp_upcast=None,
    )


DEEPSPEED = Framework(
    name="deepspeed",
    aliases=("deepspeed examples", "deepspeedai/deepspeed"),
    package="deepspeed",
    libraries=("torch", "transformers", "peft", "bitsandbytes"),
    method=_method,
    strategy=_strategy,
    on_one_card=Strategy.ZERO1,
    defaults=deepspeed_defaults,
    stack=deepspeed_stack,
)
