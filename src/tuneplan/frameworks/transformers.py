"""Hugging Face's plain ``Trainer`` with PEFT and bitsandbytes, and its choice of strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults, hugging_face_stack
from tuneplan.frameworks.ledger import Default, by_rule
from tuneplan.frameworks.settings import Defaults
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Method

_FLAGS: Final = {"bfloat16": "bf16", "float16": "fp16"}


def method_by_section(context: Context, otherwise: Method, source: str) -> Default[Method]:
    """The method that the other sections imply; ``otherwise`` where they say nothing."""
    stated = context.stated
    adapter = any(
        getattr(stated.adapter, name) is not None for name in ("r", "lora_alpha", "target_modules")
    )
    quantized = stated.quantization.bits is not None or stated.quantization.type is not None
    if quantized:
        gptq = stated.quantization.type == "gptq"
        reason = message("method_by_quantization", "the base is quantised")
        return by_rule(Method.GPTQ_LORA if gptq else Method.QLORA, reason, "section quantization")
    if adapter:
        reason = message("method_by_adapter", "an adapter is described")
        return by_rule(Method.LORA, reason, "section adapter")
    reason = message("method_default", "what the framework trains when nothing is said")
    return by_rule(otherwise, reason, source)


def full_by_default(context: Context) -> Default[Method]:
    """Without a PEFT configuration a Trainer trains every weight."""
    return method_by_section(context, Method.FULL, "transformers trainer.py")


def ddp_by_default(context: Context, method: Method) -> Default[Strategy]:
    """Several cards: ``accelerate launch`` and ``torchrun`` wrap the model in DDP."""
    del context, method
    reason = message("strategy_ddp", "launchers wrap the model in DDP unless told otherwise")
    return by_rule(Strategy.DDP, reason, "accelerate commands/launch.py: multi_gpu")


def half_by_compute(context: Context, otherwise: Default[str]) -> Default[str]:
    """Autocast where a measured Trainer row computes in half and says nothing of autocast.

    The only settings of a Trainer that name a compute dtype are its flags ``bf16`` and ``fp16``,
    and both open autocast (or DeepSpeed's half engine).
    """
    word = _FLAGS.get(context.measured.compute_dtype or "")
    if word is None:
        return otherwise
    reason = message("compute_by_flag", "a Trainer computes in half by this flag")
    return by_rule(word, reason, "transformers training_args.py bf16, fp16")


def half_of_compute(context: Context) -> str:
    """The half dtype of weights that are loaded in the type they compute in.

    fp16 where that is asked for; else bf16, or what the chip has.
    """
    fp16 = context.stated.training.precision == "fp16" or not context.has_bf16
    return "float16" if fp16 else "bfloat16"


def transformers_defaults(context: Context, head: Head) -> Defaults:
    """``TrainingArguments`` as they stand; a measured row's compute dtype is its flag."""
    base = hugging_face_defaults(context, head)
    return replace(base, precision=half_by_compute(context, base.precision))


TRANSFORMERS = Framework(
    name="transformers",
    aliases=(
        "hf",
        "hf trainer",
        "huggingface",
        "hugging face",
        "trainer",
        "transformers trainer + peft",
        "transformers trainer",
        "hf trainer + deepspeed",
        "hf trainer + peft + fsdp",
        "transformers + fa2",
        "transformers + accelerate fsdp",
        "accelerate",
        "peft + accelerate",
        "accelerate (run_clm_no_trainer)",
        "accelerate fsdp (aligned mode)",
        "accelerate deepspeed",
    ),
    package="transformers",
    method=full_by_default,
    strategy=ddp_by_default,
    defaults=transformers_defaults,
    stack=hugging_face_stack,
)
