"""A schedule as a document: the picture, the jobs, the machines."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.contract.scheduled import ScheduleAnswer, ScheduledJob
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    gib_cell,
    hours_range_cell,
    money_cell,
    number_cell,
    percent_cell,
    words,
)
from tuneplan.report.dates import moment_text
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.schedule import on_text, sentences, title_text, why_none
from tuneplan.report.schedule_charts import gantt
from tuneplan.report.sections.remarks import remarks_of
from tuneplan.report.tables import UNKNOWN
from tuneplan.report.view import (
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
from tuneplan.units import HOUR_S


def schedule_document(answer: ScheduleAnswer) -> Document:
    """The schedule to hand on."""
    sections = [_summary(answer)]
    if answer.jobs:
        sections.append(_jobs(answer))
    sections += [_machines(answer), remarks_of(answer.warnings, answer.assumptions)]
    return Document(
        kind="schedule",
        title=title_text(answer),
        subtitle=say("A schedule from {start}", start=moment_text(answer.starts_at)),
        as_of=answer.as_of,
        language=answer.language,
        tuneplan_version=answer.tuneplan_version,
        sections=tuple(sections),
    )


def _summary(answer: ScheduleAnswer) -> Section:
    blocks: list[Block] = []
    total = answer.total
    if total is None or answer.makespan_s is None:
        blocks.append(Paragraph(text=why_none(answer), tone="does_not_fit"))
        if answer.infeasible:
            told = tuple(one.message for one in answer.infeasible)
            blocks.append(Points(title=say("What makes it impossible"), items=told))
        return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))
    blocks += [Paragraph(text=text) for text in sentences(answer)]
    tiles = [
        Fact(name=say("All done after"), cell=hours_range_cell(answer.makespan_s)),
        Fact(
            name=say("First come, first served"),
            cell=number_cell(answer.first_come.makespan_s / HOUR_S, unit="h"),
        ),
        Fact(name=say("Stands idle"), cell=percent_cell(answer.idle_fraction)),
        Fact(name=say("Late jobs"), cell=count_cell(total.num_late)),
    ]
    if total.cost is not None:
        terms = [f"{{jobs.{place}.cost}}" for place, _ in enumerate(answer.jobs)]
        cell = money_cell(total.cost)
        tiles.append(Fact(name=say("Cost"), cell=_with_formula(cell, " + ".join(terms))))
    blocks.append(Facts(title=say("At a glance"), rows=tuple(tiles), tiles=True))
    blocks.append(
        Chart(
            name="gantt",
            title=say("Who runs when; a red mark is a deadline"),
            caption="; ".join(
                say(
                    "{name}: {start:.3g} to {end:.3g} h on {machine}",
                    name=job.name,
                    start=job.start_s / HOUR_S,
                    end=job.end_s / HOUR_S,
                    machine=job.on[0].machine,
                )
                for job in answer.jobs
            ),
            specification=gantt(answer, width=WIDE),
            narrow=gantt(answer, width=NARROW),
        )
    )
    return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))


def _with_formula(cell: Cell, formula: str) -> Cell:
    return replace(cell, amounts=(replace(cell.amounts[0], formula=formula),))


def _jobs(answer: ScheduleAnswer) -> Section:
    currency = next((job.cost.currency for job in answer.jobs if job.cost is not None), "")
    return Section(
        name="jobs",
        title=say("Jobs"),
        blocks=(
            Table(
                title=say("In the order in which they begin"),
                columns=(
                    Column(name=say("Job")),
                    Column(name=say("On")),
                    Column(name=say("Begins")),
                    Column(name=say("Ends")),
                    Column(name=say("Begins after"), amounts=1, unit="h"),
                    Column(name=say("Ends after"), amounts=1, unit="h"),
                    Column(name=say("Duration"), amounts=3, unit="h"),
                    Column(name=say("Needs of each card"), amounts=1, unit="GiB"),
                    Column(name=say("Deadline after"), amounts=1, unit="h"),
                    Column(name=say("Cost"), amounts=1, unit=currency),
                ),
                rows=tuple(
                    _job(job, answer.jobs.index(job))
                    for job in sorted(answer.jobs, key=lambda one: (one.start_s, one.end_s))
                ),
            ),
        ),
    )


def _job(job: ScheduledJob, place: int) -> tuple[Cell, ...]:
    late = say(" (late)") if job.late_s else ""
    deadline = None if job.deadline_s is None else job.deadline_s / HOUR_S
    return (
        words(job.name),
        words(on_text(job)),
        words(moment_text(job.starts_at)),
        words(moment_text(job.ends_at) + late),
        number_cell(job.start_s / HOUR_S, unit="h", decimals=2),
        number_cell(job.end_s / HOUR_S, unit="h", decimals=2),
        hours_range_cell(job.duration_s),
        gib_cell(job.need_bytes),
        number_cell(deadline, unit="h", decimals=2),
        words(UNKNOWN) if job.cost is None else money_cell(job.cost, key=f"jobs.{place}.cost"),
    )


def _machines(answer: ScheduleAnswer) -> Section:
    return Section(
        name="machines",
        title=say("Machines"),
        blocks=(
            Table(
                title=say("The pool"),
                columns=(
                    Column(name=say("Machine")),
                    Column(name=say("Accelerator")),
                    Column(name=say("Cards"), amounts=1),
                    Column(name=say("Memory of a card"), amounts=1, unit="GiB"),
                    Column(name=say("Busy card-hours"), amounts=1, unit="h"),
                    Column(name=say("Idle"), amounts=1, unit="%"),
                ),
                rows=tuple(
                    (
                        words(machine.name),
                        words(machine.accelerator),
                        count_cell(machine.cards),
                        gib_cell(machine.memory_bytes),
                        number_cell(machine.busy_card_hours, unit="h", decimals=2),
                        percent_cell(machine.idle_fraction),
                    )
                    for machine in answer.machines
                ),
            ),
        ),
    )
