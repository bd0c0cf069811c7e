"""A whole model walked once: each kind of layer and the head, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from tuneplan.estimation.entry import EntryProfile, entry_weights, keeps_fp32_streams, profile_entry
from tuneplan.estimation.head import HeadProfile, profile_head
from tuneplan.estimation.layers import LayerProfile, profile_layer
from tuneplan.estimation.operations import Number, Operation
from tuneplan.estimation.persistent import num_trained_layers
from tuneplan.estimation.roles import Place, Role, as_trained, role_of, with_expert_targets
from tuneplan.estimation.sharding import seen_by_layers
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import (
    Checkpointing,
    DType,
    Method,
    Optimizer,
    OptimizerFamily,
    OptimizerImplementation,
    TrainingRecipe,
)


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
    entry: EntryProfile

    @property
    def tokens(self) -> Number:
        """Positions of the micro-batch."""
        return self.sequences * self.length

    def operations(self) -> Iterator[tuple[Operation, int]]:
        """Each operation of a micro-batch and how often it runs."""
        for group, profile in self.groups:
            for operation in profile.operations:
                yield operation, group.count
        for operation in (*self.entry.operations, *self.head.operations):
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
    model = as_trained(model, recipe)
    seen = seen_by_layers(with_expert_targets(model, recipe), parallelism)
    if recipe.autocast and keeps_fp32_streams(model):
        seen = replace(seen, hidden_dtype=DType.FLOAT32)
    several = recipe.gradient_accumulation_steps > 1 or recipe.gradient_buffer
    accumulating = several and not recipe.optimizer.in_backward
    sequence_ranks = parallelism.tensor if parallelism.sequence else 1
    plain = as_walked(seen)
    if isinstance(sequences, np.ndarray) or isinstance(length, np.ndarray):
        walked = _walk(model, plain, sequences, length, accumulating, sequence_ranks, record)
    else:
        walked = _known_walk(model, plain, sequences, length, accumulating, sequence_ranks, record)
    return replace(walked, recipe=seen)


def as_walked(seen: TrainingRecipe) -> TrainingRecipe:
    """The recipe without what no layer looks at, so that layouts and optimizers share walks."""
    return replace(
        seen,
        optimizer=replace(_ANY_OPTIMIZER, in_backward=seen.optimizer.in_backward),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        gradients_unsharded_while_accumulating=False,
        upcast_under_fsdp=False,
        reference_model=False,
        max_grad_norm=None,
        packing=False,
    )


_ANY_OPTIMIZER: Final = Optimizer(
    name="adamw_torch",
    family=OptimizerFamily.ADAMW,
    implementation=OptimizerImplementation.FUSED,
)


def _walk(
    model: ModelArchitecture,
    seen: TrainingRecipe,
    sequences: Number,
    length: Number,
    accumulating: bool,  # noqa: FBT001 - by position, as the cache takes it
    sequence_ranks: int,
    record: bool,  # noqa: FBT001
) -> Walked:
    groups = []
    for group in model.groups:
        for part, place, wants, from_outside in parts_of(model, seen, group):
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
                sequence_ranks=sequence_ranks,
            )
            groups.append((part, profile))
    head = profile_head(
        model, seen, sequences=sequences, length=length, record=record, accumulating=accumulating,
        sequence_ranks=sequence_ranks,
    )  # fmt: skip
    return Walked(
        model=model,
        recipe=seen,
        sequences=sequences,
        length=length,
        accumulating=accumulating,
        groups=tuple(groups),
        head=head,
        entry=profile_entry(
            model,
            seen,
            sequences=sequences,
            length=length,
            record=record,
            accumulating=accumulating,
        ),
    )


# One estimate walks a model up to eight times; a page asks again with little changed.
_known_walk = lru_cache(maxsize=160, typed=True)(_walk)


def parts_of(
    model: ModelArchitecture, recipe: TrainingRecipe, group: LayerGroup
) -> list[tuple[LayerGroup, Place, bool, bool]]:
    """A group in parts: ``(layers, place, wants a gradient, its input wants one)``.

    Under ``freeze`` its frozen and its trained layers. Where nothing before the layers is trained
    and nothing is checkpointed, layers before the first adapter keep nothing, and the layer that
    has it only what stands after it.
    """
    if recipe.method is Method.FREEZE:
        trained = num_trained_layers(model, recipe, group)
        return [
            (replace(group, count=count), place, wants, wants)
            for count, place, wants in (
                (group.count - trained, Place.LAYER, False),
                (trained, Place.TRAINED_LAYER, True),
            )
            if count
        ]
    first = _first_trained_layer(model, recipe)
    positions = group.positions or range(group.count)
    before = sum(position < first for position in positions)
    at = int(first in positions)
    return [
        (replace(group, count=count), Place.LAYER, wants, from_outside)
        for count, wants, from_outside in (
            (before, False, False),
            (at, True, False),
            (group.count - before - at, True, True),
        )
        if count
    ]


def _first_trained_layer(model: ModelArchitecture, recipe: TrainingRecipe) -> int:
    """Position of the first layer with something trained, where its input wants no gradient; or -1.

    Beside frozen embeddings it wants none; for checkpointing PEFT and Trainer make it want one
    (``enable_input_require_grads``).
    """
    outside = [role_of(weight, recipe, Place.OUTER) for weight in entry_weights(model)]
    if recipe.gradient_checkpointing is not Checkpointing.NONE or any(map(_trains, outside)):
        return -1
    if model.vision is not None and recipe.trains_vision:
        return -1
    positions = [
        min(group.positions, default=0)
        for group in model.groups
        if any(_trains(role_of(w, recipe, Place.LAYER)) for w in group.layer.weights())
    ]
    return min(positions, default=model.num_layers)


def _trains(role: Role) -> bool:
    return role.trained or role.adapted or role.copied
