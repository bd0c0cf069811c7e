"""The answer of ``budget`` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tuneplan.contract.answers import Offer
from tuneplan.contract.budgeted import (
    BreakEven,
    BudgetAnswer,
    BudgetDriver,
    BudgetedJob,
    BudgetPhase,
    CalendarWeek,
    Constraint,
    HourQuantiles,
    MoneyQuantiles,
)
from tuneplan.contract.parts import Money
from tuneplan.language import say
from tuneplan.report.labels import driver_label, per_label, phase_of_project_label
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bar,
    facts,
    heading,
    number_text,
    paragraph,
    points,
    range_text,
    render,
    table,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_FEW_WEEKS: Final = 16


def budget_text(answer: BudgetAnswer, page: Page, *, full: bool = False) -> str:
    """How sure, the phases, the calendar, what moves it, the offers, the ledger."""
    return render(list(_blocks(answer, page, full=full)), page)


def money_text(money: Money | None) -> str:
    """An amount as people read it: ``7,200 TWD``; cents below a thousand."""
    if money is None:
        return UNKNOWN
    amount = Decimal(money.amount)
    shown = f"{amount:,.0f}" if abs(amount) >= 1000 else f"{amount:,.2f}"
    return f"{shown} {money.currency}"


def _blocks(answer: BudgetAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    weeks = len(answer.calendar)
    names = " + ".join(value_text(job.job.get("model")) for job in answer.jobs)
    yield heading(say("Budget of {names}: {weeks} {weeks:~week/weeks}", names=names, weeks=weeks))
    yield _sure(answer)
    yield paragraph("\n".join(chances(answer)))
    for number, job in enumerate(answer.jobs, start=1):
        if len(answer.jobs) > 1:
            yield heading(
                say("Job {number}: {model}", number=number, model=value_text(job.job.get("model")))
            )
        yield facts(list(_project(job)))
        yield _phases(job)
    yield _calendar(answer, full=full)
    if answer.drivers:
        yield _drivers(answer, page)
    for job in answer.jobs:
        yield from _offers(job, full=full)
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def _sure(answer: BudgetAnswer) -> RenderableType:
    rows = [
        (say("Machine-hours rented"), *_hours_row(answer.rented_hours)),
        (say("Card-hours"), *_hours_row(answer.accelerator_hours)),
    ]
    if answer.money is not None:
        rows.insert(0, (say("Money, {currency}", currency=answer.currency),
                        *_money_row(answer.money)))  # fmt: skip
    heads = ("P50", "P80", "P95", say("mean"))
    return table(
        (Column(name=""), *(Column(name=head, right=True, keep=True) for head in heads)), rows
    )


def _hours_row(hours: HourQuantiles) -> tuple[str, ...]:
    return tuple(number_text(value) for value in (hours.p50, hours.p80, hours.p95, hours.mean))


def _money_row(money: MoneyQuantiles) -> tuple[str, ...]:
    return tuple(
        money_text(value).rpartition(" ")[0] for value in (money.p50, money.p80, money.p95,
                                                           money.mean)
    )  # fmt: skip


def chances(answer: BudgetAnswer) -> Iterator[str]:
    """What the percentiles mean, and how far the limits are enough."""
    yield say(
        "P80: four of five such projects stay below it. {draws} cases drawn, seed {seed}.",
        draws=f"{answer.draws:,}",
        seed=UNKNOWN if answer.seed is None else answer.seed,
    )
    if answer.within_budget is not None:
        yield say(
            "The budget of the job file is enough in {share:.0%} of the cases.",
            share=answer.within_budget,
        )
    if answer.within_duration is not None:
        yield say(
            "The hours fit into the project's duration in {share:.0%} of the cases.",
            share=answer.within_duration,
        )


def _project(job: BudgetedJob) -> Iterator[tuple[str, str]]:
    on = f"{job.num_accelerators} x {job.accelerator}"
    if job.runs_in_parallel > 1:
        on += ", " + say("{count} runs at the same time", count=job.runs_in_parallel)
    yield say("On"), on
    yield say("One run"), range_text(job.run_hours, "h")
    yield (
        say("Runs that are planned"),
        say(
            "{experiments} experiments, {sweeps} of sweeps, {full} in full",
            experiments=job.num_experiments,
            sweeps=job.num_sweep_runs,
            full=job.data_iterations,
        ),
    )
    for name, money in (
        (say("Storage"), job.storage_money),
        (say("Egress"), job.egress_money),
        (say("An idle hour costs"), job.idle_cost_per_hour),
    ):
        if money is not None:
            yield name, money_text(money)
    if job.energy_kwh is not None:
        text = range_text(job.energy_kwh, "kWh")
        if job.co2_kg is not None:
            text += ", " + range_text(job.co2_kg, say("kg CO2"))
        yield say("Energy"), text


def _phases(job: BudgetedJob) -> RenderableType:
    rows = [
        (
            phase_of_project_label(phase.phase),
            weeks_of(phase),
            f"{number_text(phase.rented_hours.p50)}\n{number_text(phase.rented_hours.p95)}",
            rented_at(phase),
            _phase_money(phase),
            UNKNOWN if phase.idle_fraction is None else f"{phase.idle_fraction:.0%}",
        )
        for phase in job.phases
        if phase.weeks or phase.rented_hours.p95 > 0
    ]
    columns = (
        Column(name=say("Phase")),
        Column(name=say("Weeks"), keep=True),
        Column(name=say("Hours P50\nP95"), right=True, keep=True),
        Column(name=say("Rented")),
        Column(name=say("Money P50\nP95"), right=True, keep=True),
        Column(name=say("Idle"), right=True, keep=True),
    )
    return table(columns, rows)


def weeks_of(phase: BudgetPhase) -> str:
    """The weeks of a phase, ``3-6``."""
    if phase.first_week is None:
        return UNKNOWN
    last = phase.first_week + phase.weeks - 1
    return f"{phase.first_week}" if last == phase.first_week else f"{phase.first_week}-{last}"


def _price(offer: Offer) -> str:
    return f"{Decimal(offer.price.amount):,.2f} {offer.price.currency} / {per_label(offer.per)}"


def _phase_money(phase: BudgetPhase) -> str:
    if phase.money is None:
        return UNKNOWN
    return "\n".join(money_text(one) for one in (phase.money.p50, phase.money.p95))


def rented_at(phase: BudgetPhase) -> str:
    """The offer of a phase, and how it is charged."""
    offer = phase.offer
    if offer is None:
        return say("no price known")
    how = {
        "by_the_hour": say("by the hour"),
        "by_the_term": say("by the term"),
        "on_hand": say("own hardware"),
    }.get(phase.billing or "", "")
    if phase.continues and phase.billing == "by_the_term":
        how += ", " + say("goes on")
    price = say(
        "{amount} {currency} per {per}",
        amount=f"{Decimal(offer.price.amount):,.2f}",
        currency=offer.price.currency,
        per=per_label(offer.per),
    )
    return f"{offer.provider}: {offer.name}\n{how}, {price}"


def _calendar(answer: BudgetAnswer, *, full: bool) -> RenderableType:
    weeks = answer.calendar if full else answer.calendar[:_FEW_WEEKS]
    dated = any(week.starts_on for week in weeks)
    columns = [Column(name=say("Week"), right=True, keep=True)]
    if dated:
        columns.append(Column(name=say("From"), keep=True))
    columns += [
        Column(name=say("Phase")),
        Column(name=say("Held, h"), right=True, keep=True),
        Column(name=say("Works, h"), right=True, keep=True),
        Column(name=say("Idle"), right=True, keep=True),
        Column(name=say("Paid, {currency}", currency=answer.currency), right=True, keep=True),
    ]
    rows = [_week_row(week, dated=dated) for week in weeks]
    left = len(answer.calendar) - len(weeks)
    title = say("Calendar of the median case")
    if left:
        title += " " + say("({left} more weeks: --all)", left=left)
    return table(columns, rows, title=title)


def _week_row(week: CalendarWeek, *, dated: bool) -> tuple[str, ...]:
    names = dict.fromkeys(phase_of_project_label(part.phase) for part in week.parts)
    return (
        str(week.week),
        *((week.starts_on or "",) if dated else ()),
        ", ".join(names),
        number_text(week.rented_hours),
        number_text(week.busy_hours),
        UNKNOWN if week.idle_fraction is None else f"{week.idle_fraction:.0%}",
        money_text(week.money).rpartition(" ")[0] or UNKNOWN,
    )


def _drivers(answer: BudgetAnswer, page: Page) -> RenderableType:
    widest = max(driver.swing_fraction for driver in answer.drivers) or 1.0
    width = max(8, min(24, page.width - 66))
    rows = [
        (
            driver_name(driver, answer.jobs),
            f"{number_text(driver.low, digits=2)} - {number_text(driver.high, digits=2)}",
            _driver_total(driver),
            bar(driver.swing_fraction / widest, width=width),
        )
        for driver in answer.drivers
    ]
    columns = (
        Column(name=say("Alone from P10 to P90")),
        Column(name=say("It is"), right=True, keep=True),
        Column(name=say("Then the total is"), right=True, keep=True),
        Column(name="", style="cyan", keep=True),
    )
    return table(columns, rows, title=say("What moves the total most"))


def driver_name(driver: BudgetDriver, jobs: Sequence[BudgetedJob]) -> str:
    """An open figure in words, with its job where there are several."""
    name = driver_label(driver.name)
    if driver.job is None or len(jobs) == 1:
        return name
    return say("{name}, job {number}", name=name, number=driver.job + 1)


def _driver_total(driver: BudgetDriver) -> str:
    if driver.money_at_low is not None:
        low, _, currency = money_text(driver.money_at_low).rpartition(" ")
        return f"{low} - {money_text(driver.money_at_high).rpartition(' ')[0]} {currency}"
    ends = [number_text(end or 0.0) for end in (driver.hours_at_low, driver.hours_at_high)]
    return " - ".join(ends) + " h"


def _offers(job: BudgetedJob, *, full: bool) -> Iterator[RenderableType]:
    shown = job.alternatives if full else job.alternatives[:4]
    if shown:
        rows = [
            (
                f"{one.offer.provider}: {one.offer.name}"
                + (" " + say("(interruptible)") if one.interruptible else ""),
                one.offer.region or UNKNOWN,
                _price(one.offer),
                money_text(one.money),
            )
            for one in shown
        ]
        columns = (
            Column(name=say("The whole project on one offer alone")),
            Column(name=say("Region")),
            Column(name=say("Price"), right=True),
            Column(name=say("Median case"), right=True, keep=True),
        )
        yield table(columns, rows)
    if job.break_even is not None:
        yield paragraph(break_even_sentence(job.break_even))
    if job.constraints:
        yield heading(say("What the limits cost"))
        yield points([constraint_text(one) for one in job.constraints])


def break_even_sentence(found: BreakEven) -> str:
    """From how many hours on the other offer is the cheaper one."""
    first, second = (f"{offer.provider}: {offer.name}" for offer in (found.first, found.second))
    cheaper, other = (first, second) if found.cheaper_at_first == "first" else (second, first)
    if found.hours is None:
        return say(
            "Break-even: none; {cheaper} is cheaper than {other} for any use.",
            cheaper=cheaper,
            other=other,
        )
    return say(
        "Break-even: below {hours:,.1f} h of use {cheaper} is cheaper, from there on {other}.",
        hours=found.hours,
        cheaper=cheaper,
        other=other,
    )


def constraint_text(one: Constraint) -> str:
    """A limit: what it excludes, and what that costs."""
    text = say(
        "limits.{limit} ({value}) excludes {excluded} offers ({alone} that no other limit "
        "excludes, {unknown} whose source does not say)",
        limit=one.limit,
        value=value_text(one.value),
        excluded=one.excluded,
        alone=one.only_by_this,
        unknown=one.unknown,
    )
    if one.costs is not None and Decimal(one.costs.amount) > 0:
        text += ": " + say(
            "it costs {costs}; without it the project is {without} instead of {cheapest}",
            costs=money_text(one.costs),
            without=money_text(one.cheapest_without),
            cheapest=money_text(one.cheapest),
        )
    elif one.cheapest is None and one.cheapest_without is not None:
        text += ": " + say(
            "nothing is left; without it the project is {without}",
            without=money_text(one.cheapest_without),
        )
    else:
        text += ": " + say("it costs nothing")
    return text
