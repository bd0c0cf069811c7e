"""Every job key decided: stated, else a fact of the row, else the framework's default."""

from __future__ import annotations

import math
from typing import Final

from tuneplan.frameworks.adapters import (
    resolve_parameters,
    resolve_saved,
    resolve_targets,
    say_no_dropout,
)
from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.ledger import Default, Ledger, by_rule
from tuneplan.frameworks.optimizers import canonical_optimizer
from tuneplan.frameworks.settings import (
    NO_TRUNCATION,
    AdapterSettings,
    Defaults,
    RunSettings,
    Settings,
)
from tuneplan.language import message
from tuneplan.spec.recipe import Checkpointing, DType, Method, Objective

_SWITCH: Final = {
    "true": Checkpointing.FULL,
    "full": Checkpointing.FULL,
    "false": Checkpointing.NONE,
    "none": Checkpointing.NONE,
    "selective": Checkpointing.SELECTIVE,
    "offload": Checkpointing.OFFLOAD,
    "unsloth": Checkpointing.OFFLOAD,
}
_MEASURED_ATTENTION: Final = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}
_HALVES: Final = {"bf16": "bfloat16", "fp16": "float16"}


def resolve_settings(context: Context, head: Head, defaults: Defaults, ledger: Ledger) -> Settings:
    """The job's settings without a blank; each blank is written down as an assumption."""
    training = context.stated.training
    precision = _precision(context, defaults, ledger)
    dtype = _dtype(context, head, defaults, precision, ledger)
    batch = ledger.take(
        "training.per_device_train_batch_size",
        training.per_device_train_batch_size
        if isinstance(training.per_device_train_batch_size, int)
        else None,
        defaults.per_device_train_batch_size,
    )
    checkpointing = _checkpointing(context, defaults, ledger)
    reentrant = defaults.use_reentrant.value
    if checkpointing is not Checkpointing.NONE:
        reentrant = ledger.take(
            "training.use_reentrant", training.use_reentrant, defaults.use_reentrant
        )
    packing = ledger.take("training.packing", training.packing, defaults.packing)
    clip = ledger.take("training.max_grad_norm", training.max_grad_norm, defaults.max_grad_norm)
    loss = training.loss if training.loss not in (None, "auto") else None
    optim = training.optim
    trained_layers = 0
    if head.method is Method.FREEZE:
        trained_layers = ledger.take(
            "training.trained_layers", training.trained_layers, defaults.trained_layers
        )
    bits, kind, double = _quantization(context, head, defaults, ledger)
    return Settings(
        head=head,
        dtype=dtype,
        precision=precision,
        master_weights=training.master_weights,
        max_length=ledger.take("training.max_length", training.max_length, defaults.max_length),
        truncates=training.max_length is not None
        or defaults.max_length.reason is not NO_TRUNCATION,
        packing=packing,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=_accumulation(context, head, defaults, batch, ledger),
        optim=canonical_optimizer(ledger.take("training.optim", optim, defaults.optim), ledger),
        gradient_checkpointing=checkpointing,
        use_reentrant=reentrant,
        attn_implementation=_attention(context, defaults, ledger),
        loss=_loss(context, head, defaults, loss, ledger),
        loss_stated=loss is not None,
        torch_compile=_compiled(context, defaults, ledger),
        use_liger_kernel=ledger.take(
            "training.use_liger_kernel", training.use_liger_kernel, defaults.use_liger_kernel
        ),
        max_grad_norm=clip or None,
        trained_layers=trained_layers,
        adapter=_adapter(context, head, defaults, ledger),
        bits=bits,
        quantization_type=kind,
        double_quant=double,
        run=_run(context, defaults, packing=packing, ledger=ledger),
    )


def _precision(context: Context, defaults: Defaults, ledger: Ledger) -> str:
    stated = context.stated.training.precision
    measured = context.measured.amp
    if stated is None and measured is not None:
        return measured if measured in _HALVES else "none"
    if stated is None and defaults.precision.value == "bf16" and not context.has_bf16:
        ledger.notice(
            message(
                "bf16_emulated_default",
                "the default precision is bf16, which this chip emulates slowly; fp16 is native",
            ),
            "training.precision",
        )
    return ledger.take("training.precision", stated, defaults.precision)


def _dtype(
    context: Context, head: Head, defaults: Defaults, precision: str, ledger: Ledger
) -> DType:
    training = context.stated.training
    stated = training.dtype
    if stated is None:
        stated = context.measured.param_dtype
    if stated is None and precision == "none":
        stated = context.measured.compute_dtype
    default = defaults.dtype
    if stated is None and training.master_weights and not head.deepspeed:
        reason = message("fp32_for_masters", "fp32 master weights are asked for")
        default = by_rule("float32", reason, "job: training.master_weights")
    if stated is None and precision in ("fp32", "tf32"):
        reason = message("fp32_for_precision", "fp32 compute needs fp32 weights")
        default = by_rule("float32", reason, "job: training.precision")
    default = replace_auto(default, context)
    value = (
        ledger.take("training.dtype", None if stated == "auto" else stated, default)
        if (stated != "auto")
        else context.architecture.stored_dtype
    )
    return DType(value)


