"""Which tasks make a portfolio impossible, where deadlines cannot all be kept."""

from __future__ import annotations

from tuneplan.frozen import dataclass
from tuneplan.scheduling.placing import in_order, minutes_of, whole_minutes
from tuneplan.scheduling.solver import fewest_late
from tuneplan.spec.portfolio import Portfolio


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A deadline that cannot be kept.

    Attributes:
        name: Of the task.
        end: In minutes: the earliest that it can end.
        limit: In minutes: its deadline.
        alone: Whether it cannot be kept even if every card of the pool were its own (and those of
            the tasks that it waits for); otherwise it is one of the fewest that have to give way.
    """

    name: str
    end: int
    limit: int
    alone: bool


def broken_deadlines(
    portfolio: Portfolio, *, limit_s: float, workers: int = 8
) -> tuple[Broken, ...]:
    """The tasks to move: those that are impossible alone, else the fewest by priority."""
    alone = _alone(portfolio)
    if alone:
        return alone
    found = fewest_late(portfolio, limit_s=limit_s, workers=workers)
    return tuple(
        Broken(
            name=one.task.name,
            end=one.end,
            limit=whole_minutes(one.task.deadline_s or 0.0, down=True),
            alone=False,
        )
        for one in found.placements
        if one.late
    )


def _alone(portfolio: Portfolio) -> tuple[Broken, ...]:
    ends: dict[str, int] = {}
    for task in in_order(portfolio.tasks):
        begin = max([whole_minutes(task.earliest_s), *(ends[name] for name in task.after)])
        ends[task.name] = min(
            max(begin, _there(portfolio, way.accelerator)) + minutes_of(way) for way in task.ways
        )
    found = []
    for task in portfolio.tasks:
        if task.deadline_s is not None:
            limit = whole_minutes(task.deadline_s, down=True)
            if ends[task.name] > limit:
                end = ends[task.name]
                found.append(Broken(name=task.name, end=end, limit=limit, alone=True))
    return tuple(found)


def _there(portfolio: Portfolio, accelerator: str) -> int:
    """From when the first machine of a kind is there."""
    return min(
        whole_minutes(machine.from_s)
        for machine in portfolio.machines
        if machine.accelerator == accelerator
    )
