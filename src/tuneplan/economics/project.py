"""The hours of a project around a run: experiments, sweeps, versions of the data, retries.

Three phases: a proof of concept, the main runs, the hand-over. All hours are of machines, so two
runs at the same time count twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Estimate

Floats = NDArray[np.float64]
P90_SCORE: Final = 1.2815515655446004  # standard deviations of a normal distribution at P90


class Phase(StrEnum):
    """What a project does one after the other."""

    PROOF_OF_CONCEPT = "proof_of_concept"
    MAIN = "main"
    HAND_OVER = "hand_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A figure that may be anything between two ends, each as likely as another."""

    low: float
    high: float

    def at(self, share: Floats) -> Floats:
        """The value that a share of all cases lies below."""
        found: Floats = self.low + (self.high - self.low) * share
        return found

    @property
    def is_range(self) -> bool:
        """Whether it is open at all."""
        return self.high > self.low


def exactly(value: float) -> Span:
    """A figure that is known."""
    return Span(low=value, high=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one job's project has to do.

    Attributes:
        run_hours: Of one full run, on the clock.
        num_experiments: Runs before the main ones, each ``experiment_fraction`` of a full run.
        num_sweep_runs: Runs that look for settings, each ``sweep_fraction`` of a full run.
        data_iterations: Full runs, one for each version of the data.
        retry_factor: How often each of these runs is done until it counts.
        failure_fraction: Share of runs that stop at some point, each as likely, and lose what
            they had.
        evaluation_hours: After each full run, and once more at the hand-over.
        setup_hours: Before the first run.
        transfer_in_hours: Model and data onto the machine.
        transfer_out_hours: What is handed over off the machine.
        idle_fraction: Share of rented time in which nothing runs: nights, waiting for people.
    """

    run_hours: Estimate
    num_experiments: int = 0
    experiment_fraction: Span = exactly(1)
    num_sweep_runs: int = 0
    sweep_fraction: Span = exactly(1)
    data_iterations: int = 1
    retry_factor: Span = exactly(1)
    failure_fraction: Span = exactly(0)
    evaluation_hours: Span = exactly(0)
    setup_hours: Span = exactly(0)
    idle_fraction: Span = exactly(0)
    transfer_in_hours: float = 0.0
    transfer_out_hours: float = 0.0


SPANS: Final = (
    "experiment_fraction",
    "sweep_fraction",
    "retry_factor",
    "failure_fraction",
    "evaluation_hours",
    "setup_hours",
    "idle_fraction",
)
RUN_HOURS: Final = "run_hours"
FAILURE_LUCK: Final = "failure_luck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The hours of one phase, one entry a case.

    Attributes:
        training: Runs, with their repetitions.
        lost: In runs that failed.
        evaluation: On the rented machine.
        waiting: Set-up and transfers: rented, and nothing runs.
        idle_fraction: Of what is rented for the others.
    """

    training: Floats
    lost: Floats
    evaluation: Floats
    waiting: Floats
    idle_fraction: Floats

    @property
    def busy(self) -> Floats:
        """Hours in which the machine works."""
        return self.training + self.lost + self.evaluation

    def rented(self, added: Floats | float = 0.0) -> Floats:
        """Hours for which a machine is needed; ``added`` is what interruptions cost."""
        found: Floats = self.waiting + (self.busy + added) / (1 - self.idle_fraction)
        return found


def run_hours_at(hours: Estimate, score: Floats) -> Floats:
    """Hours of a run at standard scores: -1.28 is P10, 0 is P50, 1.28 is P90.

    Between and beyond the three the logarithm is straight on either side of the likely value.
    """
    if hours.low <= 0:
        return np.full_like(score, hours.likely)
    below = np.log(hours.likely / hours.low) / P90_SCORE
    above = np.log(hours.high / hours.likely) / P90_SCORE
    found: Floats = hours.likely * np.exp(np.where(score < 0, below, above) * score)
    return found


def values_at(work: Work, places: Mapping[str, Floats]) -> dict[str, Floats]:
    """Every open figure of a project.

    Args:
        work: What there is to do.
        places: Standard score of ``run_hours``; for the other names the share of cases that lie
            below the value.
    """
    found = {name: getattr(work, name).at(places[name]) for name in SPANS}
    found[RUN_HOURS] = run_hours_at(work.run_hours, places[RUN_HOURS])
    return found


def hours_of(
    work: Work, values: Mapping[str, Floats], lost_share: Mapping[Phase, Floats] | None = None
) -> dict[Phase, Hours]:
    """The hours of every phase.

    proof of concept = set-up + transfer in
                       + (experiments x fraction + sweep runs x fraction) x run x retries
    main             = data iterations x (run x retries + evaluation)
    hand-over        = evaluation + transfer out
    lost             = training x share lost; where it is not drawn, failures x 1/2

    Args:
        work: What there is to do.
        values: As ``values_at`` gives them.
        lost_share: Lost hours over training hours, by phase; None for what is expected.
    """
    run, retries = values[RUN_HOURS], values["retry_factor"]
    nothing = np.zeros_like(run)
    small = (
        work.num_experiments * values["experiment_fraction"]
        + work.num_sweep_runs * values["sweep_fraction"]
    )
    training = {
        Phase.PROOF_OF_CONCEPT: small * run * retries,
        Phase.MAIN: work.data_iterations * run * retries,
        Phase.HAND_OVER: nothing,
    }
    evaluation = {
        Phase.PROOF_OF_CONCEPT: nothing,
        Phase.MAIN: work.data_iterations * values["evaluation_hours"],
        Phase.HAND_OVER: values["evaluation_hours"],
    }
    waiting = {
        Phase.PROOF_OF_CONCEPT: values["setup_hours"] + work.transfer_in_hours,
        Phase.MAIN: nothing,
        Phase.HAND_OVER: nothing + work.transfer_out_hours,
    }
    return {
        phase: Hours(
            training=training[phase],
            lost=training[phase]
            * (values["failure_fraction"] / 2 if lost_share is None else lost_share[phase]),
            evaluation=evaluation[phase],
            waiting=waiting[phase],
            idle_fraction=values["idle_fraction"],
        )
        for phase in Phase
    }


def num_runs(work: Work, retries: Floats) -> dict[Phase, Floats]:
    """Runs of every phase, repetitions among them."""
    planned = {
        Phase.PROOF_OF_CONCEPT: work.num_experiments + work.num_sweep_runs,
        Phase.MAIN: work.data_iterations,
        Phase.HAND_OVER: 0,
    }
    return {phase: np.ceil(np.round(count * retries, 9)) for phase, count in planned.items()}


def drivers(work: Work) -> tuple[str, ...]:
    """The figures that are open and matter, by name."""
    idle_of = {
        "experiment_fraction": work.num_experiments,
        "sweep_fraction": work.num_sweep_runs,
    }
    spans = [name for name in SPANS if getattr(work, name).is_range and idle_of.get(name, 1)]
    hours = work.run_hours
    return ((RUN_HOURS,) if hours.high > hours.low else ()) + tuple(spans)
