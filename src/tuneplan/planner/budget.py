"""Use-case: what a project costs over time, not one run: a budget with its chances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.catalog.regions import carbon_intensity
from tuneplan.economics.break_even import BreakEven
from tuneplan.economics.energy import Energy, energy_of
from tuneplan.economics.interruptions import simulate_interrupted
from tuneplan.economics.project import Hours, Phase, Work, hours_of
from tuneplan.economics.simulation import Cases, Driver, Quantiles, draw, quantiles, tornado
from tuneplan.economics.tariff import idle_cost_per_hour
from tuneplan.frozen import dataclass
from tuneplan.planner.budget_calendar import duration_hours
from tuneplan.planner.budget_compare import (
    Alternative,
    alternatives,
    hourly_against_monthly,
    price_of_limits,
)
from tuneplan.planner.budget_offers import cost_by_phase, paid_hours
from tuneplan.planner.budget_plan import PlannedJob, plan_project
from tuneplan.planner.budget_work import blanks
from tuneplan.planner.constraints import ConstraintCost
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.heeding import once
from tuneplan.planner.offering import compared_currency
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Assumption, Basis, Estimate, Notice
from tuneplan.spec.offer import Money, Offer
from tuneplan.spec.stated import StatedJob

Floats = NDArray[np.float64]
DRAWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBudget:
    """One phase of one job.

    Attributes:
        offer: None where nothing is rented, or no price is known.
        continues: Whether it goes on with the rental of the phase before.
        rented: Machine hours that are needed, of all machines of the job.
        busy: Of them those in which the machine works.
        money: None without an offer.
        first_week: Of the project, counted from 1; None for a phase with nothing to do.
        median_rented: Machine hours that are needed in the median case: every open figure at its
            median.
        median_busy: Of them those in which the machine works.
        median_money: Cost of the median case; None without an offer.
        paid_hours: Machine hours that are paid in the median case, terms among them.
    """

    phase: Phase
    offer: Offer | None
    continues: bool
    rented: Quantiles
    busy: Quantiles
    money: Quantiles | None
    first_week: int | None
    weeks: int
    median_rented: float
    median_busy: float
    median_money: float | None
    paid_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBudget:
    """One job's share of the project.

    Attributes:
        in_parallel: Runs at the same time.
        idle_cost_per_hour: What an hour costs in which the main rental does nothing.
    """

    estimate: JobEstimate
    work: Work
    in_parallel: int
    phases: tuple[PhaseBudget, ...]
    alternatives: tuple[Alternative, ...]
    break_even: BreakEven | None
    constraints: tuple[ConstraintCost, ...]
    idle_cost_per_hour: Money | None
    storage_money: float | None
    egress_money: float | None
    energy: Energy | None

    @property
    def job(self) -> StatedJob:
        """As stated."""
        return self.estimate.resolved.job


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The answer.

    Attributes:
        seed: Of the generator, where the caller knows it.
        rented: Machine hours of the project.
        accelerator_hours: The same times the cards of a machine.
        money: None where a price is missing.
        drivers: Of the money, or of the hours where no price is known; largest first.
        within_budget: Share of all cases that ``limits.budget`` is enough for.
        within_duration: Share of all cases that ``project.duration`` is long enough for.
    """

    jobs: tuple[JobBudget, ...]
    currency: str
    draws: int
    seed: int | None
    rented: Quantiles
    accelerator_hours: Quantiles
    money: Quantiles | None
    drivers: tuple[Driver, ...]
    within_budget: float | None
    within_duration: float | None
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """One job in every case: machine hours and money by phase.

    Attributes:
        money: None where no price is known.
    """

    planned: PlannedJob
    hours: Mapping[Phase, Hours]
    rented: Mapping[Phase, Floats]
    money: Mapping[Phase, Floats] | None

    @property
    def all_rented(self) -> Floats:
        """Machine hours of all phases."""
        return np.asarray(sum(self.rented.values()))

    @property
    def all_money(self) -> Floats:
        """Money of all phases, and what does not depend on the hours."""
        phases = self.money.values() if self.money is not None else ()
        return np.asarray(sum(phases)) + self.planned.fixed_money


def budget_jobs(
    jobs: Sequence[tuple[StatedJob, Sources]],
    *,
    generator: np.random.Generator,
    draws: int = DRAWS,
    seed: int | None = None,
) -> Budget:
    """The budget of a project of one or several jobs, one after the other.

    Args:
        jobs: Each with its catalogues; the first one's currency counts.
        generator: Draws the cases.
        draws: Cases.
        seed: Of the generator, to be told.

    Raises:
        InvalidRequest: A job without the hours of a run, or whose offers all bind for longer than
            the project.
        InputError: As for ``estimate``.
    """
    job, sources = jobs[0]
    currency = compared_currency(sources.offers.offers, job.limits)
    planned = [plan_project(job, sources, currency) for job, sources in jobs]
    works = [one.work for one in planned]
    cases = draw(generator, works, draws)
    drawn = [_in_every_case(one, case, generator) for one, case in zip(planned, cases, strict=True)]
    priced = all(one.money is not None for one in drawn)

    def total(values: Sequence[Mapping[str, Floats]]) -> Floats:
        parts = []
        for one, value in zip(planned, values, strict=True):
            hours = hours_of(one.work, value)
            parts.append(one.money(hours) if priced else one.rented(hours))
        return np.asarray(sum(parts))

    parts, first_week = [], 1
    for one in drawn:
        parts.append(_job_budget(one, first_week))
        first_week += one.planned.weeks.total
    money = np.asarray(sum(one.all_money for one in drawn)) if priced else None
    cards = [one.all_rented * one.planned.renting.num_accelerators for one in drawn]
    alone = drawn[0] if len(drawn) == 1 else None
    return Budget(
        jobs=tuple(parts),
        currency=currency,
        draws=draws,
        seed=seed,
        rented=quantiles(np.asarray(sum(one.all_rented for one in drawn))),
        accelerator_hours=quantiles(np.asarray(sum(cards))),
        money=None if money is None else quantiles(money),
        drivers=tornado(works, total),
        within_budget=_within_budget(job, money, currency) if alone else None,
        within_duration=_within_duration(alone) if alone else None,
        assumptions=_assumptions(planned),
        notices=once([notice for one in planned for notice in one.notices]),
    )


