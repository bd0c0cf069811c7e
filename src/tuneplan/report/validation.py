"""The answer of ``validate`` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.measured import ErrorSummary, ValidateAnswer
from tuneplan.language import say
from tuneplan.report.page import Page
from tuneplan.report.tables import UNKNOWN, Column, heading, render, table

if TYPE_CHECKING:
    from rich.console import RenderableType


def validation_text(answer: ValidateAnswer, page: Page) -> str:
    """Errors by group, verdicts, what was skipped and why."""
    return render(list(_blocks(answer)), page)


def _blocks(answer: ValidateAnswer) -> Iterator[RenderableType]:
    predicted = sum(row.status == "predicted" for row in answer.rows)
    yield heading(
        say(
            "{predicted} of {count} runs predicted",
            predicted=predicted,
            count=len(answer.rows),
        )
    )
    if answer.summary:
        yield table(
            (
                Column(name=say("Quantity")),
                Column(name=say("Runs of")),
                Column(name=say("Runs"), right=True, keep=True),
                Column(name=say("Median error"), right=True),
                Column(name=say("P90"), right=True, keep=True),
                Column(name=say("Bias"), right=True, keep=True),
                Column(name=say("In range"), right=True),
            ),
            [_summary(one) for one in answer.summary],
        )
    if answer.verdicts:
        yield table(
            (Column(name=say("Verdict")), Column(name=say("Runs"), right=True)),
            [(name, str(count)) for name, count in answer.verdicts.items()],
        )
    if answer.skipped:
        yield table(
            (Column(name=say("Skipped"), right=True, keep=True), Column(name=say("Because"))),
            [(str(one.count), one.reason) for one in answer.skipped],
        )


def _summary(one: ErrorSummary) -> tuple[str, ...]:
    group = [name for name in (one.method, one.framework, one.accelerator, one.source) if name]
    return (
        one.quantity,
        ", ".join(group) or say("all"),
        str(one.count),
        _percent(one.median_abs_error_fraction),
        _percent(one.p90_abs_error_fraction),
        UNKNOWN if one.bias_fraction is None else f"{one.bias_fraction:+.1%}",
        _percent(one.coverage_fraction),
    )


def _percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction:.1%}"
