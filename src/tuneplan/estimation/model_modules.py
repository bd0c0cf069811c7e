"""Every module of a model that holds a weight, by its full name: what an adapter can be put on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import Attention, FeedForward, MixtureOfExperts, Recurrence
from tuneplan.spec.weights import Weight, WeightKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModule:
    """One kind of linear of a model and how often it stands in it.

    Attributes:
        path: Full name with ``*`` for the layer number.
        count: How many of them the model has.
        vision: Whether it belongs to the image tower.
        rank_factor: Times the adapter's rank (2 where two fused matrices share one adapter).
    """

    path: str
    weight: Weight
    count: int
    vision: bool = False
    rank_factor: int = 1

    @property
    def leaf(self) -> str:
        """Last part of the name."""
        return self.weight.leaf

    @property
    def stacked(self) -> bool:
        """Whether it holds the matrices of all routed experts."""
        return self.weight.kind is WeightKind.EXPERTS

    def matches(self, name: str) -> bool:
        """Whether PEFT would take ``name`` for this module."""
        return self.path == name or self.path.endswith(f".{name}")

    def adapter_parameters(self, r: int, *, use_dora: bool = False) -> int:
        """LoRA's two matrices, r x in and out x r (Hu et al. 2021); DoRA's magnitude is out more.

        Over all layers that hold the module, and over all its experts.
        """
        matrices = self.weight.shape[0] if self.stacked else 1
        size = r * self.rank_factor * (self.weight.in_features + self.weight.out_features)
        magnitude = self.weight.out_features if use_dora else 0
        return self.count * matrices * (size + magnitude)


def linear_modules(
    architecture: ModelArchitecture, *, vision: bool = False
) -> tuple[LinearModule, ...]:
    """Every plain linear but the output head, in the order of the model.

    Args:
        architecture: The model.
        vision: Whether the image tower's linears are reached as well (PEFT alone does; trainers
            that freeze the tower do not).
    """
    return tuple(
        module
        for module in all_modules(architecture, vision=vision)
        if module.weight.kind is WeightKind.LINEAR and module.weight is not architecture.head
    )


def feed_forward_weights(block: FeedForward | MixtureOfExperts | None) -> Iterator[Weight]:
    """Every weight of a feed-forward, the shared expert's last."""
    if block is None:
        return
    yield from block.weights
    if isinstance(block, MixtureOfExperts) and block.shared is not None:
        yield from block.shared.weights


def all_modules(architecture: ModelArchitecture, *, vision: bool) -> Iterator[LinearModule]:
    """Every weight with its full path; the image tower only where ``vision``."""
    for weight in architecture.embeddings:
        yield LinearModule(path=weight.name, weight=weight, count=1)
    tower = architecture.vision
    if tower is not None and vision:
        for weight in tower.outer:
            yield LinearModule(path=weight.name, weight=weight, count=1, vision=True)
        for group in tower.groups:
            yield from _group_modules(group, vision=True)
    for group in architecture.groups:
        yield from _group_modules(group, vision=False)
    for weight in (*architecture.outer, *((architecture.head,) if architecture.head else ())):
        yield LinearModule(path=weight.name, weight=weight, count=1)


def _group_modules(group: LayerGroup, *, vision: bool) -> Iterator[LinearModule]:
    """Mixer, feed-forward, then the rest: the order in which they run."""
    layer = group.layer
    mixer: Sequence[Weight] = ()
    if isinstance(layer.mixer, Attention | Recurrence):
        mixer = layer.mixer.weights
    for weight in (*mixer, *feed_forward_weights(layer.feed_forward), *layer.extra):
        yield LinearModule(
            path=f"{group.prefix}.*.{weight.name}", weight=weight, count=group.count, vision=vision
        )
