"""An estimate as the page shows it: the verdict, memory, time, cost, what was assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tuneplan.contract.answers import EstimateAnswer, EstimateBody, Fit, FitOn
from tuneplan.language import say
from tuneplan.report.amounts import gib_cell, percent_cell, words
from tuneplan.report.estimate import COMMON_CARDS, stated_cards
from tuneplan.report.fit_charts import (
    card_rows,
    device_range,
    memory_against_cards,
    memory_by_phase,
    memory_timeline,
)
from tuneplan.report.labels import phase_label
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.sections.cost import cost_section
from tuneplan.report.sections.ledger import assumption_table
from tuneplan.report.sections.memory import memory_section
from tuneplan.report.sections.remarks import remarks_section
from tuneplan.report.sections.summary import estimate_summary
from tuneplan.report.sections.time import time_section
from tuneplan.report.tables import value_text
from tuneplan.report.verdict import verdict_text
from tuneplan.report.view import Block, Cell, Chart, Column, Paragraph, Section, Table
from tuneplan.units import format_gib

WithKeys: TypeAlias = Callable[[Mapping[str, Any]], str]
_NAME: Final = "hardware.accelerator"


def fit_sections(answer: EstimateAnswer, *, with_keys: WithKeys) -> tuple[Section, ...]:
    """The parts, in the order in which they are read.

    Args:
        answer: One configuration.
        with_keys: Keys of the job to the address of the same page with them set.
    """
    return (
        _summary(answer, with_keys),
        _memory(answer),
        time_section(answer),
        cost_section(answer, answer.as_of),
        remarks_section(answer.lint, answer.warnings),
        _assumptions(answer),
    )


def _summary(answer: EstimateAnswer, with_keys: WithKeys) -> Section:
    """The verdict and its figures, the need against the cards, the cards to choose from."""
    section = estimate_summary(answer, answer.as_of, cards=stated_cards(answer))
    last = [block for block in section.blocks if isinstance(block, Chart)]
    told = [block for block in section.blocks if not isinstance(block, Chart)]
    *first, remark = told
    blocks: list[Block] = [*first, _against_cards(answer)]
    if isinstance(answer.fit, list):
        blocks += _cards(answer.fit, with_keys)
    return Section(name="summary", title=section.title, blocks=(*blocks, *last, remark))


def _against_cards(answer: EstimateBody) -> Chart:
    fit = answer.fit
    shown = [] if not isinstance(fit, list) else _shown(fit)
    cards, span = card_rows(answer, shown), device_range(answer)
    sizes = "; ".join(
        say(
            "{name}: {capacity}, {verdict}",
            name=row.name,
            capacity=format_gib(row.capacity_bytes),
            verdict=verdict_text(row.verdict),
        )
        for row in cards
    )
    return Chart(
        name="memory_against_cards",
        title=say("Memory by term, its range as a band, and what each card has"),
        caption=say(
            "needed: {low} to {high}. {cards}",
            low=format_gib(span.low),
            high=format_gib(span.high),
            cards=sizes,
        ),
        specification=memory_against_cards(answer, cards, width=WIDE),
        narrow=memory_against_cards(answer, cards, width=NARROW),
    )


def _shown(rows: Sequence[FitOn]) -> list[FitOn]:
    """The common cards, and the smallest that fits."""
    fitting = [row for row in rows if row.verdict == "fits"]
    smallest = min(fitting, key=lambda row: (row.capacity_bytes, row.accelerator), default=None)
    return [row for row in rows if row is smallest or row.accelerator in COMMON_CARDS]


def _cards(rows: Sequence[FitOn], with_keys: WithKeys) -> Iterator[Block]:
    """Every card; each is a link to the answer for it alone."""
    yield Table(
        title=say("Every card that can run it ({count})", count=len(rows)),
        columns=(
            Column(name=say("Card")),
            Column(name=say("Verdict")),
            Column(name=say("Probability"), amounts=1, unit="%"),
            Column(name=say("Capacity"), amounts=1, unit="GiB"),
            Column(name=say("Stays free"), amounts=1, unit="GiB"),
        ),
        rows=tuple(
            (
                Cell(text=row.accelerator, link=with_keys({_NAME: row.accelerator})),
                Cell(text=verdict_text(row.verdict), tone=row.verdict),
                percent_cell(row.probability_fits),
                gib_cell(row.capacity_bytes),
                gib_cell(row.headroom_bytes),
            )
            for row in rows
        ),
        folded=True,
    )


def _memory(answer: EstimateAnswer) -> Section:
    section = memory_section(answer, chart=False)
    tables = [block for block in section.blocks if not _is_phases(block)]
    blocks: list[Block] = [*tables, _phases(answer)]
    if answer.timeline:
        blocks.append(_timeline(answer))
    return Section(name="memory", title=section.title, blocks=tuple(blocks))


def _is_phases(block: Block) -> bool:
    """The table that the chart of the phases brings along itself."""
    return isinstance(block, Table) and block.folded


def _phases(answer: EstimateAnswer) -> Chart:
    return Chart(
        name="memory_by_phase",
        title=say("Peak by phase"),
        caption="; ".join(
            f"{phase_label(one.phase)} {format_gib(one.size_bytes)}"
            for one in answer.memory.by_phase
        ),
        specification=memory_by_phase(answer, width=WIDE),
        narrow=memory_by_phase(answer, width=NARROW),
    )


def _timeline(answer: EstimateAnswer) -> Chart:
    capacity = answer.fit.capacity_bytes if isinstance(answer.fit, Fit) else None
    most = max(one.allocated_bytes for one in answer.timeline)
    return Chart(
        name="memory_timeline",
        title=say("Memory in time, from the trace of the real model code"),
        caption=say("at most {size} allocated", size=format_gib(most)),
        specification=memory_timeline(answer.timeline, capacity, width=WIDE),
        narrow=memory_timeline(answer.timeline, capacity, width=NARROW),
    )


def _assumptions(answer: EstimateAnswer) -> Section:
    """What nobody stated; the job and the software, as they were taken."""
    blocks: list[Block] = []
    if answer.assumptions:
        blocks.append(assumption_table(answer.assumptions))
    else:
        blocks.append(Paragraph(text=say("Nothing had to be assumed."), tone="quiet"))
    blocks.append(_pairs(say("The job, as it was taken"), dict(_keys(answer.job))))
    software = {name: version or "?" for name, version in answer.software.items()}
    blocks.append(_pairs(say("Software"), software))
    return Section(name="assumptions", title=say("Assumptions"), blocks=tuple(blocks))


def _keys(job: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in job.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{path}{name}.")
        elif value is not None:
            yield f"{path}{name}", value_text(value)


def _pairs(title: str, pairs: Mapping[str, str]) -> Table:
    return Table(
        title=title,
        columns=(Column(name=say("Name")), Column(name=say("Value"))),
        rows=tuple((words(name), words(text)) for name, text in pairs.items()),
        folded=True,
    )
