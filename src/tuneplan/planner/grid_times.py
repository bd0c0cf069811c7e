"""Seconds of a grid of candidates on one chip, on likely figures only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.calibration.calibrated import Calibration
from tuneplan.calibration.situations import Figure, situation_of
from tuneplan.estimation.bundles import Bundle, bundle, bundle_time
from tuneplan.estimation.communication import communication_term
from tuneplan.estimation.offload import offload_term
from tuneplan.estimation.optimizer_step import step_operations
from tuneplan.estimation.run_time import likely_run
from tuneplan.estimation.sharded_units import Unit, communication_units
from tuneplan.estimation.step_time import MICRO_BATCH_HOST_S, compute_time, launch_time_s
from tuneplan.estimation.walking import Walked
from tuneplan.planner.grids import Grid, Grids
from tuneplan.planner.resolving import schedule_of
from tuneplan.planner.split_candidates import split_times
from tuneplan.planner.storing import checkpoint_size
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe

Floats = NDArray[np.float64]


class GridTimes:
    """Prices grids; what recipes and counts of cards have in common is priced once a chip."""

    def __init__(
        self, grids: Grids, disk_bytes_per_s: float | None, calibration: Calibration | None = None
    ) -> None:
        self.grids, self.model = grids, grids.model
        self.disk_bytes_per_s = disk_bytes_per_s
        self.calibration = calibration
        self._bundles: dict[int, Bundle] = {}
        self._computed: dict[Any, tuple[Floats, Floats]] = {}
        self._optimizer: dict[Any, float] = {}
        self._communication: dict[Any, tuple[float, float]] = {}
        self._units: dict[Any, tuple[Unit, ...]] = {}
        self._facts: dict[tuple[Any, ...], int] = {}

    def times(
        self,
        grid: Grid,
        clusters: Sequence[Cluster | None],
        fits: NDArray[np.bool_],
        curves: ChipCurves,
    ) -> tuple[Floats, Floats, Floats]:
        """Seconds of a step, of the run, and of the run between two checkpoints.

        NaN in rows where nothing fits or no card joins.

        Raises:
            InputError: The chip cannot compute it.
        """
        step_s = np.full(grid.peaks.shape, np.nan)
        total_s = np.full(grid.peaks.shape, np.nan)
        segment_s = np.full(grid.peaks.shape, np.nan)
        joined = np.array([cluster is not None for cluster in clusters])
        rows = np.flatnonzero(joined & fits.any(axis=1))
        if not len(rows):
            return step_s, total_s, segment_s
        factor = self._factor(grid, curves)
        if grid.found.parallelism.splits_model:
            joined_clusters = [one for row in rows if (one := clusters[row]) is not None]
            step_s[rows], split_forward_s = split_times(
                self.model, grid, rows, joined_clusters, fits, curves,
                self.grids.dataset.statistics,
            )  # fmt: skip
            step_s[rows] *= factor
            total_s[rows], segment_s[rows] = self._total(
                grid, rows, step_s[rows], split_forward_s * factor
            )
            return step_s, total_s, segment_s
        micro_s, forward_s = self._compute(grid, curves)
        once, per_micro, per_step = self._by_shape(grid, rows, clusters, curves)
        accumulation = grid.accumulation[rows]
        own = (micro_s + MICRO_BATCH_HOST_S) * accumulation + once
        physics = own * (1 + grid.waiting[rows]) + per_micro * accumulation + per_step
        step_s[rows] = physics * factor
        total_s[rows], segment_s[rows] = self._total(grid, rows, step_s[rows], forward_s * factor)
        return step_s, total_s, segment_s

    def _factor(self, grid: Grid, curves: ChipCurves) -> float:
        """What measured runs of the program on this chip make of a step."""
        if self.calibration is None:
            return 1.0
        found = grid.found  # every layout of a grid has the same factor
        situation = situation_of(found.recipe, found.parallelism, curves.accelerator)
        return math.exp(-self.calibration.log_shift(Figure.TOKENS, situation))

    def _compute(self, grid: Grid, curves: ChipCurves) -> tuple[Floats, Floats]:
        """Seconds of one average micro-batch, and of its forward pass."""
        walked = grid.walked or self.grids.walk(grid, accumulating=False)
        key = (id(walked), id(curves))
        if key not in self._computed:
            launch_s = launch_time_s(grid.found.recipe.kernels, curves)
            total, forward = bundle_time(self._bundle(walked), curves, launch_s=launch_s)
            self._computed[key] = (np.asarray(total), np.asarray(forward))
        return self._computed[key]

    def _bundle(self, walked: Walked) -> Bundle:
        """Of the average micro-batches, which are the second half of those walked."""
        found = self._bundles.get(id(walked))
        if found is None:
            average = slice(np.size(walked.length) // 2, None)
            found = self._bundles[id(walked)] = bundle(walked.operations()).part(average)
        return found

    def _by_shape(
        self,
        grid: Grid,
        rows: NDArray[np.intp],
        clusters: Sequence[Cluster | None],
        curves: ChipCurves,
    ) -> tuple[Floats, Floats, Floats]:
        """Seconds by shape, as columns: optimizer, exchange per micro-batch, and once a step."""
        found, held = grid.found, grid.held
        layout, recipe = found.parallelism, found.recipe
        step = self._known(
            "step", layout.strategy, layout.offload, recipe.method, recipe.optimizer,
            held.num_trained,
        )  # fmt: skip
        exchange = self._known(
            "exchange", layout, recipe.method, recipe.adapter, recipe.quantization,
            recipe.compute_dtype, recipe.gradient_dtype,
            recipe.gradients_unsharded_while_accumulating,
        )  # fmt: skip
        columns = np.zeros((3, len(rows), 1))
        for place, row in enumerate(rows):
            cluster, at = clusters[row], grid.layouts[row]
            assert cluster is not None  # noqa: S101 - the row is joined
            columns[0, place] = self._optimizer_s(grid, at, curves, step)
            columns[1:, place, 0] = self._exchange(grid, at, cluster, curves, exchange)
        return columns[0], columns[1], columns[2]

    def _known(self, *facts: Any) -> int:
        """A number for equal facts, which is quicker to look up than the facts."""
        return self._facts.setdefault(facts, len(self._facts))

    def _optimizer_s(self, grid: Grid, layout: Parallelism, curves: ChipCurves, step: int) -> float:
        key = (id(curves), layout.shards, step)
        if key not in self._optimizer:
            recipe = grid.found.recipe
            operations = step_operations(grid.held, recipe, layout)
            computed = compute_time((), operations, recipe, curves)
            self._optimizer[key] = float(np.asarray(computed.total_s))
        return self._optimizer[key]

    def _exchange(
        self, grid: Grid, layout: Parallelism, cluster: Cluster, curves: ChipCurves, exchange: int
    ) -> tuple[float, float]:
        """Seconds of communication and offload: per micro-batch, and once a step."""
        if layout.world_size == 1 and layout.offload.value == "none":
            return 0.0, 0.0
        key = (id(cluster), id(curves), exchange)
        if key not in self._communication:
            recipe = grid.found.recipe
            facts = (recipe.method, recipe.adapter, recipe.quantization, recipe.compute_dtype)
            if facts not in self._units:
                self._units[facts] = communication_units(self.model, recipe)
            one, two = (
                _exchange_s(
                    self._units[facts], replace(recipe, gradient_accumulation_steps=steps), layout,
                    cluster, curves,
                )
                for steps in (1, 2)
            )  # fmt: skip
            self._communication[key] = (two - one, 2 * one - two)
        return self._communication[key]

    def _total(
        self, grid: Grid, rows: NDArray[np.intp], step_s: Floats, forward_s: Floats
    ) -> tuple[Floats, Floats]:
        statistics = self.grids.dataset.statistics
        if statistics is None or not statistics.num_samples:
            unknown = np.full(step_s.shape, np.nan)
            return unknown, unknown
        recipe, schedule = grid.found.recipe, schedule_of(grid.found)
        run = likely_run(
            step_s=step_s,
            forward_s=forward_s,
            sequences=np.array([float(batch.sequences) for batch in grid.batches]),
            samples=grid.samples,
            num_samples=statistics.num_samples,
            num_eval_samples=statistics.num_eval_samples,
            accumulation=grid.accumulation[rows],
            ranks=grid.ranks[rows][:, None],
            disk_bytes_per_s=self.disk_bytes_per_s,
            schedule=schedule,
            checkpoint_bytes=checkpoint_size(self.model, recipe, grid.held),
            model_bytes=float(self.model.total_parameters * recipe.frozen_dtype.num_bytes),
        )
        total_s = np.asarray(run.total_s)
        return total_s, total_s * schedule.saved_share(run.steps, run.steps_per_epoch)


def _exchange_s(
    units: tuple[Unit, ...],
    recipe: TrainingRecipe,
    layout: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
) -> float:
    seconds = communication_term(units, recipe, layout, cluster, curves).value
    offload = offload_term(units, recipe, layout, cluster)
    return seconds + (offload.value if offload is not None else 0.0)
