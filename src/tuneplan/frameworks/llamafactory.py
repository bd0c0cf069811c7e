"""LLaMA-Factory: its own casts, checkpointing always on, all linears adapted."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import (
    checkpointing,
    flag,
    hugging_face_defaults,
    hugging_face_loss,
    hugging_face_stack,
    number,
    targets,
    whole,
)
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_off
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.transformers import ddp_by_default, half_of_compute, method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import DType, Method, Objective

_EXAMPLES = "LLaMA-Factory examples/train_* and webui: bf16 true"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, "LLaMA-Factory finetuning_args.py")


def llamafactory_defaults(context: Context, head: Head) -> Defaults:
    """Defaults of ``hparams/*_args.py``; precision as the shipped files set it."""
    fact = context.software.fact
    base = hugging_face_defaults(context, head)
    half = half_of_compute(context)
    shipped = message("shipped_files", "every shipped file sets it")
    inferred = message("compute_dtype", "the base is loaded in the compute dtype")
    alpha = fact("llamafactory", "lora_alpha")
    attention = fact("llamafactory", "attention")
    pretrain = head.objective is Objective.PRETRAIN
    reentrant = flag(fact("llamafactory", "use_reentrant"))
    if head.strategy is Strategy.FSDP2 and context.software.at_least("llamafactory", "0.9.4"):
        reason = message("reentrant_fsdp2", "re-entrant checkpointing is switched off for FSDP2")
        reentrant = switched_off(reason, "LLaMA-Factory model_utils/checkpointing.py 0.9.4")
    packs = message("packs_pretraining", "packing is on for pre-training only")
    return replace(
        base,
        dtype=by_rule(half, inferred, "LLaMA-Factory extras/misc.py infer_optim_dtype"),
        precision=by_rule("bf16" if context.has_bf16 else "fp16", shipped, _EXAMPLES),
        max_length=whole(fact("llamafactory", "max_length")),
        packing=by_rule(pretrain, packs, "LLaMA-Factory data_args.py 0.6.0"),
        gradient_checkpointing=checkpointing(fact("llamafactory", "gradient_checkpointing")),
        use_reentrant=reentrant,
        attn_implementation=base.attn_implementation
        if attention.value == "transformers"
        else by_table(attention, "eager"),
        r=whole(fact("llamafactory", "lora_r")),
        lora_alpha=by_table(alpha, -2.0) if alpha.value == "2r" else number(alpha),
        lora_dropout=number(fact("llamafactory", "lora_dropout")),
        target_modules=targets(fact("llamafactory", "targets")),
        trained_layers=whole(fact("llamafactory", "trained_layers")),
        quantization_type=by_rule("nf4", shipped, "LLaMA-Factory model_args.py"),
        double_quant=flag(fact("llamafactory", "bnb_double_quant")),
    )


def trains_in_fp32(context: Context, settings: Settings) -> Default[bool]:
    """Whether what is trained is cast to fp32 (``model/adapter.py init_adapter``).

    ``precision: none`` stands for ``pure_bf16``, which never casts.
    """
    fact = context.software.fact("llamafactory", "trainable_dtype")
    zero3 = settings.strategy is Strategy.ZERO3
    exempt = {
        "float32": False,
        "float32_unless_sharded_any": settings.head.deepspeed or settings.head.fsdp,
        "float32_unless_zero3_or_fsdp": zero3 or settings.head.fsdp,
        "float32_unless_zero3": zero3,
    }[fact.value]
    if settings.method.quantized and context.software.at_least("llamafactory", "0.8.3"):
        exempt = False
    return by_table(fact, not exempt and settings.precision != "none")


def llamafactory_stack(context: Context, settings: Settings) -> Stack:
    """No k-bit preparation beyond the norms; adapters follow the rule for trained weights."""
    fact = context.software.fact
    casts = trains_in_fp32(context, settings)
    norms = fact("llamafactory", "norms_fp32")
    kbit = KbitPreparation.NORMS if norms.value == "true" else KbitPreparation.NONE
    head = fact("llamafactory", "head_output_fp32")
    extra = 1 if head.value == "true" and settings.method is not Method.FULL else 0
    dtype = DType.FLOAT32 if casts.value else settings.dtype
    return replace(
        hugging_face_stack(
            context,
            settings,
            loss=hugging_face_loss(context, settings, extra_copies=extra),
            kbit=by_table(norms, kbit),
            adapter_dtype=Default(dtype, casts.reason, casts.source),
        ),
        trains_in_fp32=casts,
        overlap_communication=fact("llamafactory", "zero_overlap").value == "true",
    )


LLAMAFACTORY = Framework(
    name="llamafactory",
    aliases=("llama-factory", "llama_factory", "llama factory", "llama-factory (fork)"),
    package="llamafactory",
    method=_method,
    strategy=ddp_by_default,
    defaults=llamafactory_defaults,
    stack=llamafactory_stack,
)
