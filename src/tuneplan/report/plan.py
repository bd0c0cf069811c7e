"""The answer of ``plan`` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.answers import PlanAnswer, PlanEntry
from tuneplan.language import say
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bytes_range_text,
    heading,
    money_range_text,
    paragraph,
    points,
    range_text,
    render,
    stacked,
    table,
    time_range_text,
    value_text,
)
from tuneplan.report.verdict import verdict_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan_text(answer: PlanAnswer, page: Page, *, full: bool = False) -> str:
    """The ranking, the best entry in full, the next lever, the rejections, the ledger."""
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: PlanAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    yield heading(
        say(
            "{model}: {count} plan(s), {goal} first",
            model=value_text(answer.job.get("model")),
            count=len(answer.entries),
            goal=answer.goal,
        )
    )
    if answer.entries:
        yield _ranking(answer.entries)
        yield points([_settings(entry) for entry in answer.entries])
    else:
        yield paragraph(say("Nothing fits within the limits."), style="red")
    if answer.next_best_lever is not None:
        lever = answer.next_best_lever
        saves = ", ".join(f"{name} {value_text(value)}" for name, value in lever.saves.items())
        yield paragraph(say("Next lever: {change} saves {saves}", change=lever.change, saves=saves))
    yield paragraph(
        say(
            "{evaluated:,} of {candidates:,} candidates evaluated in {elapsed:.2f} s",
            evaluated=answer.search.num_evaluated,
            candidates=answer.search.num_candidates,
            elapsed=answer.search.elapsed_s,
        )
    )
    if answer.rejected.by_reason:
        yield table(
            (Column(name=say("Rejected"), right=True, keep=True), Column(name=say("Because"))),
            [(f"{reason.count:,}", reason.message) for reason in answer.rejected.by_reason],
        )
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def _ranking(entries: list[PlanEntry]) -> RenderableType:
    return table(
        (
            Column(name="#", right=True, keep=True),
            Column(name=say("On")),
            Column(name=say("Peak memory"), right=True, keep=True),
            Column(name=say("Duration"), right=True, keep=True),
            Column(name=say("Card time"), right=True, keep=True),
            Column(name=say("Cost"), right=True, keep=True),
        ),
        [_row(entry) for entry in entries],
    )


def _row(entry: PlanEntry) -> tuple[str, ...]:
    estimate = entry.estimate
    hardware, time = estimate.hardware, estimate.time
    on = f"{hardware.count} x {hardware.accelerator}" if hardware else UNKNOWN
    fit = estimate.fit
    if fit is not None and not isinstance(fit, list) and fit.verdict != "fits":
        on += f" ({verdict_text(fit.verdict)})"
    return (
        f"{entry.rank}{'*' if entry.pareto else ''}",
        on,
        stacked(bytes_range_text(estimate.memory.peak_bytes)),
        stacked(time_range_text(time.total_s if time else None)),
        stacked(range_text(estimate.accelerator_hours, "h")),
        stacked(money_range_text(estimate.cost.total if estimate.cost else None)),
    )


def _settings(entry: PlanEntry) -> str:
    chosen = ", ".join(f"{name}={value_text(value)}" for name, value in entry.settings.items())
    labels = f" [{', '.join(entry.labels)}]" if entry.labels else ""
    return f"{entry.rank}{labels}: {chosen}"
