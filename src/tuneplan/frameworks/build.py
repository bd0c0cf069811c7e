"""Settings and a framework's behaviour put together: the resolved ``TrainingRecipe``."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.estimation.adapters import split_targets
from tuneplan.frameworks.attention import AttentionChoice, choose_kernel
from tuneplan.frameworks.context import Context
from tuneplan.frameworks.dtypes import WeightDTypes, resolve_dtypes
from tuneplan.frameworks.ledger import Ledger, by_rule, by_table
from tuneplan.frameworks.optimizers import implementation_of, make_optimizer
from tuneplan.frameworks.quantized_base import quantization_of
from tuneplan.frameworks.settings import Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import (
    Adapter,
    AttentionKernel,
    Checkpointing,
    Kernels,
    Loss,
    Method,
    Objective,
    TrainingRecipe,
)

_PAIRS = (Objective.DPO, Objective.ORPO, Objective.SIMPO, Objective.RM)
_WITH_REFERENCE = (Objective.DPO, Objective.KTO)


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
        kernels=_kernels(context, settings, stack, ledger),
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        max_length=settings.max_length,
        truncates=settings.truncates,
        checkpoint_content=stack.checkpoint_content,
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
    # Under autocast hidden states may be fp32, and what a product made (the inputs of the output
    # and the down projection) is half: PEFT casts what differs (peft 0.21.2 _cast_input_dtype).
    cast = (dtypes.adapter is not dtypes.hidden or dtypes.autocast) and not kept
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


def _kernels(context: Context, settings: Settings, stack: Stack, ledger: Ledger) -> Kernels:
    kernels = replace(
        stack.kernels,
        compiled=settings.torch_compile,
        blocking_launches=context.measured.blocking_launches,
        host_launch_s=float(context.software.fact("torch", "host_launch_us").value) * 1e-6,
    )
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