def replace_auto(default: Default[str], context: Context) -> Default[str]:
    """The default with ``auto`` read as the dtype the checkpoint is stored in."""
    if default.value != "auto":
        return default
    return by_rule(context.architecture.stored_dtype, default.reason, default.source)


def _checkpointing(context: Context, defaults: Defaults, ledger: Ledger) -> Checkpointing:
    stated = context.stated.training.gradient_checkpointing
    if isinstance(stated, tuple):
        stated = stated[0] if stated else None
    if isinstance(stated, bool):
        stated = "true" if stated else "false"
    if stated is None:
        stated = context.measured.checkpointing
    value = _SWITCH.get(stated.lower()) if stated is not None else None
    return ledger.take("training.gradient_checkpointing", value, defaults.gradient_checkpointing)


def _attention(context: Context, defaults: Defaults, ledger: Ledger) -> str:
    """The implementation; a row's bare "flash" may be the framework's own Triton kernel."""
    stated = context.stated.training.attn_implementation
    measured = context.measured.attention
    if stated is None and measured is not None:
        stated = _MEASURED_ATTENTION.get(measured)
    if measured == "flash" and defaults.attn_implementation.value == "triton":
        stated = None
    return ledger.take("training.attn_implementation", stated, defaults.attn_implementation)


def _fuses(head: Head, defaults: Defaults) -> bool:
    """Whether Liger's kernels put a fused loss in the place of the framework's full logits."""
    language = head.objective in (Objective.SFT, Objective.PRETRAIN)
    return language and defaults.loss.value == "full"


def _loss(
    context: Context, head: Head, defaults: Defaults, stated: str | None, ledger: Ledger
) -> str:
    measured = context.measured.fused_ce
    if stated is None and measured is not None:
        return {"no": "full", "chunked CE": "chunked"}.get(measured, "fused")
    if stated is None and context.stated.training.use_liger_kernel and _fuses(head, defaults):
        return defaults.loss.value  # what Liger makes of it is told as ``behaviour.loss``
    return ledger.take("training.loss", stated, defaults.loss)


def _compiled(context: Context, defaults: Defaults, ledger: Ledger) -> bool:
    stated = context.stated.training.torch_compile
    if stated is None:
        stated = context.measured.compiled
    return ledger.take("training.torch_compile", stated, defaults.torch_compile)


def _accumulation(
    context: Context, head: Head, defaults: Defaults, batch: int, ledger: Ledger
) -> int:
    """Micro-batches a step: stated, or what a stated global batch needs, or the default."""
    training = context.stated.training
    stated = training.gradient_accumulation_steps
    ranks = 1 if head.strategy.value == "device_map" else context.world_size
    if isinstance(stated, int):
        whole = stated * batch * ranks
        if training.global_batch_size is not None and training.global_batch_size != whole:
            ledger.mistake(
                message(
                    "global_batch_differs",
                    "{batch} x {steps} x {ranks} ranks is {whole}, not {wanted}",
                    batch=batch,
                    steps=stated,
                    ranks=ranks,
                    whole=whole,
                    wanted=training.global_batch_size,
                ),
                "training.global_batch_size",
                training.global_batch_size,
                near=(str(whole),),
            )
        return stated
    if training.global_batch_size is not None:
        steps = max(1, round(training.global_batch_size / (batch * ranks)))
        if steps * batch * ranks != training.global_batch_size:
            ledger.notice(
                message(
                    "global_batch_rounded",
                    "a global batch of {wanted} does not divide over {ranks} ranks x {batch}; "
                    "{whole} is taken",
                    wanted=training.global_batch_size,
                    ranks=ranks,
                    batch=batch,
                    whole=steps * batch * ranks,
                ),
                "training.global_batch_size",
            )
        return steps
    default = defaults.gradient_accumulation_steps
    if default.value < 0:  # "about this many samples a step", as ms-swift and LitGPT count
        default = by_rule(
            max(1, math.ceil(-default.value / (batch * ranks))), default.reason, default.source
        )
    return ledger.assume("training.gradient_accumulation_steps", default)


