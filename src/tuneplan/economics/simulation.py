"""Many cases of a project by drawing every open figure; percentiles; which figure matters most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.economics.project import (
    P90_SCORE,
    RUN_HOURS,
    SPANS,
    Phase,
    Work,
    drivers,
    num_runs,
    values_at,
)
from tuneplan.frozen import dataclass

Floats = NDArray[np.float64]
_SUMMED: Final = 40  # from so many uniform numbers on their sum is normal for our purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """What half, four fifths and nineteen twentieths of all cases stay below; P10 and the mean."""

    p10: float
    p50: float
    p80: float
    p90: float
    p95: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """The open figures of one job, drawn.

    Attributes:
        values: By name, one entry a case.
        lost_share: Hours lost in failed runs over training hours, by phase.
    """

    values: Mapping[str, Floats]
    lost_share: Mapping[Phase, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One open figure: what the total is where it alone is at its P10 or P90.

    Attributes:
        job: Place of the job; None for what all jobs share.
    """

    name: str
    job: int | None
    low: float
    high: float
    total_at_low: float
    total_at_high: float

    @property
    def swing(self) -> float:
        """How far apart the two totals are."""
        return abs(self.total_at_high - self.total_at_low)


def quantiles(values: Floats) -> Quantiles:
    """Percentiles of the cases."""
    p10, p50, p80, p90, p95 = (
        float(one) for one in np.quantile(values, [0.1, 0.5, 0.8, 0.9, 0.95])
    )
    return Quantiles(p10=p10, p50=p50, p80=p80, p90=p90, p95=p95, mean=float(values.mean()))


def draw(generator: np.random.Generator, works: Sequence[Work], draws: int) -> tuple[Cases, ...]:
    """Draw every open figure of every job.

    The error of the estimated hours is one draw for all jobs: they share the formulas, and often
    the card. Everything else is drawn for each job by itself.
    """
    score = generator.standard_normal(draws)
    found = []
    for work in works:
        places = {RUN_HOURS: score, **{name: generator.random(draws) for name in SPANS}}
        values = values_at(work, places)
        lost = _lost_share(generator, work, values, draws)
        found.append(Cases(values=values, lost_share=lost))
    return tuple(found)


def _lost_share(
    generator: np.random.Generator, work: Work, values: Mapping[str, Floats], draws: int
) -> dict[Phase, Floats]:
    """Failed runs, and how far each had come, as a share of the phase's training hours."""
    found = {}
    for phase, runs in num_runs(work, values["retry_factor"]).items():
        if work.failure_fraction.high == 0 or not runs.any():
            found[phase] = np.zeros(draws)
            continue
        failed = generator.binomial(runs.astype(np.int64), values["failure_fraction"])
        found[phase] = _sum_of_uniforms(generator, failed) / np.maximum(runs, 1)
    return found


def _sum_of_uniforms(generator: np.random.Generator, counts: NDArray[np.int64]) -> Floats:
    total = np.zeros(len(counts))
    few = np.where(counts <= _SUMMED, counts, 0)
    for number in range(int(few.max(initial=0))):
        total += generator.random(len(counts)) * (few > number)
    many = counts > _SUMMED
    spread = np.sqrt(counts / 12)
    return np.where(many, generator.normal(counts / 2, spread), total)


def tornado(
    works: Sequence[Work], total: Callable[[Sequence[Mapping[str, Floats]]], Floats]
) -> tuple[Driver, ...]:
    """What each open figure alone does to the total, largest first.

    Args:
        works: The jobs.
        total: Of the values of every job, each an array of cases: failures as expected.
    """
    ends = np.array([0.1, 0.9])
    middle = np.full(2, 0.5)
    found = []
    asked: list[tuple[str, int | None]] = []
    if any(RUN_HOURS in drivers(work) for work in works):
        asked.append((RUN_HOURS, None))
    asked += [
        (name, place)
        for place, work in enumerate(works)
        for name in drivers(work)
        if name != RUN_HOURS
    ]
    for name, place in asked:
        values = []
        for number, work in enumerate(works):
            places = {**dict.fromkeys(SPANS, middle), RUN_HOURS: np.zeros(2)}
            if name == RUN_HOURS:
                places[RUN_HOURS] = np.array([-P90_SCORE, P90_SCORE])
            elif number == place:
                places[name] = ends
            values.append(values_at(work, places))
        totals = total(values)
        shown = values[place or 0][name]
        found.append(
            Driver(
                name=name,
                job=place,
                low=float(shown[0]),
                high=float(shown[1]),
                total_at_low=float(totals[0]),
                total_at_high=float(totals[1]),
            )
        )
    return tuple(sorted(found, key=lambda driver: (-driver.swing, driver.name, driver.job or 0)))


def median_values(work: Work) -> dict[str, Floats]:
    """Every open figure at its median, as one case."""
    middle = np.full(1, 0.5)
    return values_at(work, {**dict.fromkeys(SPANS, middle), RUN_HOURS: np.zeros(1)})
