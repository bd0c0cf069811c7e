"""A schedule of the core as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from tuneplan.contract.answers import header
from tuneplan.contract.parts import Money as MoneyModel
from tuneplan.contract.parts import Range, assumption_model, money_model, range_model
from tuneplan.contract.scheduled import (
    BrokenDeadline,
    PoolMachine,
    ScheduleAnswer,
    ScheduledJob,
    ScheduledOn,
    Totals,
)
from tuneplan.language import message
from tuneplan.planner.schedule import Schedule
from tuneplan.report.estimate_answer import notice_models
from tuneplan.scheduling.explaining import Broken
from tuneplan.scheduling.placing import (
    UNIT_S,
    Placement,
    busy_card_minutes,
    card_numbers,
    cost_on,
    whole_minutes,
)
from tuneplan.spec.answer import Basis
from tuneplan.spec.offer import Money
from tuneplan.spec.portfolio import Aim
from tuneplan.units import HOUR_S, format_duration


def schedule_answer(
    schedule: Schedule, *, as_of: str, written: Sequence[str] = ()
) -> ScheduleAnswer:
    """The answer of ``schedule``; ``as_of`` is the day it is given, ``written`` names the files."""
    solution = schedule.solution
    placed = solution.placements
    found = bool(placed)
    scale = 1.0 if schedule.aim is Aim.COST else UNIT_S
    return ScheduleAnswer(
        **header("schedule", as_of=as_of),
        objective=schedule.aim.value,
        status=solution.status,
        objective_value=solution.value * scale if found else None,
        objective_bound=solution.bound * scale if found else None,
        gap_fraction=solution.gap_fraction if found else None,
        elapsed_s=solution.elapsed_s,
        starts_at=schedule.start.isoformat(),
        jobs=_jobs(schedule),
        machines=_machines(schedule),
        idle_fraction=_idle(schedule),
        makespan_s=_makespan(schedule) if found else None,
        total=_totals(schedule, placed) if found else None,
        first_come=_totals(schedule, schedule.first_come),
        infeasible=[_broken(one) for one in schedule.broken],
        assumptions=[assumption_model(one) for one in schedule.assumptions],
        warnings=notice_models(schedule.notices),
        written=list(written),
    )


def _jobs(schedule: Schedule) -> list[ScheduledJob]:
    machines, placed = schedule.portfolio.machines, schedule.solution.placements
    numbers = card_numbers(machines, placed)
    return [
        ScheduledJob(
            name=one.task.name,
            priority=one.task.priority,
            after=list(one.task.after),
            on=[
                ScheduledOn(
                    machine=machines[place].name,
                    accelerator=machines[place].accelerator,
                    cards=list(numbers[one.task.name, place]),
                )
                for place in one.machines
            ],
            need_bytes=None if one.way.need_bytes is None else round(one.way.need_bytes),
            start_s=one.start * UNIT_S,
            end_s=one.end * UNIT_S,
            starts_at=(schedule.start + timedelta(seconds=one.start * UNIT_S)).isoformat(),
            ends_at=(schedule.start + timedelta(seconds=one.end * UNIT_S)).isoformat(),
            duration_s=range_model(one.way.duration_s),
            deadline_s=one.task.deadline_s,
            late_s=one.late * UNIT_S,
            cost=_money(schedule, _cost(schedule, [one])),
        )
        for one in placed
    ]


def _cost(schedule: Schedule, placed: Sequence[Placement]) -> Decimal | None:
    if schedule.currency is None:
        return None
    total = Decimal(0)
    for one in placed:
        for place in one.machines:
            total += cost_on(one.way, schedule.portfolio.machines[place]) or Decimal(0)
    return total


def _money(schedule: Schedule, amount: Decimal | None) -> MoneyModel | None:
    if amount is None or schedule.currency is None:
        return None
    return money_model(Money(amount=amount, currency=schedule.currency))


def _totals(schedule: Schedule, placed: Sequence[Placement]) -> Totals:
    return Totals(
        makespan_s=_end(placed) * UNIT_S,
        lateness_s=sum(one.task.priority * one.late for one in placed) * UNIT_S,
        num_late=sum(1 for one in placed if one.late),
        cost=_money(schedule, _cost(schedule, placed)),
    )


def _end(placed: Sequence[Placement]) -> int:
    return max((one.end for one in placed), default=0)


def _makespan(schedule: Schedule) -> Range:
    """With all durations short, likely and long; the shown schedule is the likely one."""
    low, high = (_end(schedule.ranges[part]) for part in ("low", "high"))
    likely = _end(schedule.solution.placements)
    return Range(
        low=min(low, likely) * UNIT_S,
        likely=likely * UNIT_S,
        high=max(high, likely) * UNIT_S,
        basis=Basis.ANALYTIC,
    )


def _there_minutes(schedule: Schedule) -> list[int]:
    """Minutes of each machine from when it is there until the last job ends."""
    end = _end(schedule.solution.placements)
    return [max(0, end - whole_minutes(one.from_s)) for one in schedule.portfolio.machines]


def _machines(schedule: Schedule) -> list[PoolMachine]:
    busy = busy_card_minutes(schedule.solution.placements)
    there = _there_minutes(schedule)
    return [
        PoolMachine(
            name=one.name,
            accelerator=one.accelerator,
            cards=one.cards,
            memory_bytes=one.memory_bytes,
            price=None if one.price is None else money_model(one.price, decimals=4),
            busy_card_hours=busy.get(place, 0) * UNIT_S / HOUR_S,
            idle_fraction=_share(busy.get(place, 0), there[place] * one.cards),
        )
        for place, one in enumerate(schedule.portfolio.machines)
    ]


def _idle(schedule: Schedule) -> float | None:
    if not schedule.solution.placements:
        return None
    machines = schedule.portfolio.machines
    whole = sum(
        minutes * one.cards for minutes, one in zip(_there_minutes(schedule), machines, strict=True)
    )
    return _share(sum(busy_card_minutes(schedule.solution.placements).values()), whole)


def _share(busy: int, whole: int) -> float:
    """What is left idle."""
    return max(0.0, 1 - busy / whole) if whole else 0.0


def _broken(one: Broken) -> BrokenDeadline:
    figures = {
        "name": one.name,
        "end": format_duration(one.end * UNIT_S),
        "limit": format_duration(one.limit * UNIT_S),
        "by": format_duration((one.end - one.limit) * UNIT_S),
    }
    if one.alone:
        told = message(
            "late_alone",
            "{name} ends {end} after the start at the earliest, even with the whole pool for "
            "itself; its deadline is at {limit}",
            **figures,
        )
    else:
        told = message(
            "late_among_others",
            "{name} has to give way: without its deadline at {limit} all others can be kept, and "
            "it then ends {by} late",
            **figures,
        )
    return BrokenDeadline(
        name=one.name,
        end_s=one.end * UNIT_S,
        deadline_s=one.limit * UNIT_S,
        alone=one.alone,
        message=str(told),
    )
