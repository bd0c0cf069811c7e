"""Settings and a framework's behaviour put together: the resolved ``TrainingRecipe``."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.estimation.adapters import split_targets
from tuneplan.frameworks.attention import AttentionChoice, choose_kernel
from tuneplan.frameworks.context import Context
from tuneplan.frameworks.ledger import Ledger, by_rule, by_table, switched_on
from tuneplan.frameworks.optimizers import implementation_of, make_optimizer
from tuneplan.frameworks.quantized_base import quantization_of
from tuneplan.frameworks.settings import Settings
from tuneplan.frameworks.stack import FsdpUpcast, KbitPreparation, Stack
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import (
    Adapter,
    AttentionKernel,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    Method,
    Objective,
    TrainingRecipe,
)

_PAIRS = (Objective.DPO, Objective.ORPO, Objective.SIMPO, Objective.RM)
_WITH_REFERENCE = (Objective.DPO, Objective.KTO)


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


def build_recipe(
    context: Context, settings: Settings, stack: Stack, ledger: Ledger
) -> TrainingRecipe:
    """The whole recipe of one rank, with an assumption for each behaviour nobody stated."""
    kbit = _kbit(context, settings, stack, ledger)
    dtypes = resolve_dtypes(context, settings, stack, kbit, ledger)
    ledger.assume(
        "behaviour.hidden_dtype",
        by_rule(
            dtypes.hidden,
            dtypes.hidden_reason,
            "transformers models/llama LlamaRMSNorm and the residual additions",
        ),
    )
    attention = _attention(context, settings, stack, dtypes, ledger)
    kernel = stack.attention_kernel or attention.kernel
    adapter = _adapter(context, settings, stack, dtypes, ledger)
    own = stack.optimizer_step if settings.optim == "adamw_torch" else None
    implementation = ledger.assume(
        "behaviour.optimizer_step", own or implementation_of(settings.optim, context.software)
    )
    optimizer = make_optimizer(
        settings.optim,
        implementation=implementation,
        weight_dtype=dtypes.adapter if adapter is not None else dtypes.trainable,
        master_weights=dtypes.masters,
        in_backward=_in_backward(context, stack),
    )
    pairs = settings.objective in _PAIRS
    full = not settings.method.uses_adapter
    return TrainingRecipe(
        framework=context.software.framework,
        framework_version=context.software.version,
        objective=settings.objective,
        method=settings.method,
        adapter=adapter,
        quantization=quantization_of(context, settings, stack, ledger),
        frozen_dtype=dtypes.frozen,
        outer_dtype=dtypes.outer,
        trainable_dtype=dtypes.trainable,
        compute_dtype=dtypes.compute,
        autocast=dtypes.autocast,
        hidden_dtype=dtypes.hidden,
        norm_dtype=dtypes.norm,
        optimizer=optimizer,
        gradient_checkpointing=_recomputation(settings, stack),
        recomputes_attention=_recomputes_attention(settings, stack),
        gradient_dtype=stack.gradient_dtype,
        gradient_buffer=stack.gradient_buffer,
        use_reentrant=settings.use_reentrant,
        attention=kernel,
        loss=_loss(settings, stack, ledger),
        kernels=_kernels(settings, stack, ledger),
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        max_length=settings.max_length,
        packing=settings.packing,
        fp32_norm_math=stack.fp32_norm_math,
        expand_key_value=attention.expand_key_value,
        attention_mask=attention.mask,
        trained_layers=settings.trained_layers,
        reference_model=full and settings.objective in _WITH_REFERENCE,
        sequences_per_sample=2 if pairs else 1,
        max_grad_norm=settings.max_grad_norm,
        keeps_outputs=stack.keeps_outputs,
        outputs_die_with_step=stack.outputs_die_with_step,
        upcast_under_fsdp=dtypes.fsdp_upcast,
        gradients_unsharded_while_accumulating=settings.head.fsdp
        and settings.gradient_accumulation_steps > 1
        and stack.accumulates_unsharded,
        frozen_gradients=stack.frozen_gradients,
        unties_head=stack.unties_head and context.architecture.head is None,
        keeps_key_values=stack.keeps_key_values,
        keeps_graph=stack.keeps_graph,
        longest_first=stack.longest_first,
        empties_cache_steps=stack.empties_cache_steps,
        trains_vision=stack.trains_vision and context.architecture.vision is not None,
        tf32=settings.precision == "tf32",
    )


def _in_backward(context: Context, stack: Stack) -> bool:
    stated = context.stated.training.optimizer_in_backward
    if stated is not None:
        return stated
    return stack.optimizer_in_backward or context.measured.optimizer_in_backward


def _recomputes_attention(settings: Settings, stack: Stack) -> bool:
    return stack.recomputes_attention and (
        settings.gradient_checkpointing is Checkpointing.SELECTIVE
    )


def _recomputation(settings: Settings, stack: Stack) -> Checkpointing:
    """Where selective means attention alone (Megatron), nothing else is recomputed."""
    if _recomputes_attention(settings, stack):
        return Checkpointing.NONE
    return settings.gradient_checkpointing


def _kbit(context: Context, settings: Settings, stack: Stack, ledger: Ledger) -> KbitPreparation:
    """What k-bit preparation casts; nothing where FSDP or ZeRO-3 shards the quantised base.

    Source: trl models/utils.py prepare_peft_model skips it when parameters are sharded; measured
    rows with and without it are equal there.
    """
    measured = context.measured.kbit_prep
    if not settings.method.quantized or measured is False or settings.method is Method.GPTQ_LORA:
        return KbitPreparation.NONE
    if settings.head.fsdp or settings.strategy is Strategy.ZERO3:
        reason = message("kbit_sharded", "preparation is skipped where the base is sharded")
        source = "trl models/utils.py prepare_peft_model, axolotl loaders/model.py"
        return ledger.assume(
            "behaviour.kbit_preparation", by_rule(KbitPreparation.NONE, reason, source)
        )
    if measured is True:
        return KbitPreparation.ALL if stack.kbit.value is KbitPreparation.NONE else stack.kbit.value
    return ledger.assume("behaviour.kbit_preparation", stack.kbit)


def _attention(
    context: Context, settings: Settings, stack: Stack, dtypes: WeightDTypes, ledger: Ledger
) -> AttentionChoice:
    sharded_half = settings.head.fsdp and settings.half is not None
    at_kernel = dtypes.compute if dtypes.autocast or sharded_half else dtypes.hidden
    padding_free = context.measured.padding_free or settings.run.padding == "none"
    padding_free = padding_free and not settings.packing
    choice = choose_kernel(
        context,
        implementation=settings.attn_implementation,
        dtype=at_kernel,
        padded=stack.masks_padding and not padding_free and _pads(context, settings),
        packed_documents=stack.packs_documents and (settings.packing or padding_free),
        expand_always=stack.expand_key_value,
    )
    ledger.assume(
        "behaviour.attention_kernel",
        by_rule(
            choice.kernel,
            choice.reason,
            choice.source,
            "--set training.attn_implementation=flash_attention_2",
        ),
    )
    if choice.kernel is AttentionKernel.SDPA_MATH:
        ledger.notice(choice.reason, "training.attn_implementation")
    return choice


def _pads(context: Context, settings: Settings) -> bool:
    """Whether some row of a batch may be shorter than the others."""
    if settings.packing or context.measured.fixed_length:
        return False
    return settings.per_device_train_batch_size > 1 or settings.run.padding == "max_length"


def _casts_gptq_input(context: Context, settings: Settings) -> bool:
    """Whether PEFT casts the input of an adapter beside a GPTQ linear also under autocast."""
    if settings.method is not Method.GPTQ_LORA:
        return False
    return context.software.fact("peft", "gptq_input").value == "cast"


def _adapter(
    context: Context, settings: Settings, stack: Stack, dtypes: WeightDTypes, ledger: Ledger
) -> Adapter | None:
    wanted = settings.adapter
    if wanted is None:
        return None
    if dtypes.adapter is stack.adapter_dtype.value:
        ledger.assume("behaviour.adapter_dtype", stack.adapter_dtype)
    else:
        reason = message("adapter_sharded_dtype", "the sharding engine recasts what is trained")
        ledger.assume(
            "behaviour.adapter_dtype",
            by_rule(dtypes.adapter, reason, "accelerate utils/fsdp_utils.py, deepspeed engine.py"),
        )
    kept = (
        settings.method.quantized and dtypes.autocast and not _casts_gptq_input(context, settings)
    )
    cast = dtypes.adapter is not dtypes.hidden and not kept
    if stack.adapter_cast is not None:
        cast = stack.adapter_cast
    by_peft = stack.kernels.model_code == Kernels().model_code
    adapter = Adapter(
        r=wanted.r,
        lora_alpha=wanted.lora_alpha,
        target_modules=wanted.target_modules,
        modules_to_save=wanted.modules_to_save,
        lora_dropout=wanted.lora_dropout,
        use_rslora=wanted.use_rslora,
        use_dora=wanted.use_dora,
        dtype=dtypes.adapter,
        cast_input=cast,
        sharded=stack.adapter_sharded,
        query_key_value=stack.query_key_value,
        expert_targets=wanted.expert_targets if by_peft else (),
    )
    plain, stacked = split_targets(context.architecture, adapter)
    folds = True
    if stacked:
        fact = context.software.fact("peft", "expert_update")
        folds = ledger.assume("behaviour.folds_update", by_table(fact, fact.value == "folded"))
    targets = tuple(stacked.items())
    return replace(adapter, target_modules=plain, expert_targets=targets, folds_update=folds)


def _loss(settings: Settings, stack: Stack, ledger: Ledger) -> Loss:
    loss = stack.loss.value
    flags = ("upcast_logits", "shifted_copy", "output_fp32_copies", "keeps_logits", "keeps_softmax")
    described = (loss.path.value, *(name for name in flags if getattr(loss, name)))
    how = "" if settings.loss_stated else "--set training.loss=fused"
    ledger.assume("behaviour.loss", by_rule(described, stack.loss.reason, stack.loss.source, how))
    return loss


def _kernels(settings: Settings, stack: Stack, ledger: Ledger) -> Kernels:
    kernels = replace(stack.kernels, compiled=settings.torch_compile)
    if settings.use_liger_kernel:
        kernels = replace(kernels, fused_norm=True, fused_rope=True, fused_mlp=True)
    elif stack.kernels_source:
        fused = [
            name
            for name in ("fused_norm", "fused_rope", "fused_mlp", "fused_adapter")
            if getattr(kernels, name)
        ]
        reason = message("fused_kernels", "the framework replaces these parts by fused kernels")
        ledger.assume("behaviour.kernels", by_rule(tuple(fused), reason, stack.kernels_source))
    return kernels
