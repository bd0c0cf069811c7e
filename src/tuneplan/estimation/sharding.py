"""What sharding adds on one rank: gathered units, buffers, retained outputs.

FSDP1 (checked against fully sharded A100 runs to 0.4 %, ``docs/concepts/memory.md``): the root unit
(embeddings, final norm, head) stays gathered from the first forward to the end of backward; one
layer unit at a time, two while prefetching. ZeRO's buffers follow the DeepSpeed configuration.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.estimation.persistent import Persistent, outer_weights, quantized_bytes
from tuneplan.estimation.roles import Place, role_of
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, DType, TrainingRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Bytes on one rank beyond its shards.

    Attributes:
        always_bytes: From the first forward to the end of backward.
        unit_bytes: The gathered layer in the forward; ``unit_backward_bytes`` in the backward.
        lingering_bytes: The last layer's gathered buffer while head and loss run: FSDP2 lets go of
            it when the next unit has been gathered, in the backward (PyTorch 2.13
            ``fsdp/_fully_shard/_fsdp_param_group.py wait_for_unshard``, ``all_gather_state``).
        buffer_bytes: Reduce and gather buckets.
        step_bytes: On top in the optimizer step.
        gradient_share: Share of a layer's gradients that stays once its backward is over.
        retains_recomputed: FSDP1 with reentrant checkpointing around frozen units keeps recomputed
            outputs and checkpoint inputs until backward ends (its reshard hooks for units without
            gradients hold their inputs: PyTorch ``fsdp/_runtime_utils.py``
            ``_register_post_backward_reshard_only_hook``).
        prefetched_bytes: Part of the unit bytes that only exists while another layer follows.
        root_gradient_bytes: The root unit's gradients are whole until its reduction at the very
            end, which needs them once more in one piece.
        frozen_gradient_bytes: Gradients of frozen weights that share FSDP1 flat parameters with
            trained ones (``use_orig_params``: a flat parameter has one gradient); of one layer,
            ``frozen_unit_gradient_bytes``. PyTorch ``FullyShardedDataParallel``, note on
            ``use_orig_params``.
    """

    always_bytes: float = 0.0
    unit_bytes: float = 0.0
    unit_backward_bytes: float = 0.0
    lingering_bytes: float = 0.0
    buffer_bytes: float = 0.0
    step_bytes: float = 0.0
    gradient_share: float = 1.0
    prefetched_bytes: float = 0.0
    root_gradient_bytes: float = 0.0
    frozen_gradient_bytes: float = 0.0
    frozen_unit_gradient_bytes: float = 0.0
    retains_recomputed: bool = False


def seen_by_layers(recipe: TrainingRecipe, parallelism: Parallelism) -> TrainingRecipe:
    """The recipe as a layer sees it: fused where compiled, gathered in the compute dtype.

    TorchInductor makes one kernel of a norm, of rotary positions and of a gated activation, which
    keep their inputs alone, as the hand-written fused kernels do.

    FSDP's mixed precision casts shards before it gathers them, so autocast never meets an fp32
    weight (accelerate ``utils/fsdp_utils.py``; PyTorch ``_flat_param.py``). PEFT casts an adapter's
    input before the adapter's own unit is gathered, hence to the dtype of the fp32 shard
    (``use_orig_params``, accelerate's default); the unit then casts it back.
    """
    if recipe.kernels.compiled:
        kernels = replace(recipe.kernels, fused_norm=True, fused_rope=True, fused_mlp=True)
        recipe = replace(recipe, kernels=kernels)
    if not parallelism.shards_parameters or not recipe.upcast_under_fsdp:
        return recipe
    adapter = recipe.adapter and replace(
        recipe.adapter,
        dtype=recipe.compute_dtype,
        fp32_input=recipe.adapter.dtype is DType.FLOAT32,
    )
    return replace(
        recipe,
        trainable_dtype=recipe.compute_dtype,
        adapter=adapter,
        norm_dtype=recipe.compute_dtype if recipe.adapter is None else recipe.norm_dtype,
    )


