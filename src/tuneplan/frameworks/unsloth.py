"""Unsloth: 4-bit base, fused kernels, checkpoints on the host; trainer values of its notebooks."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import (
    chosen_loss,
    flag,
    hugging_face_stack,
    model_length,
    number,
    targets,
    whole,
)
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_on
from tuneplan.frameworks.losses import fused_linear
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import ddp_by_default, method_by_section
from tuneplan.frameworks.trl import trl_defaults
from tuneplan.language import message
from tuneplan.spec.recipe import Checkpointing, DType, Kernels, Loss, LossPath, Method

_NOTEBOOKS = "unsloth notebooks: the trainer block they share"
_SHORT = 512
_FUSED_FROM_TOKENS = 1024


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.QLORA, "unsloth models/loader.py load_in_4bit True")


def unsloth_defaults(context: Context, head: Head) -> Defaults:
    """Signatures of ``from_pretrained`` and ``get_peft_model``; trainer part of the notebooks."""
    fact = context.software.fact
    base = trl_defaults(context, head)
    half = "bfloat16" if context.has_bf16 else "float16"
    picks = message("unsloth_half", "dtype None is bf16 where the chip has it, else fp16")
    notebook = message("unsloth_notebooks", "its notebooks set this")
    length = fact("unsloth", "max_length")
    free = fact("unsloth", "padding_free")
    flash = "flash_attention_2" if context.has_flash_attention_2 else "sdpa"
    kernel = message("unsloth_attention", "flash attention where it is installed and runs")
    return replace(
        base,
        dtype=by_rule(half, picks, "unsloth models/loader.py"),
        precision=by_rule("bf16" if context.has_bf16 else "fp16", picks, _NOTEBOOKS),
        max_length=model_length(context) if length.value == "model" else whole(length),
        per_device_train_batch_size=by_rule(2, notebook, _NOTEBOOKS),
        gradient_accumulation_steps=by_rule(4, notebook, _NOTEBOOKS),
        optim=by_rule("adamw_bnb_8bit", notebook, _NOTEBOOKS),
        gradient_checkpointing=_checkpointing(context, head),
        use_reentrant=switched_on(
            message("unsloth_reentrant", "its checkpointing is re-entrant"),
            "unsloth models/_utils.py",
        ),
        attn_implementation=by_rule(flash, kernel, "unsloth models/llama.py"),
        loss=by_table(fact("unsloth", "loss"), "fused"),
        padding=by_table(free, "none") if free.value == "true" else base.padding,
        r=whole(fact("unsloth", "lora_r")),
        lora_alpha=number(fact("unsloth", "lora_alpha")),
        lora_dropout=number(fact("unsloth", "lora_dropout")),
        target_modules=targets(fact("unsloth", "targets")),
        quantization_type=by_rule("nf4", notebook, "unsloth models/llama.py"),
        double_quant=flag(fact("unsloth", "bnb_double_quant")),
    )


def _checkpointing(context: Context, head: Head) -> Default[Checkpointing]:
    del head
    fact = context.software.fact("unsloth", "gradient_checkpointing")
    if fact.value == "full":
        return by_table(fact, Checkpointing.FULL)
    short = context.software.fact("unsloth", "short_checkpointing")
    length = context.stated.training.max_length
    if short.value == "full_below_512" and length is not None and length < _SHORT:
        return by_table(short, Checkpointing.FULL)
    return by_table(fact, Checkpointing.OFFLOAD)


def unsloth_stack(context: Context, settings: Settings) -> Stack:
    """Fused norms, rotary, MLP and adapters; fp32 adapters; the base is not upcast."""
    no_kbit = message("kbit_unsloth", "its own preparation upcasts the adapters only")
    stack = hugging_face_stack(
        context,
        settings,
        loss=_loss(context, settings),
        kbit=by_rule(KbitPreparation.NONE, no_kbit, "unsloth models/llama.py"),
        adapter_dtype=by_rule(
            DType.FLOAT32,
            message("unsloth_adapter", "adapters are kept in fp32"),
            "unsloth models/llama.py get_peft_model",
        ),
    )
    adapter = settings.method.uses_adapter
    return replace(
        stack,
        kernels=Kernels(fused_norm=True, fused_rope=True, fused_mlp=adapter, fused_adapter=adapter),
        kernels_source="unsloth kernels/: rms_layernorm, rope_embedding, fast_lora",
        adapter_cast=False if adapter else None,
        masks_padding=False,
        packs_documents=True,
    )


def _loss(context: Context, settings: Settings) -> Default[Loss]:
    if settings.loss in ("full", "chunked"):
        chosen = chosen_loss(context, settings)
        if chosen is not None:
            return chosen
    fact = context.software.fact("unsloth", "loss")
    tokens = settings.max_length * settings.per_device_train_batch_size
    if fact.value == "fused_cross_entropy" or tokens <= _FUSED_FROM_TOKENS:
        loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=False, shifted_copy=False)
        return by_table(fact, loss)
    return by_table(fact, fused_linear())


UNSLOTH = Framework(
    name="unsloth",
    aliases=("unslothai/unsloth", "ms-swift + unsloth"),
    package="unsloth",
    libraries=("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes"),
    method=_method,
    strategy=ddp_by_default,
    defaults=unsloth_defaults,
    stack=unsloth_stack,
)
