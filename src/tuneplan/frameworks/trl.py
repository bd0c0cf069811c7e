"""TRL's SFTTrainer, DPOTrainer and kin: Trainer with defaults of their own, by version."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import (
    checkpointing,
    chosen_loss,
    flag,
    hugging_face_defaults,
    hugging_face_loss,
    hugging_face_stack,
    number,
    peft_adapter_dtype,
    whole,
    word,
)
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_on
from tuneplan.frameworks.losses import trl_chunked, trl_fused_head
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import ddp_by_default, method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, DType, Loss, Method, Objective

_KBIT = {
    "none": KbitPreparation.NONE,
    "norms": KbitPreparation.NORMS,
    "peft": KbitPreparation.ALL,
    "peft_then_bf16": KbitPreparation.ALL_THEN_BF16,
}


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, "trl trainer/sft_trainer.py: no peft_config")


def trl_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of ``SFTConfig`` (``DPOConfig`` has the same) and ``ModelConfig``."""
    fact = context.software.fact
    base = hugging_face_defaults(context, head)
    load = fact("trl", "load_dtype")
    reentrant = fact("trl", "use_reentrant")
    sharded_adapter = head.strategy is Strategy.ZERO3 and head.method.uses_adapter
    use_reentrant = base.use_reentrant if reentrant.value == "transformers" else flag(reentrant)
    if sharded_adapter and context.software.at_least("trl", "1.0.0"):
        reason = message("reentrant_zero3", "TRL forces it for PEFT under ZeRO-3")
        use_reentrant = switched_on(reason, "trl sft_trainer.py 1.0.0 to 1.16.0")
    loss = fact("trl", "loss")
    chunked = loss.value != "full" and head.objective in (Objective.SFT, Objective.PRETRAIN)
    return replace(
        base,
        dtype=base.dtype if load.value == "transformers" else word(load),
        precision=word(fact("trl", "precision")),
        max_length=whole(fact("trl", "max_length")),
        gradient_checkpointing=_checkpointing(context, head),
        use_reentrant=use_reentrant,
        loss=by_table(loss, "chunked") if chunked else base.loss,
        r=whole(fact("trl", "lora_r")),
        lora_alpha=number(fact("trl", "lora_alpha")),
        lora_dropout=number(fact("trl", "lora_dropout")),
        quantization_type=word(fact("trl", "bnb_type")),
        double_quant=flag(fact("trl", "bnb_double_quant")),
    )


def _checkpointing(context: Context, head: Head) -> Default[Checkpointing]:
    forced = head.method.quantized and not context.software.at_least("trl", "0.7.2")
    if forced:
        reason = message("checkpointing_forced", "peft's helper switches checkpointing on")
        return by_rule(Checkpointing.FULL, reason, "trl sft_trainer.py 0.4.7 and 0.7.1")
    return checkpointing(context.software.fact("trl", "gradient_checkpointing"))


def trl_loss(context: Context, settings: Settings) -> Default[Loss]:
    """Full logits to 1.6, chunks of 256 tokens from 1.7, a fused tiled head from 1.15.

    Chunks cast the head to fp32 up to 1.12.

    Liger's fused cross entropy is refused from 1.15 (the head is already fused), so
    ``use_liger_kernel`` changes only norms, rotary and MLP there.
    """
    fact = context.software.fact("trl", "loss")
    language = settings.objective in (Objective.SFT, Objective.PRETRAIN)
    fused_head = fact.value.startswith("fused_head")
    named = context.measured.fused_ce is not None or settings.loss in ("fused", "full")
    if language and fused_head and not (settings.loss_stated and named):
        return by_table(fact, trl_fused_head())
    liger = settings.use_liger_kernel
    chunked = language and settings.loss == "chunked" and not liger
    if chunked and fact.value.startswith("chunked_256"):
        return by_table(fact, trl_chunked(fp32_head=fact.value.endswith("fp32_head")))
    chosen = chosen_loss(context, settings)
    if chosen is not None:
        return chosen
    accuracy = context.software.fact("trl", "token_accuracy_copy").value == "true" and language
    return hugging_face_loss(context, settings, extra_copies=1 if accuracy else 0)


def trl_stack(context: Context, settings: Settings) -> Stack:
    """Trainer's behaviour with TRL's own k-bit preparation and adapter dtypes."""
    language = settings.objective in (Objective.SFT, Objective.PRETRAIN)
    kbit = context.software.fact("trl", "kbit" if language else "kbit_dpo")
    stack = hugging_face_stack(
        context,
        settings,
        loss=trl_loss(context, settings),
        kbit=by_table(kbit, _KBIT[kbit.value]),
        adapter_dtype=_adapter_dtype(context, settings),
    )
    padding_free = context.software.fact("trl", "packing_kind").value == "padding_free"
    return replace(stack, packs_documents=padding_free)


def _adapter_dtype(context: Context, settings: Settings) -> Default[DType]:
    fact = context.software.fact
    quantized = settings.method.quantized
    if quantized and (row := fact("trl", "qlora_adapter_dtype")).value == "bfloat16":
        return by_table(row, DType.BFLOAT16)
    if settings.strategy is Strategy.ZERO3 and not quantized:
        row = fact("trl", "zero3_adapter_dtype")
        if row.value == "base":
            return by_table(row, settings.dtype)
    return peft_adapter_dtype(context, settings)


TRL = Framework(
    name="trl",
    aliases=("trl sfttrainer", "transformers/trl", "trl sfttrainer + accelerate fsdp"),
    package="trl",
    method=_method,
    strategy=ddp_by_default,
    defaults=trl_defaults,
    stack=trl_stack,
)
