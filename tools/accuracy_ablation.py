"""What each part of the physics buys: errors with the part taken away, nothing else changed.

The switches are in this file alone: parts are taken out of the sum that was predicted, or the
functions that predict get a recipe, or curves, without the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
from accuracy_runs import Case, Runs, cases

from tuneplan.catalog import kernels
from tuneplan.estimation.uncertainty import RESERVED
from tuneplan.planner import estimate, sources
from tuneplan.planner.validate import Validation
from tuneplan.runs.comparison import Quantity
from tuneplan.runs.summaries import percentile
from tuneplan.spec.kernels import ChipCurves, GemmCurve
from tuneplan.spec.recipe import LossPath, TrainingRecipe

_TRAFFIC = ("elementwise", "loss", "embedding", "optimizer", "adapter", "dequantize", "recurrence")


@dataclass(frozen=True)
class Line:
    """One part: errors with it and without."""

    figure: str
    part: str
    count: int
    full: tuple[float, float]
    without: tuple[float, float]


def ablation(runs: Runs) -> list[Line]:
    """Every part, of the figure that it is for."""
    physics = runs.physics
    rates = [one for one in cases(physics) if not one.item.quantity.is_memory]
    allocated = [one for one in cases(physics) if one.item.quantity is Quantity.ALLOCATED]
    reserved = [one for one in cases(physics) if one.item.quantity is Quantity.RESERVED]
    speed, memory = "throughput", "allocated memory"
    return [
        _line(speed, "measured curves of products (datasheet peak instead)", rates,
              _again(runs, rates, _peak_products)),
        _line(speed, "memory traffic beside the products", rates,
              [_without_terms(one, _TRAFFIC) for one in rates]),
        _line(speed, "launch floor", rates,
              [_without_terms(one, ("launch", "host")) for one in rates]),
        _line(speed, "communication and splits", rates,
              [_without_terms(one, _EXCHANGES) for one in rates]),
        _line(speed, "calibration (each source held out)", rates,
              [_error(one) for one in cases(runs.held_out_sources)
               if not one.item.quantity.is_memory], calibration=True),
        _line(memory, "the loss as it runs (fp32 copy of all logits instead)", allocated,
              _again(runs, allocated, _full_loss)),
        _line(memory, "upcasts (everything in the compute dtype instead)", allocated,
              _again(runs, allocated, _no_upcasts)),
        _line("reserved memory", "the allocator (allocated peak instead)", reserved,
              [_as_allocated(one, 1.0) for one in reserved]),
        _line("reserved memory", f"its replay (allocated x {RESERVED.likely} instead)", reserved,
              [_as_allocated(one, RESERVED.likely) for one in reserved]),
    ]  # fmt: skip


_EXCHANGES = (
    "communication", "tensor_exchange", "context_exchange", "expert_exchange", "stage_transfers",
    "pipeline_bubble",
)  # fmt: skip


def _error(one: Case) -> float:
    return abs(one.item.error_fraction)


def _line(
    figure: str,
    part: str,
    found: Sequence[Case],
    errors: Sequence[float],
    *,
    calibration: bool = False,
) -> Line:
    full = _both([_error(one) for one in found])
    other = _both(errors)
    # Calibration is what is added to the physics, not a part of it.
    return Line(figure, part, len(errors), *((other, full) if calibration else (full, other)))


def _both(errors: Sequence[float]) -> tuple[float, float]:
    return (percentile(errors, 50), percentile(errors, 90)) if errors else (math.nan, math.nan)


def _without_terms(one: Case, kinds: Sequence[str]) -> float:
    terms = one.predicted.time_terms
    step = sum(term.value for term in terms)
    left = sum(term.value for term in terms if term.kind not in kinds)
    rate = one.item.likely * step / left if left > 0 else math.inf
    return abs(rate / one.item.measured - 1.0)


def _as_allocated(one: Case, ratio: float) -> float:
    peak = one.predicted.peak_bytes
    return abs(peak.likely * ratio / one.item.measured - 1.0) if peak else math.nan


Switch = Callable[[], Any]


def _again(runs: Runs, found: Sequence[Case], switch: Switch) -> list[float]:
    """Errors of the same figures, predicted with a part taken away (no allocator is replayed)."""
    with switch():
        changed: Validation = runs.predicted_with(lambda _: False)
    errors = {(one.row.run.id, one.item.quantity): _error(one) for one in cases(changed)}
    return [errors[key] for one in found if (key := (one.row.run.id, one.item.quantity)) in errors]


@contextmanager
def _peak_products() -> Iterator[None]:
    with patch.object(sources, "load_curves", lambda chip: _at_peak(kernels.load_curves(chip))):
        yield


def _at_peak(curves: ChipCurves) -> ChipCurves:
    def flat(dtype: str, curve: GemmCurve) -> GemmCurve:
        peak = curves.peak_flop_per_s.get(dtype) or curves.half_flop_per_s
        shape = curve.log_m[:, None, None] + curve.log_n[None, :, None] + curve.log_k[None, None, :]
        return replace(curve, log_time_s=shape + math.log(2.0) - np.log(peak))

    products = {dtype: flat(dtype, curve) for dtype, curve in curves.gemm.items()}
    return replace(curves, gemm=MappingProxyType(products))


@contextmanager
def _with_recipe(change: Callable[[TrainingRecipe], TrainingRecipe]) -> Iterator[None]:
    real = estimate.evaluate_memory

    def evaluate(model: Any, recipe: TrainingRecipe, *others: Any, **options: Any) -> Any:
        return real(model, change(recipe), *others, **options)

    with patch.object(estimate, "evaluate_memory", evaluate):
        yield


def _full_loss() -> Any:
    def change(recipe: TrainingRecipe) -> TrainingRecipe:
        loss = replace(
            recipe.loss, path=LossPath.FULL, upcast_logits=True, chunk_tokens=0, num_chunks=0,
            keeps_logits=False, keeps_softmax=False, output_fp32_copies=0,
            holds_model_logits=False, fp32_gradients=False, shifted_copy=False,
        )  # fmt: skip
        return replace(recipe, loss=loss)

    return _with_recipe(change)


def _no_upcasts() -> Any:
    def change(recipe: TrainingRecipe) -> TrainingRecipe:
        half = recipe.compute_dtype
        adapter = recipe.adapter and replace(recipe.adapter, dtype=half, fp32_input=False)
        return replace(
            recipe, outer_dtype=half, norm_dtype=half, hidden_dtype=half, adapter=adapter,
            trainable_dtype=half, fp32_norm_math=False,
        )  # fmt: skip

    return _with_recipe(change)