def _adapter(
    context: Context, head: Head, defaults: Defaults, ledger: Ledger
) -> AdapterSettings | None:
    if not head.method.uses_adapter:
        return None
    stated = context.stated.adapter
    r = ledger.take("adapter.r", stated.r, defaults.r)
    alpha_default = defaults.lora_alpha
    if alpha_default.value < 0:  # a multiple of r
        alpha_default = by_rule(
            -alpha_default.value * r, alpha_default.reason, alpha_default.source
        )
    experts = context.software.fact("transformers", "experts").value == "linear"
    targets = ledger.take("adapter.target_modules", stated.target_modules, defaults.target_modules)
    saved = ledger.take("adapter.modules_to_save", stated.modules_to_save, defaults.modules_to_save)
    dropout = ledger.take("adapter.lora_dropout", stated.lora_dropout, defaults.lora_dropout)
    names = resolve_targets(
        targets,
        context.architecture,
        ledger,
        experts_are_linear=experts,
        by_framework=stated.target_modules is None,
        as_it_ran=bool(context.stated.facts),
    )
    stacked = resolve_parameters(
        stated.target_parameters, context.architecture, ledger, experts_are_linear=experts
    )
    if not experts:
        parameters = tuple(name for name, _ in stacked or ())
        say_no_dropout(context.architecture, (*names, *parameters), dropout, ledger)
    return AdapterSettings(
        r=r,
        lora_alpha=ledger.take("adapter.lora_alpha", stated.lora_alpha, alpha_default),
        lora_dropout=dropout,
        target_modules=names,
        expert_targets=stacked if stacked is not None else () if experts else None,
        modules_to_save=resolve_saved(saved, context.architecture, ledger),
        use_rslora=bool(stated.use_rslora),
        use_dora=head.method is Method.DORA,
    )


def _quantization(
    context: Context, head: Head, defaults: Defaults, ledger: Ledger
) -> tuple[int, str, bool]:
    if not head.method.quantized:
        return 16, "nf4", False
    stated = context.stated.quantization
    if head.method is Method.GPTQ_LORA:
        reason = message("gptq_bits", "most GPTQ checkpoints store 4 bits in groups of 128")
        bits = ledger.take("quantization.bits", stated.bits, by_rule(4, reason, "auto-gptq"))
        return bits, "gptq", False
    bits = ledger.take("quantization.bits", stated.bits, defaults.bits)
    kind = stated.type.lower() if stated.type is not None else None
    default = defaults.quantization_type
    if bits == 8:
        reason = message("int8_base", "8 bits is LLM.int8()")
        default = by_rule("int8", reason, "bitsandbytes nn/modules.py Linear8bitLt")
    kind = ledger.take("quantization.type", kind, default)
    if kind == "int8":
        return bits, kind, False
    double = stated.double_quant
    if double is None:
        double = context.measured.double_quant
    return bits, kind, ledger.take("quantization.double_quant", double, defaults.double_quant)


def _run(context: Context, defaults: Defaults, *, packing: bool, ledger: Ledger) -> RunSettings:
    training = context.stated.training
    padding = "none"
    if not packing:
        padding = ledger.take("training.padding", training.padding, defaults.padding)
    epochs = training.num_train_epochs
    if training.max_steps is None:
        epochs = ledger.take("training.num_train_epochs", epochs, defaults.num_train_epochs)
    saves = _save_strategy(context, defaults, ledger)
    return RunSettings(
        padding=padding,
        per_device_eval_batch_size=ledger.take(
            "training.per_device_eval_batch_size",
            training.per_device_eval_batch_size,
            defaults.per_device_eval_batch_size,
        ),
        num_train_epochs=epochs or 0.0,
        max_steps=training.max_steps,
        eval_steps=_eval_steps(context, defaults, ledger),
        save_steps=_save_steps(context, saves, defaults, ledger),
        save_total_limit=ledger.take(
            "training.save_total_limit", training.save_total_limit, defaults.save_total_limit
        )
        or None,
        evaluates_each_epoch=training.eval_strategy == "epoch",
        saves_each_epoch=saves in ("epoch", "best"),
    )


def _save_strategy(context: Context, defaults: Defaults, ledger: Ledger) -> str | None:
    """What is stated; the framework's own strategy counts where no steps are stated either."""
    training, default = context.stated.training, defaults.save_strategy
    if training.save_strategy is not None or training.save_steps is not None or default is None:
        return training.save_strategy
    return ledger.assume("training.save_strategy", default)


def _eval_steps(context: Context, defaults: Defaults, ledger: Ledger) -> float | None:
    """Steps, or a share of the run; None where a strategy says otherwise."""
    training = context.stated.training
    default = defaults.eval_steps
    if training.eval_strategy in ("no", "epoch"):
        return None
    if training.eval_strategy == "steps":
        reason = message("eval_steps_of_logging", "as often as it logs")
        default = by_rule(500, reason, "transformers training_args.py logging_steps")
    return ledger.take("training.eval_steps", training.eval_steps, default) or None


def _save_steps(
    context: Context, strategy: str | None, defaults: Defaults, ledger: Ledger
) -> float | None:
    training = context.stated.training
    if strategy in ("no", "epoch", "best"):
        return None
    return ledger.take("training.save_steps", training.save_steps, defaults.save_steps) or None
