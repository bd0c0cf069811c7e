"""Who holds what in which dtype: weights, adapters, the residual stream, fp32 copies."""

from __future__ import annotations

from tuneplan.frameworks.context import Context
from tuneplan.frameworks.ledger import Ledger, by_rule, switched_on
from tuneplan.frameworks.settings import Settings
from tuneplan.frameworks.stack import FsdpUpcast, KbitPreparation, Stack
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.recipe import DType, Method


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightDTypes:
    """dtypes of everything that travels between layers or lies in memory.

    Attributes:
        masters: fp32 copies are kept beside the trained weights.
        fsdp_upcast: Whether sharding turned weights into fp32.
    """

    compute: DType
    autocast: bool
    frozen: DType
    outer: DType
    norm: DType
    trainable: DType
    adapter: DType
    hidden: DType
    masters: bool
    fsdp_upcast: bool
    hidden_reason: Message


def resolve_dtypes(
    context: Context, settings: Settings, stack: Stack, kbit: KbitPreparation, ledger: Ledger
) -> WeightDTypes:
    """Who holds what in which dtype (``docs``: rules 1 to 8 of what a QLoRA job holds).

    DeepSpeed's bf16 and fp16 engines cast the whole module to half and keep fp32 masters;
    accelerate's FSDP turns what is trained (or everything, by version) into fp32 under mixed
    precision, while the wrapped units compute in half; autocast alone changes no weight.
    """
    half = settings.half
    by_engine = settings.head.deepspeed or stack.half_engine
    engine_half = half if by_engine else None
    fp32 = settings.precision in ("fp32", "tf32")
    load = engine_half or settings.dtype
    compute = half or (DType.FLOAT32 if fp32 else load)
    upcast = _fsdp_upcast(settings, stack, ledger)

    frozen = DType.FLOAT32 if upcast is FsdpUpcast.ALL else load
    trainable = engine_half or _trainable(settings, stack, load, ledger)
    adapter = engine_half or stack.adapter_dtype.value
    if upcast is not FsdpUpcast.NONE:
        trainable, adapter = DType.FLOAT32, DType.FLOAT32
    trained_all = settings.method is Method.FULL
    kept = stack.fp32_outer and half is not None and not by_engine
    outer = DType.FLOAT32 if kept else _outer_dtype(kbit, frozen, half)
    prepared = kbit is not KbitPreparation.NONE or kept
    norm = DType.FLOAT32 if prepared else (trainable if trained_all else frozen)
    autocast = half is not None and engine_half is None and stack.autocast
    hidden, reason = _hidden_dtype(
        settings,
        half=half,
        prepared=prepared,
        layer_norms=autocast and _has_layer_norms(context),
        embedding=trainable if trained_all else outer,
        by_engine=by_engine,
    )
    return WeightDTypes(
        compute=compute,
        autocast=autocast,
        frozen=frozen,
        outer=outer,
        norm=norm,
        trainable=trainable,
        adapter=adapter,
        hidden=hidden,
        masters=_masters(
            settings, engine_half=engine_half, context=context, stack=stack, ledger=ledger
        ),
        fsdp_upcast=upcast is not FsdpUpcast.NONE,
        hidden_reason=reason,
    )


def _fsdp_upcast(settings: Settings, stack: Stack, ledger: Ledger) -> FsdpUpcast:
    if not settings.head.fsdp or settings.half is None or stack.fsdp_upcast is None:
        return FsdpUpcast.NONE
    return ledger.assume("behaviour.fsdp_upcast", stack.fsdp_upcast)


def _trainable(settings: Settings, stack: Stack, load: DType, ledger: Ledger) -> DType:
    if settings.method.uses_adapter and not (settings.adapter and settings.adapter.modules_to_save):
        return load
    if stack.trains_in_fp32 is not None and not settings.method.uses_adapter:
        in_fp32 = ledger.assume("behaviour.trained_weights_in_fp32", stack.trains_in_fp32)
        return DType.FLOAT32 if in_fp32 else load
    return load


def _outer_dtype(kbit: KbitPreparation, frozen: DType, half: DType | None) -> DType:
    if kbit is KbitPreparation.ALL:
        return DType.FLOAT32
    if kbit is KbitPreparation.ALL_THEN_BF16:
        return DType.BFLOAT16 if half is DType.BFLOAT16 else DType.FLOAT32
    return frozen


def _has_layer_norms(context: Context) -> bool:
    """Whether the layers normalise by LayerNorm (which autocast runs in fp32)."""
    return any(weight.bias for group in context.architecture.groups for weight in group.layer.norms)


def _hidden_dtype(
    settings: Settings,
    *,
    half: DType | None,
    prepared: bool,
    layer_norms: bool,
    embedding: DType,
    by_engine: bool,
) -> tuple[DType, Message]:
    if layer_norms and settings.method is Method.QLORA:
        return DType.FLOAT32, message(
            "hidden_layer_norm",
            "under autocast LayerNorm returns fp32, and bitsandbytes' linears return what they got",
        )
    if half is not None and by_engine:
        return half, message("hidden_engine", "the engine computes everything in {d}", d=half)
    if half is not None and settings.head.fsdp:
        return half, message("hidden_fsdp", "FSDP gathers the layers in {d}", d=half)
    if prepared:
        return DType.FLOAT32, message(
            "hidden_prepared", "an fp32 norm weight times a half input is fp32, and stays so"
        )
    return embedding, message(
        "hidden_embedding",
        "the residual stream keeps the dtype of the embedding ({d})",
        d=embedding,
    )


def _masters(
    settings: Settings,
    *,
    engine_half: DType | None,
    context: Context,
    stack: Stack,
    ledger: Ledger,
) -> bool:
    """Whether fp32 copies lie beside the trained weights."""
    stated = settings.master_weights
    if context.measured.half_masters:
        return False
    if stated is not None and not (engine_half is not None and stated is False):
        return stated and (engine_half is not None or settings.dtype is not DType.FLOAT32)
    if stated is False and stack.half_engine and not settings.head.deepspeed:
        ledger.notice(
            message(
                "masters_needed_by_framework",
                "this framework always keeps fp32 master weights; they are counted",
            ),
            "training.master_weights",
        )
        return True
    if stack.half_engine and not settings.head.deepspeed:
        reason = message("masters_own_engine", "its optimizer updates fp32 copies")
        source = "Megatron-LM core/optimizer/distrib_optimizer.py"
        return ledger.assume("training.master_weights", switched_on(reason, source))
    if stated is False:
        option = context.software.fact("deepspeed", "half_master_option")
        if option.value != "available":
            ledger.mistake(
                message("masters_needed", "this DeepSpeed always keeps fp32 master weights"),
                "training.master_weights",
                value=False,
                how_to_fix=message("newer_deepspeed", "DeepSpeed 0.18.3 or newer can leave them"),
            )
        return False
    by_engine = engine_half is not None
    fact = context.software.fact("deepspeed", "master_weights")
    reason = (
        message("masters_engine", "DeepSpeed's 16-bit engines update fp32 copies")
        if by_engine
        else message("masters_none", "the optimizer updates the weights themselves")
    )
    source = fact.citation if by_engine else "torch/optim/adamw.py"
    return ledger.assume("training.master_weights", by_rule(by_engine, reason, source))
