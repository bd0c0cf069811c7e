"""Memory of one recipe over all its micro-batches and counts of cards, on likely figures only."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.batches import BatchShape, length_spread, sample_lengths
from tuneplan.estimation.memory import assemble
from tuneplan.estimation.persistent import Persistent, persistent
from tuneplan.estimation.sharding import seen_by_layers
from tuneplan.estimation.walking import Walked, as_walked, walk_model
from tuneplan.frameworks.resolve import ResolvedRecipe
from tuneplan.frozen import dataclass
from tuneplan.planner.candidates import accumulations
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.evaluating import imbalance_of, shape_of_batch
from tuneplan.planner.resolving import samples_seen
from tuneplan.planner.space import Space
from tuneplan.planner.split_candidates import split_peaks
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe

Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Grid:
    """Shapes x micro-batches of one recipe.

    Attributes:
        found: The recipe, laid out as its first shape.
        seen: As layers see it, without what no layer looks at.
        layouts: The layout of each shape.
        ranks: That see different samples.
        accumulation: Micro-batches of a step; ``runs`` where that is at least one.
        peaks: Likely allocated bytes, for a chip with small cuBLAS workspaces.
        waiting: Share that the slowest rank computes longer.
        walked: The longest and, behind them, the average micro-batches.
    """

    found: ResolvedRecipe
    seen: TrainingRecipe
    shapes: list[tuple[int, int]]
    sizes: tuple[int, ...]
    batches: list[BatchShape]
    layouts: list[Parallelism]
    ranks: Floats
    accumulation: Floats
    runs: NDArray[np.bool_]
    held: Persistent
    peaks: Floats
    waiting: Floats = field(default_factory=lambda: np.empty(0))
    walked: Walked | None = None

    @property
    def samples(self) -> Floats:
        """Samples in a micro-batch of each size."""
        return np.array([batch.samples for batch in self.batches])

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether all micro-batches of a size have the same positions."""
        return np.array([batch.mean_length >= batch.limit_length for batch in self.batches])


class Grids:
    """Makes grids; what recipes have in common is computed once."""

    def __init__(self, space: Space, model: ModelArchitecture, dataset: Dataset) -> None:
        self.space, self.model, self.dataset = space, model, dataset
        statistics = dataset.statistics
        self.spread = length_spread(sample_lengths(statistics)) if statistics else 0.0
        self._batches: dict[Any, BatchShape] = {}
        self._walks: dict[Any, Walked] = {}
        self._peaks: dict[Any, Floats] = {}
        self._persistents: dict[TrainingRecipe, Persistent] = {}
        self._layouts: dict[tuple[Parallelism, int], Parallelism] = {}

    def grid(
        self, found: ResolvedRecipe, shapes: list[tuple[int, int]], sizes: tuple[int, ...]
    ) -> Grid:
        """Lengths, accumulation and memory of one recipe."""
        recipe = found.recipe
        batches = [self._batch(found, size) for size in sizes]
        each = found.parallelism.model_ranks
        ranks = np.array([float(nodes * cards // each) for nodes, cards in shapes])
        packs = recipe.packing and not self.space.counts_rows
        per_rank = np.array([
            batch.samples if packs else float(size)
            for size, batch in zip(sizes, batches, strict=True)
        ])  # fmt: skip
        accumulation, runs = accumulations(
            self.space, per_rank[None, :] * ranks[:, None], packs=packs
        )
        seen = as_walked(seen_by_layers(recipe, found.parallelism))
        grid = Grid(
            found=found, seen=seen, shapes=shapes, sizes=sizes, batches=batches,
            layouts=[self._layout(found.parallelism, int(rank)) for rank in ranks], ranks=ranks,
            accumulation=accumulation, runs=runs, held=self._held(recipe),
            peaks=np.zeros_like(accumulation),
        )  # fmt: skip
        if found.parallelism.splits_model:
            grid.waiting = np.zeros(grid.accumulation.shape)
            grid.peaks = split_peaks(self.model, grid)
            return grid
        self._fill_waiting(grid)
        self._fill_peaks(grid)
        return grid

    def walk(self, grid: Grid, *, accumulating: bool) -> Walked:
        """The longest micro-batches and the average ones, walked together.

        Operations are the same whether gradients are there already or not.
        """
        batches = grid.batches
        sequences = np.array([float(batch.sequences) for batch in batches] * 2)
        lengths = np.array(
            [batch.worst_length for batch in batches] + [batch.mean_length for batch in batches]
        )
        key = (grid.seen, accumulating, sequences.tobytes(), lengths.tobytes())
        found = self._walks.get(key)
        if found is None:
            seen = replace(grid.seen, gradient_accumulation_steps=2 if accumulating else 1)
            found = self._walks[key] = walk_model(
                self.model, seen, Parallelism(), sequences=sequences, length=lengths
            )
        if grid.walked is None:
            grid.walked = found
        return found

    def _layout(self, layout: Parallelism, ranks: int) -> Parallelism:
        key = (layout, ranks)
        if key not in self._layouts:
            self._layouts[key] = replace(layout, data=ranks)
        return self._layouts[key]

    def _held(self, recipe: TrainingRecipe) -> Persistent:
        """What is held for the whole run, which no micro-batch changes."""
        key = replace(as_walked(recipe), optimizer=recipe.optimizer)
        if key not in self._persistents:
            self._persistents[key] = persistent(self.model, recipe)
        return self._persistents[key]

    def _batch(self, found: ResolvedRecipe, size: int) -> BatchShape:
        recipe, run = found.recipe, found.run
        key = (
            *(size, recipe.packing, recipe.max_length, recipe.sequences_per_sample),
            *(run.padding, run.max_steps, run.num_train_epochs),
            recipe.gradient_accumulation_steps,
        )
        if key not in self._batches:
            sized = replace(recipe, per_device_train_batch_size=size)
            seen = samples_seen(replace(found, recipe=sized), self.dataset, 1)
            self._batches[key] = shape_of_batch(
                self.dataset.statistics, sized, run.padding, samples_seen=seen
            )
        return self._batches[key]

    def _fill_waiting(self, grid: Grid) -> None:
        """Share that the slowest rank computes longer, by shape and micro-batch."""
        grid.waiting = np.zeros(grid.accumulation.shape)
        if grid.fixed.all():
            return
        for row, layout in enumerate(grid.layouts):
            share = imbalance_of(
                layout,
                fixed=False,
                samples_per_rank=grid.samples * grid.accumulation[row],
                spread=self.spread,
            )
            grid.waiting[row] = np.where(grid.fixed, 0.0, share)

    def _fill_peaks(self, grid: Grid) -> None:
        recipe, layout = grid.found.recipe, grid.found.parallelism
        splits = layout.shards_optimizer or layout.offload.value != "none"
        for several in (False, True):
            mask = ((grid.accumulation > 1) == several) & grid.runs
            if not mask.any():
                continue
            walked = self.walk(grid, accumulating=several)
            counted = replace(recipe, gradient_accumulation_steps=2 if several else 1)
            for row in np.flatnonzero(mask.any(axis=1)):
                at = grid.layouts[row]
                key = (counted, at if splits else at.strategy, id(walked))
                if key not in self._peaks:
                    count = assemble(walked, counted, at, grid.held)
                    both = np.asarray(count.peak_bytes, dtype=float)
                    self._peaks[key] = both[: len(grid.sizes)]
                grid.peaks[row] = np.where(mask[row], self._peaks[key], grid.peaks[row])
