"""The space that ``plan`` searches: what is stated is fixed, a list is a choice, a blank free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final

from tuneplan.catalog.accelerators import ResolvedAccelerator
from tuneplan.errors import InvalidRequest, Mistake, NotSupported, UnknownName
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.layout_changes import searched_strategies
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.stated import StatedJob, StatedRecipe

MICRO_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
CARDS_PER_NODE: Final = (1, 2, 4, 8)
MOST_NODES: Final = 8
METHODS: Final = ("full", "lora", "qlora")
STRATEGIES: Final = ("ddp", "zero2", "zero3", "fsdp")
SPLIT_STRATEGIES: Final = ("zero1",)  # Megatron's distributed optimizer
GLOBAL_BATCH: Final = 32
_OLDEST_CAPABILITY: Final = 7.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Choices that change the recipe: method, checkpointing, packing, layout."""

    method: str | None
    gradient_checkpointing: bool | str | None
    packing: bool | None
    strategy: str | None

    def stated(self, recipe: StatedRecipe) -> StatedRecipe:
        """The job's recipe with these choices made."""
        training = replace(
            recipe.training,
            gradient_checkpointing=self.gradient_checkpointing,
            packing=self.packing,
        )
        layout = replace(recipe.parallelism, strategy=self.strategy)
        return replace(recipe, method=self.method, training=training, parallelism=layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every value of every free setting.

    Attributes:
        shapes: ``(nodes, cards per node)``.
        strategies: For more than one card.
        global_batch_size: Samples of an optimizer step, about the same for every candidate;
            packed rows where ``counts_rows``.
        global_batch_stated: The job says so itself.
        accumulation: The job's own ``gradient_accumulation_steps``.
        degrees: Tensor, pipeline, context and expert degrees above 1, the same everywhere.
    """

    accelerators: tuple[Accelerator, ...]
    shapes: tuple[tuple[int, int], ...]
    methods: tuple[str | None, ...]
    checkpointing: tuple[bool | str | None, ...]
    packing: tuple[bool | None, ...]
    strategies: tuple[str | None, ...]
    micro_batches: tuple[int, ...]
    global_batch_size: int
    global_batch_stated: bool
    accumulation: int | None
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]
    degrees: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def variants(self) -> list[Variant]:
        """All combinations of what changes the recipe; one card has no layout."""
        several = any(nodes * per_node > 1 for nodes, per_node in self.shapes)
        single = any(nodes * per_node == 1 for nodes, per_node in self.shapes)
        layouts = (("single",) if single else ()) + (self.strategies if several else ())
        if self.degrees:
            layouts = self.strategies
        return [
            Variant(method=method, gradient_checkpointing=again, packing=packed, strategy=layout)
            for method in self.methods
            for again in self.checkpointing
            for packed in self.packing
            for layout in layouts
        ]

    def shapes_of(self, strategy: str | None) -> tuple[tuple[int, int], ...]:
        """One card for ``single``, more for every other layout."""
        if self.degrees:
            return tuple(shape for shape in self.shapes if self._divides(shape[0] * shape[1]))
        alone = strategy == "single"
        return tuple(shape for shape in self.shapes if (shape[0] * shape[1] == 1) is alone)

    def _divides(self, cards: int) -> bool:
        """Whether cards are whole replicas of the split model, and whole groups of its experts."""
        context = self.degrees.get("context", 1)
        each = self.degrees.get("tensor", 1) * self.degrees.get("pipeline", 1) * context
        data, left = divmod(cards, each)
        return not left and not data * context % self.degrees.get("expert", 1)

    @property
    def counts_rows(self) -> bool:
        """Whether every candidate packs: then a batch counts rows, as the frameworks do."""
        return self.packing == (True,)

    @property
    def size(self) -> int:
        """Candidates in the space."""
        per_shape = sum(len(self.shapes_of(variant.strategy)) for variant in self.variants())
        return per_shape * len(self.accelerators) * len(self.micro_batches)


def space_of(job: StatedJob, sources: Sources) -> Space:
    """The space of a job.

    Raises:
        InvalidRequest: Choices that cannot be searched, accelerators that no catalogue holds.
    """
    degrees = _degrees(job)
    assumptions: list[Assumption] = []
    notices: list[Notice] = []
    accelerators = _accelerators(job, sources, assumptions, notices)
    training = job.recipe.training
    shapes, micro_batches = _shapes(job), _micro_batches(job)
    fewest = min(nodes * cards for nodes, cards in shapes) * min(micro_batches)
    accumulation = training.gradient_accumulation_steps
    accumulation = accumulation if isinstance(accumulation, int) else None
    if accumulation is not None and training.global_batch_size is None and len(shapes) > 1:
        notices.append(Notice(message=_GROWING_BATCH, path="training.gradient_accumulation_steps"))
    return Space(
        accelerators=accelerators,
        shapes=shapes,
        methods=_choice(job, "method", job.recipe.method, METHODS),
        checkpointing=_choice(
            job, "training.gradient_checkpointing", training.gradient_checkpointing, (True, False)
        ),
        packing=_choice(job, "training.packing", training.packing, (False, True)),
        strategies=_choice(
            job,
            "parallelism.strategy",
            job.recipe.parallelism.strategy,
            _strategies(job, degrees),
        ),
        degrees=degrees,
        micro_batches=micro_batches,
        global_batch_size=_global_batch(job, fewest, assumptions),
        global_batch_stated=training.global_batch_size is not None,
        accumulation=accumulation,
        assumptions=tuple(assumptions),
        notices=tuple(notices),
    )


def _strategies(job: StatedJob, degrees: Mapping[str, int]) -> tuple[str, ...]:
    """Layouts of several cards that the framework has."""
    if degrees:
        return SPLIT_STRATEGIES
    return searched_strategies(job.recipe.framework, STRATEGIES)


def _degrees(job: StatedJob) -> Mapping[str, int]:
    """Tensor, pipeline, context and expert degrees above 1, which stay as they are stated.

    Raises:
        NotSupported: For a choice among degrees.
    """
    found: dict[str, int] = {}
    for name in ("tensor", "pipeline", "context", "expert"):
        if f"parallelism.{name}" in job.choices:
            raise NotSupported(
                message(
                    "degrees_not_searched",
                    "plan searches cards and batches for stated degrees, not the {name} degree "
                    "itself yet: state one",
                    name=name,
                ),
                path=f"parallelism.{name}",
            )
        degree = getattr(job.recipe.parallelism, name)
        if degree > 1:
            found[name] = degree
    return found


def _choice(job: StatedJob, key: str, stated: Any, free: tuple[Any, ...]) -> tuple[Any, ...]:
    if key in job.choices:
        return tuple(job.choices[key])
    if isinstance(stated, tuple):
        return stated
    if stated is None or stated == "auto":
        return free
    return (stated,)


def _micro_batches(job: StatedJob) -> tuple[int, ...]:
    chosen = _choice(
        job,
        "training.per_device_train_batch_size",
        job.recipe.training.per_device_train_batch_size,
        MICRO_BATCHES,
    )
    return tuple(int(size) for size in chosen)


def _shapes(job: StatedJob) -> tuple[tuple[int, int], ...]:
    hardware, limits = job.hardware, job.limits
    per_node = hardware.accelerators_per_node or CARDS_PER_NODE
    if hardware.num_nodes is not None:
        nodes: tuple[int, ...] = (hardware.num_nodes,)
    else:
        most = limits.max_nodes or MOST_NODES
        nodes = tuple(n for n in (1, 2, 4, 8, 16, 32) if n <= most) or (1,)
    full = max(per_node)
    return tuple(
        (count, cards) for count in nodes for cards in per_node if count == 1 or cards == full
    )


def _accelerators(
    job: StatedJob, sources: Sources, assumptions: list[Assumption], notices: list[Notice]
) -> tuple[Accelerator, ...]:
    if job.hardware.accelerator:
        found = _named(job.hardware.accelerator, sources)
        for one in found:
            assumptions.extend(one.assumptions)
            notices.extend(one.notes)
        return tuple(sorted({one.accelerator.name: one.accelerator for one in found}.values(),
                            key=lambda chip: chip.name))  # fmt: skip
    offered = {offer.accelerator for offer in sources.offers.offers}
    chips = tuple(
        chip for chip in sources.accelerators.accelerators
        if chip.name in offered and _runs_today(chip)
    )  # fmt: skip
    left_out = sorted(
        chip.name for chip in sources.accelerators.accelerators
        if chip.name in offered and not _runs_today(chip)
    )  # fmt: skip
    if left_out:
        notices.append(Notice(message=message(
            "chips_left_out",
            "not searched, because today's PyTorch builds do not run on them: {names}; name one "
            "with --accelerator to plan with it",
            names=", ".join(left_out),
        )))  # fmt: skip
    if not chips:
        raise InvalidRequest(
            [Mistake(message=message("no_chip_offered", "no accelerator has an offer"))]
        )
    return chips


def _named(names: tuple[str, ...], sources: Sources) -> list[ResolvedAccelerator]:
    found: list[ResolvedAccelerator] = []
    mistakes: list[Mistake] = []
    for name in names:
        try:
            found.append(sources.accelerators.resolve(name))
        except UnknownName as error:
            mistakes += [replace(one, path="hardware.accelerator") for one in error.mistakes]
    if mistakes:
        raise InvalidRequest(mistakes)
    return found


def _runs_today(chip: Accelerator) -> bool:
    """Whether the frameworks' current builds run on a chip.

    CUDA 13, which PyTorch's default builds use by 2.14 (cu130), begins with compute capability 7.5
    (CUDA Toolkit 13.0 release notes: Maxwell, Pascal and Volta are dropped); ROCm builds serve
    AMD Instinct cards.
    """
    if chip.vendor == "AMD":
        return True
    return chip.vendor == "NVIDIA" and (chip.compute_capability or 0.0) >= _OLDEST_CAPABILITY


_GROWING_BATCH: Final = message(
    "growing_global_batch",
    "with the stated accumulation more cards make a larger batch, and fewer optimizer steps; state "
    "training.global_batch_size instead to train alike on every number of cards",
)


def _global_batch(job: StatedJob, fewest: int, assumptions: list[Assumption]) -> int:
    """Samples of a step; at least one micro-batch on the fewest cards, ``fewest``."""
    training = job.recipe.training
    if training.global_batch_size is not None:
        return training.global_batch_size
    micro, accumulation = (
        training.per_device_train_batch_size,
        training.gradient_accumulation_steps,
    )
    if isinstance(micro, int) and isinstance(accumulation, int):
        return micro * accumulation
    if isinstance(accumulation, int):
        return fewest * accumulation  # every candidate keeps its own accumulation
    assumed = max(GLOBAL_BATCH, fewest)
    assumptions.append(
        Assumption(
            name="training.global_batch_size",
            value=assumed,
            reason=message(
                "global_batch_assumed",
                "samples of an optimizer step, the same for every candidate so that they train "
                "alike",
            ),
            source="docs/reference/job.md",
            how_to_set="training.global_batch_size: 64",
        )
    )
    return assumed
