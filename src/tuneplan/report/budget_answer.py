"""A budget as the answer that the contract describes."""

from __future__ import annotations

from decimal import Decimal

from tuneplan.contract import budgeted
from tuneplan.contract.answers import Offer, header
from tuneplan.contract.budgeted import BudgetAnswer
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import Money, assumption_model, money_model, range_model
from tuneplan.contract.plain_json import json_value
from tuneplan.economics import break_even as core
from tuneplan.economics.simulation import Driver, Quantiles
from tuneplan.planner.budget import Budget, JobBudget, PhaseBudget
from tuneplan.planner.budget_offers import is_binding
from tuneplan.planner.budget_weeks import Week, calendar
from tuneplan.planner.constraints import ConstraintCost
from tuneplan.report.estimate_answer import notice_models, offer_model
from tuneplan.spec import offer as spec


def budget_answer(budget: Budget, *, as_of: str) -> BudgetAnswer:
    """The answer of ``budget``."""
    currency = budget.currency
    weeks = [_week(week, currency) for week in calendar(budget.jobs)]
    medians = [phase.median_money for job in budget.jobs for phase in job.phases]
    fixed = sum(
        amount or 0.0 for job in budget.jobs for amount in (job.storage_money, job.egress_money)
    )
    priced = budget.money is not None
    return BudgetAnswer(
        **header("budget", as_of=as_of),
        jobs=[_job(job, currency) for job in budget.jobs],
        currency=currency,
        seed=budget.seed,
        draws=budget.draws,
        rented_hours=_hours(budget.rented),
        accelerator_hours=_hours(budget.accelerator_hours),
        money=_money_quantiles(budget.money, currency),
        median_money=_money(sum(m or 0.0 for m in medians) + fixed, currency) if priced else None,
        drivers=[_driver(driver, budget) for driver in budget.drivers],
        calendar=weeks,
        within_budget=budget.within_budget,
        within_duration=budget.within_duration,
        assumptions=[assumption_model(one) for one in budget.assumptions],
        warnings=notice_models(budget.notices),
    )


def _job(job: JobBudget, currency: str) -> budgeted.BudgetedJob:
    cluster = job.estimate.resolved.cluster
    work, energy = job.work, job.energy
    return budgeted.BudgetedJob(
        job=job_document(job.job, job.estimate.assumptions),
        accelerator=cluster.accelerator.name if cluster else "",
        num_accelerators=cluster.num_accelerators if cluster else 0,
        runs_in_parallel=job.in_parallel,
        run_hours=range_model(work.run_hours),
        num_experiments=work.num_experiments,
        num_sweep_runs=work.num_sweep_runs,
        data_iterations=work.data_iterations,
        phases=[_phase(phase, currency) for phase in job.phases],
        alternatives=[
            budgeted.BudgetAlternative(
                offer=offer_model(one.offer),
                money=_required(one.total, currency),
                interruptible=one.offer.interruptible,
            )
            for one in job.alternatives
        ],
        break_even=_break_even(job.break_even),
        constraints=[_constraint(one, currency) for one in job.constraints],
        idle_cost_per_hour=money_model(job.idle_cost_per_hour) if job.idle_cost_per_hour else None,
        storage_money=_money(job.storage_money, currency),
        egress_money=_money(job.egress_money, currency),
        energy_kwh=range_model(energy.energy_kwh) if energy else None,
        co2_kg=range_model(energy.co2_kg) if energy and energy.co2_kg else None,
    )


def _phase(phase: PhaseBudget, currency: str) -> budgeted.BudgetPhase:
    offer = phase.offer
    billing = None
    if offer is not None:
        billing = "by_the_term" if is_binding(offer) else "by_the_hour"
        billing = "on_hand" if offer.on_hand else billing
    idle = max(0.0, 1 - phase.median_busy / phase.paid_hours) if phase.paid_hours else None
    return budgeted.BudgetPhase(
        phase=phase.phase.value,
        first_week=phase.first_week,
        weeks=phase.weeks,
        rented_hours=_hours(phase.rented),
        busy_hours=_hours(phase.busy),
        money=_money_quantiles(phase.money, currency),
        median_money=_money(phase.median_money, currency),
        paid_hours=phase.paid_hours,
        idle_fraction=idle,
        billing=billing,
        continues=phase.continues,
        offer=None if offer is None else offer_model(offer),
    )


