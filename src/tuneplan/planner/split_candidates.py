"""Candidates whose layout splits the model: each counted and timed as its estimate would.

Layouts share less here than others do (micro-batches in flight depend on the accumulation, links
on the place of a group), so nothing is computed for many candidates at once but what is equal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.split_memory import count_split_memory
from tuneplan.planner.evaluating import evaluate_step
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.recipe import TrainingRecipe

if TYPE_CHECKING:
    from tuneplan.planner.grids import Grid

Floats = NDArray[np.float64]


def split_peaks(model: ModelArchitecture, grid: Grid) -> Floats:
    """Likely allocated bytes by shape and micro-batch, for a chip with small workspaces."""
    peaks = np.zeros_like(grid.accumulation)
    known: dict[Any, float] = {}
    for row, column in zip(*np.nonzero(grid.runs), strict=True):
        layout, batch = grid.layouts[row], grid.batches[column]
        recipe = _with_steps(grid, int(row), int(column))
        in_flight = layout.pipeline * layout.virtual_stages
        steps = min(recipe.gradient_accumulation_steps, in_flight + 1)
        key = (column, steps, layout.shards)
        if key not in known:
            count = count_split_memory(
                model, recipe, layout, sequences=float(batch.sequences), length=batch.worst_length
            )
            known[key] = float(count.peak_bytes)
        peaks[row, column] = known[key]
    return peaks


def split_times(
    model: ModelArchitecture,
    grid: Grid,
    rows: NDArray[np.intp],
    clusters: list[Cluster],
    fits: NDArray[np.bool_],
    curves: ChipCurves,
    statistics: TokenStatistics | None,
) -> tuple[Floats, Floats]:
    """Seconds of a step and of one micro-batch's forward, NaN where it does not fit.

    ``rows`` are the shapes to time, ``clusters`` one for each of them; ``fits`` says by shape (of
    all) and micro-batch what to time.
    """
    step_s = np.full((len(rows), len(grid.sizes)), np.nan)
    forward_s = np.full(step_s.shape, np.nan)
    for place, (row, cluster) in enumerate(zip(rows, clusters, strict=True)):
        for column in np.flatnonzero(fits[row]):
            step, _ = evaluate_step(
                model,
                _with_steps(grid, int(row), int(column)),
                grid.layouts[row],
                cluster,
                curves,
                grid.batches[column],
                statistics,
            )
            step_s[place, column] = step.step_s.likely
            forward_s[place, column] = step.forward_s
    return step_s, forward_s


def _with_steps(grid: Grid, row: int, column: int) -> TrainingRecipe:
    return replace(
        grid.found.recipe,
        per_device_train_batch_size=grid.sizes[column],
        gradient_accumulation_steps=int(grid.accumulation[row, column]),
    )
