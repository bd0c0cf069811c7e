"""Every candidate of a space evaluated at once, on likely figures only.

What depends on the recipe alone (the walk of the model, counts of operations) is computed once
for all chips, counts and micro-batches, as arrays; a chip prices the operations once for all
counts. The same functions serve ``estimate``, so a candidate's figures here are those of its
estimate.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.catalog.links import resolve_cluster
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.estimation.standing_memory import workspace_bytes
from tuneplan.estimation.uncertainty import FRAGMENTATION
from tuneplan.frameworks.resolve import ResolvedRecipe, resolve_recipe
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.candidates import (
    ChipClass,
    Refusal,
    Table,
    class_of,
    for_chip,
    one_micro_batch,
)
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.grid_times import GridTimes
from tuneplan.planner.grids import Grid, Grids
from tuneplan.planner.helping import Helper
from tuneplan.planner.resolving import with_trained_share
from tuneplan.planner.sharing import both, in_halves
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import Space, Variant
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.spec.stated import StatedJob

Floats = NDArray[np.float64]


# From how many candidates on a second process is worth its start.
_WORTH_SHARING: Final = 4000


@dataclass(slots=True)
class _Found:
    """Blocks of the table and refusals, each with the numbers of its variant and chip class."""

    blocks: list[tuple[tuple[int, int], dict[str, Floats]]] = field(default_factory=list)
    refusals: list[tuple[tuple[int, int], Refusal]] = field(default_factory=list)


class Search:
    """Evaluates the space of one job."""

    def __init__(
        self,
        job: StatedJob,
        space: Space,
        model: ModelArchitecture,
        dataset: Dataset,
        sources: Sources,
    ) -> None:
        self.job, self.space, self.model = job, space, model
        self.dataset, self.sources = dataset, sources
        self.curves = [sources.curves(chip) for chip in space.accelerators]
        self.classes: dict[ChipClass, list[int]] = {}
        for index, chip in enumerate(space.accelerators):
            self.classes.setdefault(class_of(chip), []).append(index)
        self._grids = Grids(space, model, dataset)
        self._times = GridTimes(self._grids, job.hardware.disk_bytes_per_s, sources.calibration)
        self._clusters: dict[tuple[int, tuple[int, int]], Cluster | None] = {}
        self._found = _Found()
        self._place = (0, 0)

    def table(self, processes: int = 1, helper: Helper | None = None) -> Table:
        """Evaluate everything.

        Args:
            processes: 2 gives about half of it to a forked process.
            helper: A process that is there already, in place of a fork.
        """
        variants = self.space.variants()
        alone = processes == 1 and helper is None
        if alone or self.space.size < _WORTH_SHARING:
            return self._tabled(self._search([range(len(variants))]))
        families = _families(variants)
        mine, theirs = in_halves(families, [_work_of(family, variants) for family in families])
        if helper is None:
            parts = both(lambda: self._search(mine), lambda: self._search(theirs))
        else:
            parts = self._helped(helper, mine, theirs)
        found = _Found()
        for part in parts:
            found.blocks += part.blocks
            found.refusals += part.refusals
        return self._tabled(found)

    def _helped(
        self, helper: Helper, mine: list[list[int]], theirs: list[list[int]]
    ) -> tuple[_Found, _Found]:
        read = (self.job, self.space, self.model, self.dataset, self.sources.unread())
        with helper.asked(search_families, *read, theirs) as theirs_found:
            here = self._search(mine)
            there = theirs_found()
        return here, there or self._search(theirs)

    def _search(self, families: Sequence[Sequence[int]]) -> _Found:
        """Everything for these families of variants."""
        self._found = _Found()
        variants = self.space.variants()
        for index in itertools.chain.from_iterable(families):
            for number, chips in enumerate(self.classes.values()):
                self._place = (index, number)
                blocks = self._evaluate(index, variants[index], chips)
                self._found.blocks += [(self._place, block) for block in blocks]
        return self._found

    def _tabled(self, found: _Found) -> Table:
        blocks = [block for _, block in sorted(found.blocks, key=lambda one: one[0])]
        columns = {
            name: np.concatenate([block[name] for block in blocks]) if blocks else np.empty(0)
            for name in _COLUMNS
        }
        return Table(
            variants=tuple(self.space.variants()),
            recipe=self.job.recipe,
            space=self.space,
            variant=columns["variant"].astype(np.intp),
            chip=columns["chip"].astype(np.intp),
            shape=columns["shape"].astype(np.intp),
            micro_batch=columns["micro_batch"].astype(np.intp),
            accumulation=columns["accumulation"].astype(np.intp),
            needed_bytes=columns["needed_bytes"],
            step_s=columns["step_s"],
            total_s=columns["total_s"],
            segment_s=columns["segment_s"],
            refusals=_joined(found.refusals),
        )

    # --- One variant on one class of chips ---------------------------------------------------

    def _evaluate(self, index: int, variant: Variant, chips: list[int]) -> list[dict[str, Floats]]:
        """Candidates of a variant on chips that resolve to the same recipe.

        The layout is stated, so the recipe does not depend on the number of cards; it does on
        whether a micro-batch has one row, which needs no padding and no mask.
        """
        shapes = list(self.space.shapes_of(variant.strategy))
        blocks = []
        for found, sizes in self._resolved_groups(variant, chips, shapes):
            if found is not None:
                grid = self._grids.grid(found, shapes, sizes)
                self._refuse_other_batches(variant, grid, chips)
                blocks += self._price(index, variant, grid, chips)
        return blocks

    def _refuse_other_batches(self, variant: Variant, grid: Grid, chips: list[int]) -> None:
        """Note the candidates that no number of micro-batches brings to the samples of a step."""
        rows, columns = np.nonzero(~grid.runs)
        if len(rows):
            text = message(
                "other_global_batch",
                "the micro-batch on all cards, a whole number of times, does not make the "
                "{count} samples of an optimizer step",
                count=self.space.global_batch_size,
            )
            chip = self.space.accelerators[chips[0]]
            self._refuse(
                text, variant, chip, grid.shapes[rows[-1]], len(rows) * len(chips),
                micro_batch=grid.sizes[columns[-1]],
            )  # fmt: skip

    def _resolved_groups(
        self, variant: Variant, chips: list[int], shapes: list[tuple[int, int]]
    ) -> list[tuple[ResolvedRecipe, tuple[int, ...]]]:
        """Recipes with the micro-batches that they hold for, joined where one row is like more."""
        groups: list[tuple[ResolvedRecipe, tuple[int, ...]]] = []
        for sizes in self._groups_of_sizes(variant) if shapes else ():
            found = self._resolve(variant, chips, shapes[0], sizes)
            if found is None:
                continue
            if groups and _same_recipe(groups[-1][0], found):
                groups[-1] = (groups[-1][0], groups[-1][1] + sizes)
            else:
                groups.append((found, sizes))
        return groups

    def _groups_of_sizes(self, variant: Variant) -> list[tuple[int, ...]]:
        """Micro-batches of one row, which needs no padding, apart; packed rows are all full."""
        if variant.packing is True:
            return [self.space.micro_batches]
        one = tuple(size for size in self.space.micro_batches if size == 1)
        more = tuple(size for size in self.space.micro_batches if size > 1)
        return [sizes for sizes in (one, more) if sizes]

    def _resolve(
        self, variant: Variant, chips: list[int], shape: tuple[int, int], sizes: tuple[int, ...]
    ) -> ResolvedRecipe | None:
        """The recipe of a variant, or None where it cannot run, which is noted."""
        chip = self.space.accelerators[chips[0]]
        stated = one_micro_batch(variant.stated(self.job.recipe), sizes[0], 2)
        nodes, per_node = shape
        try:
            found = resolve_recipe(
                for_chip(stated, chip),
                self.model,
                chip,
                world_size=nodes * per_node,
                num_nodes=nodes,
            )
            return with_trained_share(found, self.dataset.statistics)
        except InputError as error:
            count = len(chips) * len(sizes) * len(self.space.shapes_of(variant.strategy))
            mistake = error.mistakes[0] if isinstance(error, InvalidRequest) else None
            text = error.mistakes[0].message
            self._refuse(text, variant, chip, shape, count, mistake=mistake)
            return None

    def _refuse(
        self,
        text: Message,
        variant: Variant,
        chip: Accelerator,
        shape: tuple[int, int],
        count: int,
        micro_batch: int | None = None,
        mistake: Mistake | None = None,
    ) -> None:
        example = {
            "method": variant.method,
            "parallelism.strategy": variant.strategy,
            "training.packing": variant.packing,
            "hardware.accelerator": chip.name,
            "hardware.num_nodes": shape[0],
            "hardware.accelerators_per_node": shape[1],
        }
        if micro_batch is not None:
            example["training.per_device_train_batch_size"] = micro_batch
        refusal = Refusal(
            code=text.code, message=text, count=count, example=example, mistake=mistake
        )
        self._found.refusals.append((self._place, refusal))

    def _price(
        self, index: int, variant: Variant, grid: Grid, chips: list[int]
    ) -> list[dict[str, Floats]]:
        blocks = []
        numbers = np.array([self.space.shapes.index(shape) for shape in grid.shapes], dtype=float)
        sizes = np.array(grid.sizes, dtype=float)
        for chip_index in chips:
            chip = self.space.accelerators[chip_index]
            extra = workspace_bytes(chip.compute_capability) - workspace_bytes(None)
            needed = (grid.peaks + extra) * (1 + FRAGMENTATION.likely) + chip.context_bytes
            fits = (needed <= chip.capacity_bytes) & grid.runs
            clusters = [self._cluster(chip_index, shape) for shape in grid.shapes]
            try:
                step_s, total_s, segment_s = self._times.times(
                    grid, clusters, fits, self.curves[chip_index]
                )
            except InputError as error:
                shape = grid.shapes[0]
                count = int(grid.runs.sum())
                self._refuse(error.mistakes[0].message, variant, chip, shape, count)
                continue
            joined = np.array([cluster is not None for cluster in clusters])
            rows, columns = np.nonzero(grid.runs & joined[:, None])
            blocks.append(
                {
                    "variant": np.full(len(rows), float(index)),
                    "chip": np.full(len(rows), float(chip_index)),
                    "shape": numbers[rows],
                    "micro_batch": sizes[columns],
                    "accumulation": grid.accumulation[rows, columns],
                    "needed_bytes": needed[rows, columns],
                    "step_s": step_s[rows, columns],
                    "total_s": total_s[rows, columns],
                    "segment_s": segment_s[rows, columns],
                }
            )
        return blocks

    def _cluster(self, chip_index: int, shape: tuple[int, int]) -> Cluster | None:
        key = (chip_index, shape)
        if key not in self._clusters:
            hardware = self.job.hardware
            try:
                self._clusters[key] = resolve_cluster(
                    self.space.accelerators[chip_index],
                    num_nodes=shape[0],
                    accelerators_per_node=shape[1],
                    interconnect=hardware.interconnect,
                    inter_node=hardware.inter_node,
                    host_memory_bytes=hardware.host_memory_bytes,
                    disk_bytes_per_s=hardware.disk_bytes_per_s,
                    disk_bytes=hardware.disk_bytes,
                ).cluster
            except InputError as error:
                self._clusters[key] = None
                chip, variant = self.space.accelerators[chip_index], self.space.variants()[0]
                self._refuse(error.mistakes[0].message, variant, chip, shape, 0)
        return self._clusters[key]


def search_families(
    job: StatedJob,
    space: Space,
    model: ModelArchitecture,
    dataset: Dataset,
    sources: Sources,
    families: Sequence[Sequence[int]],
) -> _Found:
    """A part of a search, in the process of a helper."""
    return Search(job, space, model, dataset, sources)._search(families)  # noqa: SLF001 - our own


_COLUMNS = (
    "variant", "chip", "shape", "micro_batch", "accumulation", "needed_bytes", "step_s", "total_s",
    "segment_s",
)  # fmt: skip


def _families(variants: list[Variant]) -> list[list[int]]:
    """Variants that differ in their layout alone: these have most of the work in common."""
    families: dict[tuple[object, ...], list[int]] = {}
    for index, one in enumerate(variants):
        key = (one.method, one.gradient_checkpointing, one.packing)
        families.setdefault(key, []).append(index)
    return list(families.values())


def _work_of(family: list[int], variants: list[Variant]) -> float:
    """About how long a family takes: rows that pad are walked alone and together."""
    return len(family) * (1.0 if variants[family[0]].packing else 2.0)


def _joined(refusals: list[tuple[tuple[int, int], Refusal]]) -> tuple[Refusal, ...]:
    """One refusal a code: all counts, the first example."""
    by_code: dict[str, Refusal] = {}
    for _, refusal in sorted(refusals, key=lambda one: one[0]):
        old = by_code.get(refusal.code)
        by_code[refusal.code] = (
            refusal if old is None else replace(old, count=old.count + refusal.count)
        )
    return tuple(by_code[code] for code in sorted(by_code))


def _same_recipe(one: ResolvedRecipe, other: ResolvedRecipe) -> bool:
    """Whether two recipes differ in their micro-batch alone."""
    alike = replace(
        other.recipe, per_device_train_batch_size=one.recipe.per_device_train_batch_size
    )
    return (one.recipe, one.parallelism, one.run) == (alike, other.parallelism, other.run)
