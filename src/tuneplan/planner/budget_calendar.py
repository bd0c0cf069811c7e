"""Which phase of a project lies in which weeks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tuneplan.economics.project import Phase
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.stated import StatedProject
from tuneplan.units import HOUR_S, WEEK_S

WEEK_HOURS: Final = 168


@dataclass(frozen=True, slots=True, kw_only=True)
class Weeks:
    """The weeks of every phase of one job.

    Attributes:
        length: Weeks by phase, 0 for one that has nothing to do.
        held: Whether somebody said how long the phases are: what is rented by the month is then
            held for that long.
    """

    length: Mapping[Phase, int]
    held: bool
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]

    @property
    def total(self) -> int:
        """Weeks of all phases."""
        return sum(self.length.values())


def weeks_of(project: StatedProject, clock_hours: Mapping[Phase, float]) -> Weeks:
    """Weeks of every phase: as stated, else as the hours ask for, stretched to the duration.

    Args:
        project: Its times and duration.
        clock_hours: Hours that each phase takes, day and night, with its runs in parallel.
    """
    stated = {
        Phase.PROOF_OF_CONCEPT: project.proof_of_concept_time,
        Phase.MAIN: project.main_time,
        Phase.HAND_OVER: project.hand_over_time,
    }
    needed = {
        phase: math.ceil(round(hours / WEEK_HOURS, 9)) for phase, hours in clock_hours.items()
    }
    length = {
        phase: math.ceil(round(seconds / WEEK_S, 9)) if seconds is not None else needed[phase]
        for phase, seconds in stated.items()
    }
    notices = [
        Notice(
            message=message(
                "phase_too_short",
                "{phase} needs {needed} weeks by day and night and has {weeks}",
                phase=phase.value,
                needed=needed[phase],
                weeks=length[phase],
            ),
            path=f"project.{phase.value}_time",
        )
        for phase in Phase
        if length[phase] < needed[phase]
    ]
    assumptions: list[Assumption] = []
    free = [phase for phase in Phase if stated[phase] is None and needed[phase]]
    if project.duration is not None:
        left = math.floor(round(project.duration / WEEK_S, 9)) - sum(length.values())
        if left > 0 and free:
            _stretch(length, free, clock_hours, left)
        elif left < 0:
            text = message(
                "project_too_short",
                "the phases take {weeks} weeks, the project lasts {duration:.1f}",
                weeks=sum(length.values()),
                duration=project.duration / WEEK_S,
            )
            notices.append(Notice(message=text, path="project.duration"))
    if free:
        assumptions.append(_assumed(length, free, project))
    return Weeks(
        length=length,
        held=project.duration is not None or any(s is not None for s in stated.values()),
        assumptions=tuple(assumptions),
        notices=tuple(notices),
    )


def _stretch(
    length: dict[Phase, int], free: list[Phase], clock_hours: Mapping[Phase, float], left: int
) -> None:
    """Share out weeks that are left by the hours of the phases, the largest remainder first."""
    total = sum(clock_hours[phase] for phase in free)
    exact = {phase: left * clock_hours[phase] / total for phase in free}
    for phase in free:
        length[phase] += math.floor(exact[phase])
    rest = left - sum(math.floor(share) for share in exact.values())
    for phase in sorted(free, key=lambda one: math.floor(exact[one]) - exact[one])[:rest]:
        length[phase] += 1


def _assumed(length: Mapping[Phase, int], free: list[Phase], project: StatedProject) -> Assumption:
    if project.duration is None:
        reason = message(
            "weeks_by_hours",
            "as many weeks as the hours ask for, day and night; each phase begins a week",
        )
    else:
        reason = message(
            "weeks_by_duration", "the project's weeks, shared out by the hours of the phases"
        )
    return Assumption(
        name="project.main_time",
        value={phase.value: f"{length[phase]} week" for phase in free},
        reason=reason,
        source="docs/how-to/budget.md",
        how_to_set="project: {proof_of_concept_time: 2 week, main_time: 5 week, "
        "hand_over_time: 1 week}",
    )


def duration_hours(project: StatedProject) -> float | None:
    """Hours of the whole project, where they are stated."""
    return None if project.duration is None else project.duration / HOUR_S
