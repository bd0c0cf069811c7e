"""Contradictions in what was stated, found before anything is filled in, all of them at once."""

from __future__ import annotations

from typing import Final

from tuneplan.errors import NotSupported
from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.ledger import Ledger
from tuneplan.frameworks.settings import Settings
from tuneplan.language import message
from tuneplan.spec.recipe import Method

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16", "none")
ATTENTION: Final = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
LOSSES: Final = ("auto", "full", "chunked", "fused")
PADDINGS: Final = ("longest", "max_length", "grouped", "none")
CHECKPOINTING: Final = ("true", "false", "full", "none", "selective", "offload", "unsloth")
_QUANTIZED: Final = ("nf4", "fp4", "int8", "gptq")
_LATER_QUANTIZED: Final = ("awq",)
_BITS: Final = {"nf4": (4,), "fp4": (4,), "int8": (8,), "gptq": (2, 3, 4, 8)}


def check_stated(context: Context, head: Head, ledger: Ledger) -> None:
    """Write down every contradiction of the stated recipe.

    Raises:
        NotSupported: For fp8 compute, which has no formula yet, and for quantised models whose
            own code fails on quantised weights.
    """
    if head.method.quantized:
        _refuse_clamped_weights(context)
    _check_words(context, ledger)
    _check_quantization(context, head.method, ledger)
    _check_sections(context, head.method, ledger)
    _check_numbers(context, ledger)
    _check_chip(context, ledger)
    _check_dtypes(context, ledger)


def _check_words(context: Context, ledger: Ledger) -> None:
    training = context.stated.training
    if training.precision == "fp8" or training.dtype in ("float8", "fp8"):
        raise NotSupported(
            message(
                "fp8_not_supported",
                "fp8 training is part of a later release; use precision bf16",
            ),
            path="training.precision" if training.precision == "fp8" else "training.dtype",
            value="fp8",
        )
    for name, value, known in (
        ("dtype", training.dtype, DTYPES),
        ("precision", training.precision, PRECISIONS),
        ("attn_implementation", training.attn_implementation, ATTENTION),
        ("loss", training.loss, LOSSES),
        ("padding", training.padding, PADDINGS),
    ):
        if value is not None and value not in known:
            ledger.mistake(
                message("unknown_word", "{value!r} is not a {name}", value=value, name=name),
                f"training.{name}",
                value,
                near=known,
            )
    switch = training.gradient_checkpointing
    if isinstance(switch, str) and switch.lower() not in CHECKPOINTING:
        ledger.mistake(
            message("unknown_checkpointing", "{value!r} is not a way to checkpoint", value=switch),
            "training.gradient_checkpointing",
            switch,
            near=("true", "false", "selective", "offload"),
        )


def _refuse_clamped_weights(context: Context) -> None:
    """Gemma 3n clamps AltUp's coefficients while it trains, which integer weights do not allow.

    Source: transformers 5.24 ``modeling_gemma3n.py Gemma3nTextAltUp.predict``
    (``prediction_coefs.weight.data.clamp_``); unsloth's own loader keeps them unquantised.
    """
    model = context.architecture
    clamps = model.hf_config.get("altup_coef_clip", 120.0) is not None
    altup = any(weight.leaf == "prediction_coefs" for _, weight, _ in model.weights())
    if not (altup and clamps) or context.stated.framework == "unsloth":
        return
    raise NotSupported(
        message(
            "quantized_altup",
            "{model} cannot be trained on a quantised base: transformers clamps its AltUp "
            "coefficients in every training step (altup_coef_clip), which fails on quantised "
            "weights; use method lora",
            model=model.name,
        )
    )


def _check_quantization(context: Context, method: Method, ledger: Ledger) -> None:
    stated = context.stated.quantization
    given = [name for name in ("bits", "type", "double_quant") if getattr(stated, name) is not None]
    if given and not method.quantized:
        ledger.mistake(
            message(
                "quantization_without_qlora",
                "method {method} trains on an unquantised base, but quantization is given",
                method=method,
            ),
            "quantization",
            getattr(stated, given[0]),
            near=("qlora",),
            how_to_fix=message("use_qlora", "write method: qlora, or leave quantization out"),
        )
    kind = stated.type.lower() if stated.type is not None else None
    if kind is not None and kind not in _QUANTIZED:
        text = message("unknown_quantization", "{value!r} is not a quantisation", value=stated.type)
        if kind in _LATER_QUANTIZED:
            text = message(
                "later_quantization",
                "an {value} base has no formula yet, and is not traced",
                value=kind.upper(),
            )
        ledger.mistake(
            text,
            "quantization.type",
            stated.type,
            near=_QUANTIZED,
        )
        return
    if stated.bits is None or not method.quantized:
        return
    default = "gptq" if method is Method.GPTQ_LORA else ("int8" if stated.bits == 8 else "nf4")
    allowed = _BITS[kind or default]
    if stated.bits not in allowed:
        ledger.mistake(
            message(
                "impossible_bits",
                "{kind} does not store {bits} bits",
                kind=kind or default,
                bits=stated.bits,
            ),
            "quantization.bits",
            stated.bits,
            near=tuple(str(bits) for bits in allowed),
        )


