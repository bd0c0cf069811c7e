"""A whole model walked once: each kind of layer and the head, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuneplan.estimation.layers import LayerProfile, profile_layer
from tuneplan.estimation.losses import HeadProfile, profile_head
from tuneplan.estimation.operations import Number, Operation
from tuneplan.estimation.persistent import num_trained_layers
from tuneplan.estimation.roles import Place, role_of, with_expert_targets
from tuneplan.estimation.sharding import seen_by_layers
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import Checkpointing, Method, TrainingRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """Everything that runs in one micro-batch, walked once; independent of the number of ranks.

    Attributes:
        recipe: As the layers see it (``sharding.seen_by_layers``).
        sequences, length: Rows of the micro-batch and positions per row.
        accumulating: Weight gradients exist when a backward begins.
    """

    model: ModelArchitecture
    recipe: TrainingRecipe
    sequences: Number
    length: Number
    accumulating: bool
    groups: tuple[tuple[LayerGroup, LayerProfile], ...]
    head: HeadProfile

    @property
    def tokens(self) -> Number:
        """Positions of the micro-batch."""
        return self.sequences * self.length

    def operations(self) -> Iterator[tuple[Operation, int]]:
        """Each operation of a micro-batch and how often it runs."""
        for group, profile in self.groups:
            for operation in profile.operations:
                yield operation, group.count
        for operation in self.head.operations:
            yield operation, 1


def walk_model(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: Number,
    length: Number,
    record: bool = False,
) -> Walked:
    """Walk every kind of layer and the head, forward and backward.

    ``sequences`` and ``length`` may be arrays of one shape: many micro-batches at once.
    ``record`` also says what is alive at the peaks.
    """
    seen = seen_by_layers(with_expert_targets(model, recipe), parallelism)
    accumulating = recipe.gradient_accumulation_steps > 1 and not recipe.optimizer.in_backward
    groups = []
    for group in model.groups:
        for part, place, wants, from_outside in _parts(model, recipe, group):
            profile = profile_layer(
                part.layer,
                seen,
                hidden_size=model.hidden_size,
                sequences=sequences,
                length=length,
                place=place,
                record=record,
                wants_gradient=wants,
                input_wants_gradient=from_outside,
                accumulating=accumulating,
            )
            groups.append((part, profile))
    head = profile_head(
        model, seen, sequences=sequences, length=length, record=record, accumulating=accumulating
    )
    return Walked(
        model=model,
        recipe=seen,
        sequences=sequences,
        length=length,
        accumulating=accumulating,
        groups=tuple(groups),
        head=head,
    )


def _parts(
    model: ModelArchitecture, recipe: TrainingRecipe, group: LayerGroup
) -> list[tuple[LayerGroup, Place, bool, bool]]:
    """A group in parts: ``(layers, place, wants a gradient, its input wants one)``.

    Under ``freeze`` its frozen and its trained layers. Beside a frozen embedding the first layer's
    input wants no gradient, so what stands before its first adapter keeps nothing; PEFT and
    Trainer let the embedding's output require grad only for checkpointing
    (``enable_input_require_grads``).
    """
    if recipe.method is Method.FREEZE:
        trained = num_trained_layers(model, recipe, group)
        parts = []
        if group.count > trained:
            frozen = replace(group, count=group.count - trained)
            parts.append((frozen, Place.LAYER, False, False))
        if trained:
            parts.append((replace(group, count=trained), Place.TRAINED_LAYER, True, True))
        return parts
    if not recipe.method.uses_adapter or not _keeps_activations(recipe):
        return [(group, Place.LAYER, True, True)]
    return _parts_beside_frozen_embedding(model, recipe, group)


def _parts_beside_frozen_embedding(
    model: ModelArchitecture, recipe: TrainingRecipe, group: LayerGroup
) -> list[tuple[LayerGroup, Place, bool, bool]]:
    """Layers before the first adapted one, that one, and the rest."""
    adapted = [position for one in model.groups if _adapted(one, recipe) for position in _at(one)]
    first = min(adapted, default=0)
    counts = {
        (False, False): sum(position < first for position in _at(group)),
        (True, False): int(first in _at(group) and _adapted(group, recipe)),
    }
    counts[True, True] = group.count - sum(counts.values())
    return [
        (replace(group, count=count), Place.LAYER, wants, from_outside)
        for (wants, from_outside), count in counts.items()
        if count
    ]


def _at(group: LayerGroup) -> tuple[int, ...]:
    return group.positions or tuple(range(group.count))


def _adapted(group: LayerGroup, recipe: TrainingRecipe) -> bool:
    return any(role_of(w, recipe, Place.LAYER).adapted for w in group.layer.weights())


def _keeps_activations(recipe: TrainingRecipe) -> bool:
    return recipe.gradient_checkpointing is Checkpointing.NONE and not (
        recipe.adapter is not None and recipe.adapter.modules_to_save
    )