def _in_every_case(planned: PlannedJob, cases: Cases, generator: np.random.Generator) -> _Drawn:
    """Play out what interruptions add, then charge every case."""
    hours = hours_of(planned.work, cases.values, cases.lost_share)
    renting, rental = planned.renting, planned.rental
    added = {phase: np.zeros_like(part.training) for phase, part in hours.items()}
    for phase, offer in rental.offers.items() if rental else ():
        known = offer.interruptions
        if known is not None:
            work = hours[phase].training + hours[phase].lost
            paid, _ = simulate_interrupted(
                generator,
                work,
                segment_hours=renting.segment_hours,
                every_hours=known.every_hours / renting.instances(offer),
                restart_hours=known.restart_hours,
                wait_hours=known.wait_hours,
            )
            added[phase] = paid - work
    return _Drawn(
        planned=planned,
        hours=hours,
        rented={phase: part.rented(added[phase]) for phase, part in hours.items()},
        money=cost_by_phase(rental, hours, renting, planned.held, added=added) if rental else None,
    )


def _job_budget(drawn: _Drawn, first_week: int) -> JobBudget:
    planned = drawn.planned
    rental, renting = planned.rental, planned.renting
    main = rental.offers.get(Phase.MAIN) if rental else None
    return JobBudget(
        estimate=planned.estimate,
        work=planned.work,
        in_parallel=renting.in_parallel,
        phases=_phases(drawn, first_week),
        alternatives=alternatives(planned),
        break_even=hourly_against_monthly(planned),
        constraints=price_of_limits(planned),
        idle_cost_per_hour=None
        if main is None
        else Money(
            amount=idle_cost_per_hour(main) * renting.instances(main) * renting.in_parallel,
            currency=main.price.currency,
        ),
        storage_money=planned.storage_money,
        egress_money=planned.egress_money,
        energy=_energy(drawn, main),
    )


def _phases(drawn: _Drawn, first_week: int) -> tuple[PhaseBudget, ...]:
    planned = drawn.planned
    rental = planned.rental
    paid = {phase: float(part.rented()[0]) for phase, part in planned.median.items()}
    costs = None
    if rental is not None:
        paid |= paid_hours(rental, planned.median, planned.renting, planned.held)
        costs = cost_by_phase(rental, planned.median, planned.renting, planned.held)
    found: list[PhaseBudget] = []
    week = first_week
    before: Offer | None = None
    for phase in Phase:
        offer = rental.offers.get(phase) if rental else None
        length = planned.weeks.length[phase]
        found.append(
            PhaseBudget(
                phase=phase,
                offer=offer,
                continues=offer is not None and offer is before,
                rented=quantiles(drawn.rented[phase]),
                busy=quantiles(drawn.hours[phase].busy),
                money=None if drawn.money is None else quantiles(drawn.money[phase]),
                first_week=week if length else None,
                weeks=length,
                median_rented=float(planned.median[phase].rented()[0]),
                median_busy=float(planned.median[phase].busy[0]),
                median_money=None if costs is None else float(costs[phase][0]),
                paid_hours=paid[phase],
            )
        )
        week += length
        before = offer or before
    return tuple(found)


def _energy(drawn: _Drawn, offer: Offer | None) -> Energy | None:
    cluster = drawn.planned.estimate.resolved.cluster
    if cluster is None or not cluster.accelerator.power_w:
        return None
    busy = quantiles(np.asarray(sum(part.busy for part in drawn.hours.values())))
    return energy_of(
        power_w=cluster.accelerator.power_w,
        num_accelerators=cluster.num_accelerators,
        hours=Estimate(low=busy.p10, likely=busy.p50, high=busy.p90, basis=Basis.ASSUMED),
        carbon=carbon_intensity(offer.region if offer else None),
    )


def _within_budget(job: StatedJob, money: Floats | None, currency: str) -> float | None:
    limits = job.limits
    if limits.budget is None or money is None or limits.budget_currency != currency:
        return None
    return float((money <= float(limits.budget)).mean())


def _within_duration(drawn: _Drawn) -> float | None:
    hours = duration_hours(drawn.planned.job.project)
    if hours is None:
        return None
    return float((drawn.all_rented / drawn.planned.renting.in_parallel <= hours).mean())


def _assumptions(planned: Sequence[PlannedJob]) -> tuple[Assumption, ...]:
    found: dict[tuple[str, str], Assumption] = {}
    for one in planned:
        for assumption in (
            *blanks(one.job),
            *one.weeks.assumptions,
            *one.estimate.assumptions,
        ):
            found.setdefault((assumption.name, str(assumption.value)), assumption)
    return tuple(found.values())