def gathered(
    model: ModelArchitecture, recipe: TrainingRecipe, parallelism: Parallelism, held: Persistent
) -> Gathered:
    """What one rank holds beyond its shards."""
    strategy = parallelism.strategy
    if strategy in (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3):
        return _zero(model, recipe, parallelism, held)
    if not parallelism.shards_parameters:
        return Gathered()
    compute = recipe.compute_dtype.num_bytes
    outer = held.outer_bytes if not recipe.upcast_under_fsdp else (held.outer_parameters * compute)
    unit, trained = largest_unit(model, recipe)
    shards = parallelism.shards
    master = recipe.trainable_dtype.num_bytes
    scattered = trained * master / shards
    half_shard = trained * compute / shards if recipe.upcast_under_fsdp else 0.0
    around = (
        recipe.gradient_checkpointing is not Checkpointing.NONE
        and recipe.use_reentrant
        and parallelism.activation_gather
        and strategy is Strategy.FSDP
        and recipe.method.uses_adapter
    )
    gradient = (recipe.gradient_dtype or recipe.trainable_dtype).num_bytes
    whole = recipe.gradients_unsharded_while_accumulating and (
        recipe.gradient_accumulation_steps > 1
    )
    share = 1.0 if whole else 1.0 / shards
    mixed = recipe.frozen_gradients and strategy is Strategy.FSDP
    prefetched = 0.0 if _gathers_alone(recipe, parallelism) else unit
    frozen = unit if mixed else 0.0
    if parallelism.keeps_gathered:
        outer, unit, prefetched = outer + _all_layers(model, recipe), 0.0, 0.0
    return Gathered(
        always_bytes=float(outer),
        unit_bytes=2.0 * unit,
        unit_backward_bytes=unit + prefetched + half_shard + scattered + frozen,
        lingering_bytes=float(unit) if strategy is Strategy.FSDP2 else 0.0,
        frozen_gradient_bytes=frozen * model.num_layers,
        frozen_unit_gradient_bytes=frozen,
        prefetched_bytes=prefetched,
        root_gradient_bytes=_root_gradient_bytes(model, recipe),
        gradient_share=share * gradient / (compute if recipe.upcast_under_fsdp else gradient),
        retains_recomputed=around,
    )


def _gathers_alone(recipe: TrainingRecipe, parallelism: Parallelism) -> bool:
    """Whether the backward gathers one layer at a time.

    Reentrant checkpointing around FSDP units runs their first forward without a graph, so no unit
    expects a backward until it is recomputed, and FSDP1 prefetches only units that do (PyTorch
    ``fsdp/_runtime_utils.py _get_handle_to_prefetch``, ``_needs_pre_backward_unshard``).
    """
    around = (
        recipe.gradient_checkpointing is not Checkpointing.NONE
        and recipe.use_reentrant
        and parallelism.activation_gather
    )
    return around and parallelism.strategy in (Strategy.FSDP, Strategy.HSDP)


def _root_gradient_bytes(model: ModelArchitecture, recipe: TrainingRecipe) -> float:
    """Gradients of trained embeddings and head, whole, as the root unit reduces them."""
    width = (recipe.gradient_dtype or recipe.compute_dtype).num_bytes
    total = 0.0
    for weight, place in outer_weights(model, recipe):
        role = role_of(weight, recipe, place)
        total += weight.num_parameters * width * (role.trained or role.copied)
    return total


def largest_unit(model: ModelArchitecture, recipe: TrainingRecipe) -> tuple[float, float]:
    """Gathered bytes of the largest layer, and how many of its parameters are trained."""
    return max((_unit(group.layer, recipe) for group in model.groups), default=(0.0, 0.0))


def _all_layers(model: ModelArchitecture, recipe: TrainingRecipe) -> float:
    """Gathered bytes of all layers together."""
    return sum(group.count * _unit(group.layer, recipe)[0] for group in model.groups)


def _unit(layer: Layer, recipe: TrainingRecipe) -> tuple[float, float]:
    size = trained = 0.0
    for weight in layer.weights():
        role = role_of(weight, recipe, Place.LAYER)
        if role.quantized and recipe.quantization is not None:
            size += quantized_bytes(weight.num_weight_elements, recipe.quantization)[0]
            continue
        width = role.dtype.num_bytes
        if recipe.upcast_under_fsdp and role.trained:
            width = recipe.compute_dtype.num_bytes
        size += weight.num_parameters * width
        trained += weight.num_parameters if role.trained else 0
    return size, trained


def _zero(
    model: ModelArchitecture, recipe: TrainingRecipe, parallelism: Parallelism, held: Persistent
) -> Gathered:
    """DeepSpeed: flat reduce bucket (twice when overlapping), gather bucket, live parameters.

    Source: DeepSpeed 0.19 ``runtime/zero/stage_1_and_2.py`` (ipg buffers), ``stage3.py``
    (``max_live_parameters``, prefetch bucket); the fp32 gradient partition exists during the step.
    """
    if parallelism.reduces_in_place:
        return Gathered()
    width = recipe.compute_dtype.num_bytes
    trained = held.num_trained
    bucket = min(parallelism.reduce_bucket_elements, trained) * width
    copies = 2.0 if parallelism.overlap_communication else 1.0
    shards = parallelism.shards
    step = 4.0 * trained / shards if recipe.optimizer.master_weights else 0.0
    if parallelism.strategy is Strategy.ZERO3:
        unit, _ = largest_unit(model, recipe)
        outer = held.outer_parameters * width
        live = min(parallelism.max_live_parameters * width, 3.0 * unit + outer)
        return Gathered(
            always_bytes=float(min(outer, live)),
            unit_bytes=2.0 * unit,
            unit_backward_bytes=2.0 * unit,
            prefetched_bytes=unit,
            buffer_bytes=copies * bucket,
            step_bytes=step,
            gradient_share=1.0 / shards,
        )
    gather = min(parallelism.allgather_bucket_elements, trained) * width
    return Gathered(
        buffer_bytes=copies * bucket,
        step_bytes=step + gather,
        gradient_share=1.0 / shards if parallelism.shards_gradients else 1.0,
    )
