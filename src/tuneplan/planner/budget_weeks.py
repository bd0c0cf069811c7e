"""A budget week by week: what is rented, what works, what is paid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta

from tuneplan.economics.project import Phase
from tuneplan.frozen import dataclass
from tuneplan.planner.budget import JobBudget, PhaseBudget
from tuneplan.planner.budget_calendar import WEEK_HOURS
from tuneplan.planner.budget_offers import is_binding


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekShare:
    """What one phase of one job has in a week, in the median case; hours are of machines."""

    job: int
    phase: Phase
    rented_hours: float
    busy_hours: float
    money: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """One week of the project.

    Attributes:
        number: Counted from 1.
        starts_on: None where the project has no first day.
    """

    number: int
    starts_on: date | None
    shares: tuple[WeekShare, ...]

    @property
    def rented_hours(self) -> float:
        """Machine hours that are held."""
        return sum(share.rented_hours for share in self.shares)

    @property
    def busy_hours(self) -> float:
        """Machine hours in which something runs."""
        return sum(share.busy_hours for share in self.shares)

    @property
    def idle_fraction(self) -> float | None:
        """Share of the held hours in which nothing runs."""
        held = self.rented_hours
        return max(0.0, 1 - self.busy_hours / held) if held else None

    @property
    def money(self) -> float | None:
        """What is paid in this week."""
        amounts = [share.money for share in self.shares]
        return None if None in amounts else sum(amount or 0.0 for amount in amounts)


def calendar(jobs: Sequence[JobBudget]) -> tuple[Week, ...]:
    """Every week of the project.

    What is rented by the hour is spread evenly over the weeks of its phase. What is rented by the
    month is held day and night, and paid in the week in which each month begins.
    """
    by_week: dict[int, list[WeekShare]] = {}
    for number, budget in enumerate(jobs):
        for phase in budget.phases:
            for offset in range(phase.weeks):
                share = _share(budget, number, phase, offset)
                by_week.setdefault((phase.first_week or 1) + offset, []).append(share)
    start = jobs[0].job.project.start if jobs else None
    return tuple(
        Week(
            number=week,
            starts_on=start + timedelta(weeks=week - 1) if start else None,
            shares=tuple(shares),
        )
        for week, shares in sorted(by_week.items())
    )


def _share(budget: JobBudget, number: int, phase: PhaseBudget, offset: int) -> WeekShare:
    held = phase.offer is not None and is_binding(phase.offer)
    even = phase.median_rented / phase.weeks
    return WeekShare(
        job=number,
        phase=phase.phase,
        rented_hours=max(even, WEEK_HOURS * budget.in_parallel) if held else even,
        busy_hours=phase.median_busy / phase.weeks,
        money=_paid(budget, phase, offset),
    )


def _paid(budget: JobBudget, phase: PhaseBudget, offset: int) -> float | None:
    money, offer = phase.median_money, phase.offer
    if money is None:
        return None
    if offer is None or not is_binding(offer) or not offer.term_hours:
        return money / phase.weeks
    terms = round(phase.paid_hours / offer.term_hours / budget.in_parallel)
    if not terms:
        return 0.0
    last = phase.weeks - 1
    begun = [min(last, math.floor(k * offer.term_hours / WEEK_HOURS)) for k in range(terms)]
    return money / terms * begun.count(offset)
