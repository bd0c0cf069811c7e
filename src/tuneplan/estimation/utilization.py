"""Model operations per token, and what share of the chip's peak they are (MFU, HFU)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuneplan.estimation.operations import Operation, OperationKind, Stage
from tuneplan.estimation.roles import Place, role_of, with_expert_targets
from tuneplan.estimation.walking import parts_of
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, MixtureOfExperts
from tuneplan.spec.recipe import Method, TrainingRecipe
from tuneplan.spec.weights import Weight, WeightKind

_PRODUCTS = (
    OperationKind.MATMUL,
    OperationKind.GROUPED_MATMUL,
    OperationKind.ADAPTER,
    OperationKind.ATTENTION,
)


def model_flop_per_token(
    model: ModelArchitecture, recipe: TrainingRecipe, *, sequence_length: float
) -> float:
    """Operations that training one token needs, nothing computed twice.

    6 for each active matmul parameter that trains, 4 for each frozen one that a gradient goes
    through (no weight gradient), 2 for those before the first trained layer, where no backward
    goes; and causal attention: 12 x (d_k + d_v) / 2 x heads x visible keys on average, a third of
    it forward, the rest backward. The head counts once whether tied or not; embeddings, being
    looked up, do not. Adapters count as trained parameters. Vision towers are left out (no text
    token visits them).
    """
    recipe = with_expert_targets(model, recipe)
    total, reaches_layers = 0.0, False
    for group in model.groups:
        active = active_matmul_parameters(group.layer)
        adapters = _adapter_parameters(group.layer, recipe)
        mixer = group.layer.mixer
        attention = _attention_flop(mixer, sequence_length) if isinstance(mixer, Attention) else 0.0
        for part, place, goes_backward, _ in parts_of(model, recipe, group):
            reaches_layers |= goes_backward
            if not goes_backward:
                total += part.count * (2.0 * active + attention / 3.0)
                continue
            trains = recipe.method is Method.FULL or place is Place.TRAINED_LAYER
            each = 6.0 if trains else 4.0
            total += part.count * (each * active + 6.0 * adapters + attention)
    head = model.head or model.token_embedding
    saved = recipe.adapter is not None and head.leaf in recipe.adapter.modules_to_save
    head_trains = recipe.method is Method.FULL or saved
    return total + head.num_weight_elements * 2.0 * (1 + reaches_layers + head_trains)


def active_matmul_parameters(layer: Layer) -> float:
    """Elements of the layer's matrices that one token is multiplied with."""
    total = 0.0
    feed_forward = layer.feed_forward
    for weight in layer.weights():
        if weight.kind in (WeightKind.LINEAR, WeightKind.ROUTER):
            total += weight.num_weight_elements
        elif weight.kind is WeightKind.EXPERTS and isinstance(feed_forward, MixtureOfExperts):
            share = feed_forward.num_experts_per_tok / feed_forward.num_experts
            total += weight.num_weight_elements * share
    return total


def recompute_flop(operations_per_micro_batch: Sequence[Operation]) -> float:
    """Operations of products and attention that are executed again, per micro-batch."""
    return sum(
        float(np.asarray(operation.flops)) * operation.count
        for operation in operations_per_micro_batch
        if operation.stage is Stage.RECOMPUTE and operation.kind in _PRODUCTS
    )


def _adapter_parameters(layer: Layer, recipe: TrainingRecipe) -> float:
    """Adapter elements one token is multiplied with (experts: those it visits)."""
    if recipe.adapter is None:
        return 0.0
    total = 0.0
    for weight in layer.weights():
        role = role_of(weight, recipe, Place.LAYER)
        if role.adapted:
            low_rank = role.adapter_parameters(weight, recipe.adapter)[:2]
            total += sum(low_rank) * _visited(weight, layer)
    return total


def _visited(weight: Weight, layer: Layer) -> float:
    """The share of the weight's matrices that one token visits."""
    if weight.kind is WeightKind.EXPERTS and isinstance(layer.feed_forward, MixtureOfExperts):
        return layer.feed_forward.num_experts_per_tok / layer.feed_forward.num_experts
    return 1.0


def _attention_flop(attention: Attention, length: float) -> float:
    """Per token, forward and backward (twice the forward), causal and windowed."""
    window = min(length, float(attention.window)) if attention.window else length
    keys = (window * length - window * (window - 1.0) / 2.0) / length if length else 0.0
    return 6.0 * (attention.head_dim + attention.v_head_dim) * attention.num_attention_heads * keys