def _check_sections(context: Context, method: Method, ledger: Ledger) -> None:
    adapter = context.stated.adapter
    names = ("r", "lora_alpha", "target_modules", "modules_to_save", "lora_dropout")
    given = [name for name in names if getattr(adapter, name)]
    if given and not method.uses_adapter:
        ledger.mistake(
            message(
                "adapter_without_lora",
                "method {method} has no adapter, but adapter.{name} is given",
                method=method,
                name=given[0],
            ),
            f"adapter.{given[0]}",
            getattr(adapter, given[0]),
            near=("lora", "qlora"),
            how_to_fix=message("use_lora", "write method: lora, or leave the adapter out"),
        )
    if context.stated.training.trained_layers is not None and method is not Method.FREEZE:
        ledger.mistake(
            message("layers_without_freeze", "trained_layers belongs to method: freeze"),
            "training.trained_layers",
            context.stated.training.trained_layers,
            near=("freeze",),
        )
    if adapter.use_dora and method in (Method.QLORA, Method.GPTQ_LORA):
        ledger.mistake(
            message("dora_on_quantised", "use_dora on a quantised base has no formula yet"),
            "adapter.use_dora",
            value=True,
            near=("dora",),
        )


def _check_numbers(context: Context, ledger: Ledger) -> None:
    training, adapter = context.stated.training, context.stated.adapter
    for path, value in (
        ("training.max_length", training.max_length),
        ("training.per_device_train_batch_size", training.per_device_train_batch_size),
        ("training.per_device_eval_batch_size", training.per_device_eval_batch_size),
        ("training.gradient_accumulation_steps", training.gradient_accumulation_steps),
        ("training.global_batch_size", training.global_batch_size),
        ("training.trained_layers", training.trained_layers),
        ("adapter.r", adapter.r),
    ):
        if isinstance(value, int) and value < 1:
            ledger.mistake(message("not_positive", "it must be at least 1"), path, value)
    layers = context.architecture.num_layers
    if training.trained_layers is not None and training.trained_layers > layers:
        ledger.mistake(
            message("too_many_layers", "the model has {layers} layers", layers=layers),
            "training.trained_layers",
            training.trained_layers,
            near=(str(layers),),
        )
    dropout = adapter.lora_dropout
    if dropout is not None and not 0 <= dropout < 1:
        ledger.mistake(
            message("dropout_range", "a dropout lies from 0 up to 1"),
            "adapter.lora_dropout",
            dropout,
        )


def _check_chip(context: Context, ledger: Ledger) -> None:
    training = context.stated.training
    chip = context.accelerator
    if chip is None:
        return
    if training.attn_implementation == "flash_attention_2" and not context.has_flash_attention_2:
        ledger.mistake(
            message(
                "no_flash_attention_2",
                "FlashAttention-2 needs compute capability 8 or more; {chip} has less",
                chip=chip.name,
            ),
            "training.attn_implementation",
            training.attn_implementation,
            near=("sdpa", "eager"),
        )
    hopper = chip.compute_capability is not None and int(chip.compute_capability) == 9
    if training.attn_implementation == "flash_attention_3" and not hopper:
        ledger.mistake(
            message(
                "no_flash_attention_3",
                "FlashAttention-3 runs on Hopper chips only, not on {chip}",
                chip=chip.name,
            ),
            "training.attn_implementation",
            training.attn_implementation,
            near=("flash_attention_2", "sdpa"),
        )
    if not context.has_bf16 and "bf16" in (training.precision, training.dtype):
        _warn_bf16(context, ledger)


def _warn_bf16(context: Context, ledger: Ledger) -> None:
    chip = context.accelerator
    ledger.notice(
        message(
            "bf16_emulated",
            "{chip} has no bf16 arithmetic: PyTorch emulates it slowly; precision fp16 is native",
            chip=chip.name if chip is not None else "",
        ),
        "training.precision",
    )


def _check_dtypes(context: Context, ledger: Ledger) -> None:
    training = context.stated.training
    half_weights = training.dtype in ("bfloat16", "float16")
    if half_weights and training.precision in ("fp32", "tf32"):
        ledger.mistake(
            message(
                "fp32_on_half",
                "precision {precision} needs float32 weights, but dtype is {dtype}",
                precision=training.precision,
                dtype=training.dtype,
            ),
            "training.precision",
            training.precision,
            near=("none", "bf16"),
            how_to_fix=message("fp32_on_half_fix", "write precision: none, or dtype: float32"),
        )
    if training.dtype == "float16" and training.precision == "bf16":
        ledger.mistake(
            message("bf16_on_fp16", "bf16 compute over float16 weights mixes two half formats"),
            "training.precision",
            training.precision,
            near=("fp16",),
        )


def check_packing(framework: Framework, settings: Settings, ledger: Ledger) -> None:
    """Refuse packing where the framework insists on a flash kernel and another one runs."""
    if not settings.packing or not framework.packing_needs_flash:
        return
    if not settings.attn_implementation.startswith("flash"):
        ledger.mistake(
            message(
                "packing_needs_flash",
                "{framework} packs samples only with flash attention",
                framework=framework.name,
            ),
            "training.packing",
            value=True,
            near=("flash_attention_2",),
            how_to_fix=message(
                "packing_fix", "set attn_implementation to flash_attention_2, or packing to false"
            ),
        )
