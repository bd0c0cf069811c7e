"""What interruptions add to a run on spot instances: exactly, and by drawing them.

A run of ``work`` hours writes a checkpoint every ``segment`` hours. Interruptions come at random
(a Poisson process), whatever the machine is doing: one costs the work since the last checkpoint,
a wait for a new machine and a restart, which can be interrupted too.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.economics.energy import product
from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.spec.offer import Offer

Floats = NDArray[np.float64]
_NEVER: Final = 1e4  # interruptions; a run that expects more does not end
_P90: Final = 1.2815515655446004  # standard deviations of a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Hours of an interrupted run, as mean and variance.

    Attributes:
        interruptions: How many are expected.
        paid_hours: With a machine: the work, what is lost of it, restarts.
        paid_variance: In hours squared.
        clock_hours: The same and the waits for a new machine.
        clock_variance: In hours squared.
    """

    interruptions: float
    paid_hours: float
    paid_variance: float
    clock_hours: float
    clock_variance: float

    @property
    def ends(self) -> bool:
        """Whether there is a sensible chance of getting to the end."""
        return self.interruptions < _NEVER


def interrupted(
    *,
    work_hours: float,
    segment_hours: float,
    every_hours: float,
    restart_hours: float,
    wait_hours: float = 0.0,
) -> Interrupted:
    """Mean and variance by renewal, segment by segment.

    A segment of ``s`` hours is begun again until an attempt passes without interruption, which
    has the chance exp(-s/m) for a mean time ``m`` between interruptions. So the failed attempts
    are geometric, each lasts as an exponential time below ``s`` does, and each is followed by a
    restart of ``r`` hours, which is such a process itself. The mean is m (exp(s/m) - 1) exp(r/m),
    as in Daly 2006 ("A higher order estimate of the optimum checkpoint interval", FGCS 22), with
    the writing of the checkpoint as a part of the segment.

    Args:
        work_hours: Of the run without interruptions, checkpoints included.
        segment_hours: Work from one checkpoint to the next.
        every_hours: Mean time between two interruptions, of all machines of the job together.
        restart_hours: Charged hours until training goes on.
        wait_hours: Hours without a machine, not charged.
    """
    length = min(segment_hours, work_hours) if segment_hours > 0 else work_hours
    whole = int(work_hours / length + 1e-9) if length > 0 else 0
    rest = max(0.0, work_hours - whole * length)
    counts = [(whole, length), (1, rest)]
    paid = [0.0, 0.0]
    clock = [0.0, 0.0]
    number = 0.0
    for count, hours in counts:
        if count and hours > 1e-12:
            for total, wait in ((paid, 0.0), (clock, wait_hours)):
                restart = _passed(restart_hours, every_hours, wait, 0.0)
                mean, variance = _passed(hours, every_hours, wait + restart[0], restart[1])
                total[0] += count * mean
                total[1] += count * variance
            number += count * _grown(hours, every_hours) * (1 + _grown(restart_hours, every_hours))
    return Interrupted(
        interruptions=number,
        paid_hours=paid[0],
        paid_variance=paid[1],
        clock_hours=clock[0],
        clock_variance=clock[1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRun:
    """A run on a spot offer.

    Attributes:
        interruptions: Expected, of the likely run.
        paid_hours: Hours that are charged.
        clock_hours: Until the run is through, waits for machines among them.
    """

    interruptions: float
    paid_hours: Estimate
    clock_hours: Estimate


def spot_run(
    offer: Offer,
    *,
    num_instances: int,
    hours: Estimate,
    checkpoint_hours: float,
) -> SpotRun | None:
    """The hours of a run on a spot offer; None where it says nothing of interruptions.

    The run stops when any of its instances goes. What interruptions add is their mean, and ten
    and ninety per cent by a normal distribution with their variance, beside the run's own range.

    Args:
        offer: Whose ``interruptions`` count.
        num_instances: Instances of the job.
        hours: Of the run without interruptions.
        checkpoint_hours: Work between two checkpoints.
    """
    known = offer.interruptions
    if known is None or hours.likely <= 0:
        return None
    found = interrupted(
        work_hours=hours.likely,
        segment_hours=checkpoint_hours,
        every_hours=known.every_hours / num_instances,
        restart_hours=known.restart_hours,
        wait_hours=known.wait_hours,
    )
    return SpotRun(
        interruptions=found.interruptions,
        paid_hours=_stretched(hours, found.paid_hours, found.paid_variance),
        clock_hours=_stretched(hours, found.clock_hours, found.clock_variance),
    )


def _stretched(hours: Estimate, mean: float, variance: float) -> Estimate:
    spread = _P90 * math.sqrt(variance)
    factor = Estimate(
        low=max(1.0, (mean - spread) / hours.likely),
        likely=max(1.0, mean / hours.likely),
        high=max(1.0, (mean + spread) / hours.likely),
        basis=Basis.ANALYTIC,
    )
    return product(hours, factor)


def likely_paid_hours(
    offer: Offer, hours: Floats, segment_hours: Floats, *, num_instances: int
) -> Floats:
    """Likely charged hours of many runs on a spot offer; their own where it says nothing."""
    known = offer.interruptions
    if known is None:
        return hours
    every = known.every_hours / num_instances
    length = np.minimum(np.where(segment_hours > 0, segment_hours, hours), hours)
    whole = np.floor(hours / length + 1e-9)
    rest = np.maximum(0.0, hours - whole * length)
    lost = [np.expm1(np.minimum(part / every, 700.0)) for part in (length, rest)]
    paid: Floats = every * (whole * lost[0] + lost[1]) * math.exp(known.restart_hours / every)
    return paid


def simulate_interrupted(
    generator: np.random.Generator,
    work_hours: Floats,
    *,
    segment_hours: float,
    every_hours: float,
    restart_hours: float,
    wait_hours: float = 0.0,
) -> tuple[Floats, Floats]:
    """Charged hours and hours on the clock of each run, interruption by interruption.

    Args:
        generator: Draws the times between interruptions.
        work_hours: One entry a run.
        segment_hours: As for ``interrupted``.
        every_hours: As for ``interrupted``.
        restart_hours: As for ``interrupted``.
        wait_hours: As for ``interrupted``.
    """
    left = work_hours.astype(np.float64).copy()
    segment = np.where(segment_hours > 0, np.minimum(segment_hours, left), left)
    paid = np.zeros_like(left)
    clock = np.zeros_like(left)
    starting = np.zeros_like(left)
    running = left > 0
    while running.any():
        until = generator.exponential(every_hours, size=left.shape)
        needed = starting + left
        ends = running & (until >= needed)
        paid[ends] += needed[ends]
        clock[ends] += needed[ends]
        running &= ~ends
        worked = np.maximum(0.0, until - starting)
        kept = np.floor(worked / np.where(segment > 0, segment, 1.0)) * segment
        paid[running] += until[running]
        clock[running] += until[running] + wait_hours
        left[running] -= kept[running]
        starting[running] = restart_hours
    return paid, clock


def _grown(hours: float, every_hours: float) -> float:
    """Interruptions that are expected until so many hours have passed without one."""
    ratio = hours / every_hours
    return math.expm1(min(ratio, 700.0))


def _passed(
    hours: float, every_hours: float, after_mean: float, after_variance: float
) -> tuple[float, float]:
    """Mean and variance of the time until ``hours`` pass without an interruption.

    Each interruption is followed by a time of its own, with mean and variance as given.
    """
    if hours <= 0:
        return 0.0, 0.0
    failures = _grown(hours, every_hours)
    failures_variance = failures * (1 + failures)
    mean, variance = _below(hours, every_hours)
    each = mean + after_mean
    return (
        hours + failures * each,
        failures * (variance + after_variance) + failures_variance * each**2,
    )


def _below(hours: float, every_hours: float) -> tuple[float, float]:
    """Mean and variance of an exponential time, given that it is below ``hours``."""
    ratio = hours / every_hours
    if ratio < 1e-4:  # all but uniform
        return hours / 2, hours**2 / 12
    odds = 1 / math.expm1(min(ratio, 700.0))
    mean = every_hours - hours * odds
    variance = every_hours**2 - hours**2 * odds * (1 + odds)
    return mean, max(0.0, variance)
