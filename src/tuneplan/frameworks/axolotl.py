"""Axolotl: bf16 weights, no checkpointing and length 512 unless the YAML says otherwise."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import (
    checkpointing,
    flag,
    hugging_face_defaults,
    hugging_face_stack,
    number,
    whole,
    word,
)
from tuneplan.frameworks.ledger import Default, by_rule, switched_off
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import ddp_by_default, half_of_compute, method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Kernels, Method, Objective

_SCHEMA = "axolotl utils/schemas/config.py"
_EXAMPLES = "axolotl examples: the most frequent value (the key has no default)"
_DTYPES = "axolotl loaders/model.py _configure_embedding_dtypes, 067b021c8"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, f"{_SCHEMA}: adapter None")


def axolotl_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of the schema; what it leaves to the user as most examples set it."""
    fact = context.software.fact
    base = hugging_face_defaults(context, head)
    auto = message("bf16_auto", "bf16 is auto: half where the chip has it")
    usual = message("most_examples", "the user must set it; most examples say this")
    reentrant = flag(fact("axolotl", "use_reentrant"))
    if head.objective not in (Objective.SFT, Objective.PRETRAIN):
        reason = message("reentrant_rl", "preference builders pass False")
        reentrant = switched_off(reason, "axolotl core/builders/rl.py")
    batch = whole(fact("axolotl", "batch_size"))
    return replace(
        base,
        dtype=by_rule(half_of_compute(context), auto, _SCHEMA),
        precision=by_rule("bf16" if context.has_bf16 else "fp16", auto, _SCHEMA),
        max_length=whole(fact("axolotl", "max_length")),
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        optim=word(fact("axolotl", "optim")),
        gradient_checkpointing=checkpointing(fact("axolotl", "gradient_checkpointing")),
        use_reentrant=reentrant,
        num_train_epochs=number(fact("axolotl", "num_train_epochs")),
        save_strategy=by_rule(
            "epoch",
            message("axolotl_saves", "it saves after each epoch unless told otherwise"),
            "axolotl core/builders/base.py _configure_save_and_eval_strategy",
        ),
        save_total_limit=by_rule(
            4,
            message("axolotl_keeps", "it keeps the last four checkpoints unless told otherwise"),
            "axolotl core/builders/base.py _configure_save_and_eval_strategy",
        ),
        r=by_rule(16, usual, _EXAMPLES),
        lora_alpha=by_rule(32.0, usual, _EXAMPLES),
        lora_dropout=number(fact("axolotl", "lora_dropout")),
        target_modules=by_rule("all-linear", usual, f"{_EXAMPLES}: lora_target_linear"),
        quantization_type=by_rule("nf4", message("axolotl_nf4", "4 bits are nf4"), _DTYPES),
        double_quant=flag(fact("axolotl", "bnb_double_quant")),
    )


def axolotl_stack(context: Context, settings: Settings) -> Stack:
    """bf16 end state after its casts there and back; LoRA kernels by version.

    Full fine-tuning without flash attention and without sharding keeps embeddings, head and norms
    in fp32 (the cast back runs only for adapters, FSDP and flash attention).
    """
    reason = message("kbit_axolotl", "norms, embeddings and head are cast to fp32 and back")
    stack = hugging_face_stack(
        context, settings, kbit=by_rule(KbitPreparation.NONE, reason, _DTYPES)
    )
    flash = settings.attn_implementation.startswith("flash")
    plain = settings.strategy in (Strategy.SINGLE, Strategy.DDP)
    stack = replace(
        stack,
        fp32_outer=not settings.method.uses_adapter and not flash and plain,
        packs_documents=True,
    )
    if not _lora_kernels(context, settings):
        return stack
    source = context.software.fact("axolotl", "lora_kernels").citation
    return replace(
        stack,
        kernels=Kernels(fused_mlp=True, fused_adapter=True),
        kernels_source=source,
        adapter_cast=False,
    )


def _lora_kernels(context: Context, settings: Settings) -> bool:
    """Whether the Triton LoRA kernels run: as stated, else as the schema switches them on."""
    if settings.method not in (Method.LORA, Method.QLORA) or settings.bits == 8:
        return False
    stated = context.stated.adapter.fused_kernels
    if stated is not None:
        return stated
    language = settings.objective in (Objective.SFT, Objective.PRETRAIN)
    if not language or settings.strategy is Strategy.FSDP:
        return False
    rule = context.software.fact("axolotl", "lora_kernels").value
    if rule == "if_dropout_stated_0":
        return context.stated.adapter.lora_dropout == 0
    return rule == "on"


AXOLOTL = Framework(
    name="axolotl",
    aliases=("axolotl-ai-cloud/axolotl",),
    package="axolotl",
    method=_method,
    strategy=ddp_by_default,
    defaults=axolotl_defaults,
    stack=axolotl_stack,
)
