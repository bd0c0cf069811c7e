"""A budget as a document: the chances, the phases, the calendar, what moves it, the offers."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from tuneplan.contract.budgeted import (
    BudgetAnswer,
    BudgetedJob,
    BudgetPhase,
    CalendarWeek,
    HourQuantiles,
    MoneyQuantiles,
)
from tuneplan.contract.parts import Money
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    money_cell,
    number_cell,
    percent_cell,
    range_cell,
    words,
)
from tuneplan.report.budget import (
    break_even_sentence,
    chances,
    constraint_text,
    driver_name,
    rented_at,
    weeks_of,
)
from tuneplan.report.budget_charts import (
    break_even_lines,
    distribution,
    driver_ends,
    quantile_points,
    tornado,
    weeks,
)
from tuneplan.report.dates import date_text
from tuneplan.report.labels import per_label, phase_of_project_label
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.sections.remarks import remarks_of
from tuneplan.report.tables import UNKNOWN, value_text
from tuneplan.report.view import (
    Amount,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Fact,
    Facts,
    Paragraph,
    Points,
    Section,
    Table,
)


def budget_document(answer: BudgetAnswer) -> Document:
    """The budget to hand on."""
    names = " + ".join(value_text(job.job.get("model")) for job in answer.jobs)
    return Document(
        kind="budget",
        title=say("Budget of {names}", names=names),
        subtitle=say(
            "{weeks} {weeks:~week/weeks}, amounts in {currency}",
            weeks=len(answer.calendar),
            currency=answer.currency,
        ),
        as_of=answer.as_of,
        language=answer.language,
        tuneplan_version=answer.tuneplan_version,
        sections=(
            _summary(answer),
            Section(name="phases", title=say("Phases"), blocks=tuple(_phases(answer))),
            Section(name="calendar", title=say("Calendar"), blocks=tuple(_calendar(answer))),
            Section(name="offers", title=say("Offers and limits"), blocks=tuple(_offers(answer))),
            remarks_of(answer.warnings, answer.assumptions),
        ),
    )  # fmt: skip


def _summary(answer: BudgetAnswer) -> Section:
    blocks: list[Block] = [Paragraph(text=text) for text in chances(answer)]
    if answer.money is not None:
        money = answer.money
        tiles = [
            Fact(name="P50", cell=money_cell(money.p50)),
            Fact(name="P80", cell=money_cell(money.p80)),
            Fact(name="P95", cell=money_cell(money.p95)),
        ]
    else:
        hours = answer.rented_hours
        tiles = [
            Fact(name=name, cell=number_cell(value, unit="h"))
            for name, value in (("P50", hours.p50), ("P80", hours.p80), ("P95", hours.p95))
        ]
    if answer.within_budget is not None:
        tiles.append(Fact(name=say("Budget is enough"), cell=percent_cell(answer.within_budget)))
    blocks.append(Facts(title=say("At a glance"), rows=tuple(tiles), tiles=True))
    blocks.append(_distribution(answer))
    blocks.append(_sure(answer))
    if answer.drivers:
        blocks.append(_tornado(answer))
    return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))


def _sure(answer: BudgetAnswer) -> Table:
    rows = [
        (words(say("Machine-hours rented")), *_hours(answer.rented_hours)),
        (words(say("Card-hours")), *_hours(answer.accelerator_hours)),
    ]
    if answer.money is not None:
        rows.insert(0, (words(say("Money")), *_moneys(answer.money)))
    return Table(
        title=say("How sure"),
        columns=(
            Column(name=""),
            *(Column(name=name, amounts=1) for name in ("P10", "P50", "P80", "P95")),
            Column(name=say("mean"), amounts=1),
        ),
        rows=tuple(rows),
        note=say("P80: four of five such projects stay below it."),
    )


def _distribution(answer: BudgetAnswer) -> Chart:
    unit = answer.currency if answer.money else "h"
    return Chart(
        name="distribution",
        title=say("The chance that the whole project stays below a total"),
        caption="; ".join(
            say("{name}: {total:,.2f} {unit}", name=name, total=total, unit=unit)
            for name, _, total in quantile_points(answer)
        ),
        specification=distribution(answer, width=WIDE),
        narrow=distribution(answer, width=NARROW),
    )


def _hours(found: HourQuantiles) -> tuple[Cell, ...]:
    values = (found.p10, found.p50, found.p80, found.p95, found.mean)
    return tuple(number_cell(value, unit="h") for value in values)


def _moneys(found: MoneyQuantiles) -> tuple[Cell, ...]:
    values = (found.p10, found.p50, found.p80, found.p95, found.mean)
    return tuple(money_cell(value) for value in values)


def _tornado(answer: BudgetAnswer) -> Chart:
    told = []
    for driver in answer.drivers:
        ends = driver_ends(driver)
        if ends is not None:
            told.append(
                say("{name}: {low:,.0f} to {high:,.0f}", name=driver_name(driver, answer.jobs),
                    low=ends[0], high=ends[1])
            )  # fmt: skip
    return Chart(
        name="tornado",
        title=say("What moves the total most: each figure alone from its P10 to its P90"),
        caption="; ".join(told),
        specification=tornado(answer, width=WIDE),
        narrow=tornado(answer, width=NARROW),
    )


def _phases(answer: BudgetAnswer) -> Iterator[Block]:
    for place, job in enumerate(answer.jobs):
        name = value_text(job.job.get("model"))
        yield Facts(title=name, rows=tuple(_project(job)))
        yield Table(
            title=say("Phases of {name}", name=name),
            columns=(
                Column(name=say("Phase")),
                Column(name=say("Weeks")),
                Column(name=say("Hours P50"), amounts=1, unit="h"),
                Column(name=say("Hours P95"), amounts=1, unit="h"),
                Column(name=say("Rented")),
                Column(name=say("Median case"), amounts=1, unit=answer.currency),
                Column(name=say("Money P80"), amounts=1, unit=answer.currency),
                Column(name=say("Idle"), amounts=1, unit="%"),
            ),
            rows=tuple(
                _phase(phase, f"jobs.{place}.{phase.phase}")
                for phase in job.phases
                if phase.weeks or phase.rented_hours.p95 > 0
            ),
        )


def _project(job: BudgetedJob) -> Iterator[Fact]:
    yield Fact(name=say("On"), cell=words(f"{job.num_accelerators} x {job.accelerator}"))
    yield Fact(name=say("One run"), cell=range_cell(job.run_hours, unit="h"))
    for name, count in (
        (say("Experiments"), job.num_experiments),
        (say("Runs of sweeps"), job.num_sweep_runs),
        (say("Versions of the data"), job.data_iterations),
        (say("Runs at the same time"), job.runs_in_parallel),
    ):
        yield Fact(name=name, cell=count_cell(count))
    for name, money in (
        (say("Storage"), job.storage_money),
        (say("Egress"), job.egress_money),
        (say("An idle hour costs"), job.idle_cost_per_hour),
    ):
        if money is not None:
            yield Fact(name=name, cell=money_cell(money))
    if job.energy_kwh is not None:
        yield Fact(name=say("Energy"), cell=range_cell(job.energy_kwh, unit="kWh"))
    if job.co2_kg is not None:
        yield Fact(name="CO2", cell=range_cell(job.co2_kg, unit="kg"))


def _phase(phase: BudgetPhase, key: str) -> tuple[Cell, ...]:
    return (
        words(phase_of_project_label(phase.phase)),
        words(weeks_of(phase)),
        number_cell(phase.rented_hours.p50, unit="h"),
        number_cell(phase.rented_hours.p95, unit="h"),
        words(", ".join(rented_at(phase).split("\n"))),
        _optional(phase.median_money, key=f"{key}.money"),
        _optional(phase.money.p80 if phase.money else None),
        percent_cell(phase.idle_fraction),
    )


def _optional(money: Money | None, *, key: str = "") -> Cell:
    return words(UNKNOWN) if money is None else money_cell(money, key=key)


def _calendar(answer: BudgetAnswer) -> Iterator[Block]:
    yield Chart(
        name="weeks",
        title=say("Machine-hours by week: held (pale) and working"),
        caption="; ".join(
            say("week {week}: {held:.0f} h held, {works:.0f} h working", week=week.week,
                held=week.rented_hours, works=week.busy_hours)
            for week in answer.calendar
        ),
        specification=weeks(answer, width=WIDE),
        narrow=weeks(answer, width=NARROW),
    )  # fmt: skip
    rows = [_week(week) for week in answer.calendar]
    if answer.median_money is not None:
        rows.append(_total(answer, answer.median_money))
    yield Table(
        title=say("The median case, week by week"),
        columns=(
            Column(name=say("Week")),
            Column(name=say("From")),
            Column(name=say("Phase")),
            Column(name=say("Held"), amounts=1, unit="h"),
            Column(name=say("Works"), amounts=1, unit="h"),
            Column(name=say("Idle"), amounts=1, unit="%"),
            Column(name=say("Paid"), amounts=1, unit=answer.currency),
        ),
        rows=tuple(rows),
        note=say("What is rented by the month is paid in the week in which each month begins."),
    )


def _week(week: CalendarWeek) -> tuple[Cell, ...]:
    key = f"weeks.{week.week}"
    held = number_cell(week.rented_hours, unit="h", key=f"{key}.held", decimals=2)
    works = number_cell(week.busy_hours, unit="h", key=f"{key}.works", decimals=2)
    idle = f"100 * (1 - {{{key}.works}} / {{{key}.held}})" if week.rented_hours else ""
    names = dict.fromkeys(phase_of_project_label(part.phase) for part in week.parts)
    return (
        words(str(week.week)),
        words(week.starts_on or UNKNOWN),
        words(", ".join(names)),
        held,
        works,
        percent_cell(week.idle_fraction, formula=idle),
        _optional(week.money, key=f"{key}.money"),
    )


def _total(answer: BudgetAnswer, total: Money) -> tuple[Cell, ...]:
    paid = [f"{{weeks.{week.week}.money}}" for week in answer.calendar]
    weekly = sum(Decimal(week.money.amount) for week in answer.calendar if week.money)
    beside = Decimal(total.amount) - weekly
    text = (
        say("together, storage and egress among it")
        if beside > Decimal("0.05")
        else say("together")
    )
    cell = money_cell(total)
    terms = [*paid, *([f"{beside:f}"] if abs(beside) > Decimal("0.05") else [])]
    amount = Amount(
        text=cell.amounts[0].text,
        value=cell.amounts[0].value,
        unit=total.currency,
        formula=" + ".join(terms) if paid else "",
    )
    empty = words("")
    return (
        words(text), empty, empty, empty, empty, empty, Cell(text=cell.text, amounts=(amount,)),
    )  # fmt: skip


def _offers(answer: BudgetAnswer) -> Iterator[Block]:
    for job in answer.jobs:
        if job.alternatives:
            yield Table(
                title=say("The whole project on one offer alone, median case"),
                columns=(
                    Column(name=say("Offer")),
                    Column(name=say("Region")),
                    Column(name=say("Price"), amounts=1),
                    Column(name=say("Per")),
                    Column(name=say("Price of")),
                    Column(name=say("Total"), amounts=1, unit=answer.currency),
                ),
                rows=tuple(
                    (
                        words(f"{one.offer.provider}: {one.offer.name}"),
                        words(one.offer.region or UNKNOWN),
                        money_cell(one.offer.price),
                        words(per_label(one.offer.per)),
                        words(date_text(one.offer.as_of)),
                        money_cell(one.money),
                    )
                    for one in job.alternatives
                ),
            )
        if job.break_even is not None:
            yield Chart(
                name="break_even",
                title=say("From how many hours on which offer pays"),
                caption=break_even_sentence(job.break_even),
                specification=break_even_lines(job.break_even, width=WIDE),
                narrow=break_even_lines(job.break_even, width=NARROW),
            )
        if job.constraints:
            told = tuple(constraint_text(one) for one in job.constraints)
            yield Points(title=say("What the limits cost"), items=told)