def break_even_model(found: core.BreakEven) -> budgeted.BreakEven:
    """Two offers over hours of use."""
    names = ("first", "second")
    at_first = found.cheaper_at_first
    return budgeted.BreakEven(
        first=offer_model(found.first),
        second=offer_model(found.second),
        hours=None if found.hours is None else float(found.hours),
        cheaper_at_first=None if at_first is None else names[at_first],
        crossings=[
            budgeted.BreakEvenCrossing(hours=float(one.hours), cheaper=names[one.cheaper])
            for one in found.crossings
        ],
        points=[
            budgeted.BreakEvenPoint(
                hours=float(point.hours),
                first=money_model(point.first),
                second=money_model(point.second),
            )
            for point in found.points
        ],
    )


def _break_even(found: core.BreakEven | None) -> budgeted.BreakEven | None:
    return None if found is None else break_even_model(found)


def _constraint(one: ConstraintCost, currency: str) -> budgeted.Constraint:
    both = one.cheapest is not None and one.cheapest_without is not None
    return budgeted.Constraint(
        limit=one.limit,
        value=json_value(one.value),
        excluded=one.excluded,
        only_by_this=one.only_by_this,
        unknown=one.unknown,
        examples=list(one.examples),
        cheapest=_money(one.cheapest, currency),
        cheapest_without=_money(one.cheapest_without, currency),
        costs=_money((one.cheapest or 0) - (one.cheapest_without or 0), currency) if both else None,
    )


def _driver(driver: Driver, budget: Budget) -> budgeted.BudgetDriver:
    priced = budget.money is not None
    middle = budget.money.p50 if budget.money is not None else budget.rented.p50
    ends = (driver.total_at_low, driver.total_at_high)
    money = [_money(end, budget.currency) if priced else None for end in ends]
    return budgeted.BudgetDriver(
        name=driver.name,
        job=driver.job,
        low=driver.low,
        high=driver.high,
        money_at_low=money[0],
        money_at_high=money[1],
        hours_at_low=None if priced else ends[0],
        hours_at_high=None if priced else ends[1],
        swing_fraction=driver.swing / middle if middle else 0.0,
    )


def _week(week: Week, currency: str) -> budgeted.CalendarWeek:
    return budgeted.CalendarWeek(
        week=week.number,
        starts_on=week.starts_on.isoformat() if week.starts_on else None,
        rented_hours=week.rented_hours,
        busy_hours=week.busy_hours,
        idle_fraction=week.idle_fraction,
        money=_money(week.money, currency),
        parts=[
            budgeted.WeekPart(
                job=share.job,
                phase=share.phase.value,
                rented_hours=share.rented_hours,
                busy_hours=share.busy_hours,
                money=_money(share.money, currency),
            )
            for share in week.shares
        ],
    )


def _hours(found: Quantiles) -> budgeted.HourQuantiles:
    return budgeted.HourQuantiles(
        p10=found.p10, p50=found.p50, p80=found.p80, p90=found.p90, p95=found.p95, mean=found.mean
    )


def _money_quantiles(found: Quantiles | None, currency: str) -> budgeted.MoneyQuantiles | None:
    if found is None:
        return None
    names = ("p10", "p50", "p80", "p90", "p95", "mean")
    return budgeted.MoneyQuantiles(
        **{name: _required(getattr(found, name), currency) for name in names}
    )


def _money(amount: float | None, currency: str) -> Money | None:
    return None if amount is None else _required(amount, currency)


def _required(amount: float, currency: str) -> Money:
    return money_model(spec.Money(amount=Decimal(repr(float(amount))), currency=currency))


__all__ = ["Offer", "break_even_model", "budget_answer"]
