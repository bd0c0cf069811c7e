"""A calibration applied to the answers of physics: memory's ranges, a step's seconds."""

from __future__ import annotations

import math
from dataclasses import replace

from tuneplan.calibration.calibrated import Calibration
from tuneplan.calibration.hierarchy import Nearest
from tuneplan.calibration.situations import Figure, Situation
from tuneplan.estimation.spread import Spread
from tuneplan.estimation.step_time import StepTime
from tuneplan.estimation.uncertainty import (
    Fit,
    MemoryRanges,
    MemorySpreads,
    Reserving,
    fit_on,
    memory_ranges,
    peak_range,
    prior_distances,
    reserved_prior,
)
from tuneplan.frozen import dataclass
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Estimate, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPhysics:
    """What physics says of the memory of the worst rank, before any measured run is looked at.

    Attributes:
        likely_bytes: The allocated peak of the longest micro-batch to expect.
        limit_bytes: Of the longest that can occur.
        prior: Factors on the allocated peak at P10 and P90.
        context_bytes: Of the process on the card.
        capacity_bytes: Of the card; None where none is stated.
        reserving: What a replay of the allocator said; None where reserved memory is a ratio.
    """

    likely_bytes: float
    limit_bytes: float
    prior: tuple[float, float]
    context_bytes: float
    capacity_bytes: int | None
    reserving: Reserving | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedMemory:
    """Ranges and verdict, with the spreads and the runs that they come from (None: priors)."""

    ranges: MemoryRanges
    fit: Fit | None
    spreads: MemorySpreads
    nearest: Nearest | None


def calibrated_memory(
    physics: MemoryPhysics, situation: Situation, calibration: Calibration | None
) -> CalibratedMemory:
    """Ranges of memory: from measured runs, or from the stated priors where there are none."""
    nearest, factors, basis = None, physics.prior, Basis.ANALYTIC
    spreads = MemorySpreads()
    if calibration is not None:
        prior, reserving = physics.prior, physics.reserving
        allocated = calibration.spread(Figure.ALLOCATED, situation, prior_distances(prior))
        reserved = calibration.spread(Figure.RESERVED, situation, reserved_prior(prior, reserving))
        spreads = MemorySpreads(
            allocated=allocated[0] if allocated else None,
            reserved=reserved[0] if reserved else None,
            reserved_is_near=bool(reserved and reserved[1].is_near),
        )
        if allocated is not None:
            factors = allocated[0].low_factor, allocated[0].high_factor
            nearest = allocated[1]
            basis = Basis.CALIBRATED if nearest.is_near else basis
    ranges = memory_ranges(
        peak_range(physics.likely_bytes, physics.limit_bytes, factors, basis=basis),
        context_bytes=physics.context_bytes,
        capacity_bytes=physics.capacity_bytes,
        reserving=physics.reserving,
        spreads=spreads,
    )
    capacity = physics.capacity_bytes
    fit = fit_on(ranges.needed_bytes, capacity, spreads.allocated) if capacity else None
    return CalibratedMemory(ranges=ranges, fit=fit, spreads=spreads, nearest=nearest)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedRate:
    """How a step changes, and the runs that say so.

    Attributes:
        factor: On the likely seconds.
        low_factor, high_factor: P10 and P90 of the seconds over the (changed) likely ones.
        spread: Of the rate of tokens.
    """

    factor: float
    low_factor: float
    high_factor: float
    nearest: Nearest
    spread: Spread


def calibrated_rate(
    calibration: Calibration, situation: Situation, step_s: Estimate
) -> CalibratedRate | None:
    """What measured rates of tokens say of a step; None where they say nothing.

    A rate is the inverse of a time: what lies above the likely rate lies below the likely time.
    """
    if not 0.0 < step_s.low < step_s.likely < step_s.high:
        return None
    # Distances of the prior's P10 and P90 of the rate.
    prior = math.log(step_s.high / step_s.likely), math.log(step_s.likely / step_s.low)
    found = calibration.spread(Figure.TOKENS, situation, prior)
    if found is None:
        return None
    spread, nearest = found
    return CalibratedRate(
        factor=math.exp(-calibration.log_shift(Figure.TOKENS, situation)),
        low_factor=1.0 / spread.high_factor,
        high_factor=1.0 / spread.low_factor,
        nearest=nearest,
        spread=spread,
    )


def calibrated_step(
    calibration: Calibration | None, situation: Situation, step: StepTime
) -> tuple[StepTime, Nearest | None]:
    """A step with the factor and the range that measured rates of tokens give it."""
    found = calibrated_rate(calibration, situation, step.step_s) if calibration else None
    if found is None:
        return step, None
    likely = step.step_s.likely * found.factor
    terms = step.terms
    if found.factor != 1.0:
        more = Term(
            kind="calibration",
            value=likely - step.step_s.likely,
            formula=sentence("(factor - 1) x step by physics"),
            inputs={"factor": found.factor, "runs": dict(found.nearest.rows)},
            source="calibration/shift.py; docs/accuracy.md",
            basis=Basis.CALIBRATED,
        )
        terms = (*terms, more)
    step_s = Estimate(
        low=likely * found.low_factor,
        likely=likely,
        high=likely * found.high_factor,
        basis=Basis.CALIBRATED if found.nearest.is_near else step.step_s.basis,
    )
    forward_s = step.forward_s * found.factor
    return replace(step, step_s=step_s, terms=terms, forward_s=forward_s), found.nearest
