"""What memory by phase is made of: one rank's layers and what it holds, and the largest total."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tuneplan.estimation.head import HeadProfile
from tuneplan.estimation.layers import LayerProfile
from tuneplan.estimation.operations import Number
from tuneplan.estimation.persistent import Persistent, shards_of
from tuneplan.estimation.sharding import Gathered
from tuneplan.estimation.walking import Walked
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture
from tuneplan.spec.parallelism import Offload, Parallelism
from tuneplan.spec.recipe import TrainingRecipe


@dataclass(slots=True)
class RankStack:
    """One rank: what its layers do, and what it holds."""

    model: ModelArchitecture
    recipe: TrainingRecipe
    parallelism: Parallelism
    walked: Walked
    held: Persistent
    gathered: Gathered

    @property
    def groups(self) -> tuple[tuple[LayerGroup, LayerProfile], ...]:
        """Groups of equal layers and what one of each does."""
        return self.walked.groups

    @property
    def head(self) -> HeadProfile:
        """What final norm, head and loss do."""
        return self.walked.head

    @property
    def accumulating(self) -> bool:
        """Whether gradients of an earlier micro-batch are there."""
        return self.walked.accumulating

    @property
    def tokens(self) -> Number:
        """Of a micro-batch."""
        return self.walked.tokens


def present(sizes: dict[str, Number]) -> dict[str, Number]:
    """Those that are not zero."""
    return {kind: size for kind, size in sizes.items() if is_there(size)}


def is_there(size: Number) -> bool:
    """Whether a size is not zero, for one candidate at least."""
    return bool(size.any()) if isinstance(size, np.ndarray) else bool(size)


def gradients_of(stack: RankStack, *, accumulated: bool) -> float:
    """Gradients of all that is trained: between micro-batches, or as the optimizer sees them.

    FSDP keeps them whole between micro-batches (``no_sync``) and scatters them in the last one.
    """
    recipe = stack.recipe
    if stack.parallelism.offload is Offload.PARAMS:
        return 0.0
    _, shards, _ = shards_of(stack.parallelism)
    if accumulated and recipe.gradients_unsharded_while_accumulating:
        shards = 1
    return (stack.held.gradient_bytes + stack.gathered.frozen_gradient_bytes) / shards


def total_of(sizes: dict[str, Number]) -> Number:
    """The sum of all kinds."""
    total: Number = 0.0
    for size in sizes.values():
        total = total + size
    return total


@dataclass(slots=True)
class Largest:
    """The largest total of a phase and what it is made of."""

    total: Number = 0.0
    parts: dict[str, Number] = field(default_factory=dict)
    working: tuple[tuple[str, float], ...] = ()

    def offer(self, parts: dict[str, Number], working: tuple[tuple[str, float], ...] = ()) -> None:
        """Keep these parts where they sum to more than the best so far."""
        total = total_of(parts)
        if isinstance(total, np.ndarray) or isinstance(self.total, np.ndarray):
            wins = np.asarray(total > self.total)
            kinds = set(parts) | set(self.parts)
            self.parts = {
                kind: np.where(wins, parts.get(kind, 0.0), self.parts.get(kind, 0.0))
                for kind in kinds
            }
            self.total = np.maximum(total, self.total)
        elif total > self.total:
            self.total, self.parts, self.working = total, parts, working

    def add(self, kind: str, size: Number) -> None:
        """Add what every alternative of the phase has."""
        if is_there(size):
            self.parts[kind] = self.parts.get(kind, 0.0) + size
            self.total = self.total + size


def attributes_of(stack: RankStack) -> Number:
    """What the graph of one micro-batch holds as attributes until it dies."""
    total = stack.head.attributes
    for group, profile in stack.groups:
        total = total + group.count * profile.attributes
    return total
