"""The answers of ``learn`` and ``store list`` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.learned import (
    LearnAnswer,
    LearnedFigure,
    LearnedRun,
    StoreAnswer,
    StoredMeasurement,
)
from tuneplan.contract.parts import Range
from tuneplan.language import say
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import UNKNOWN, Column, heading, paragraph, points, render, table
from tuneplan.units import format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

ID_LENGTH = 12  # characters of an id that a person is shown


def learn_text(answer: LearnAnswer, page: Page) -> str:
    """Each run: the logs, what was measured beside the prediction, what to heed."""
    return render(list(_runs(answer, page)), page)


def _runs(answer: LearnAnswer, page: Page) -> Iterator[RenderableType]:
    for run in answer.runs:
        yield heading(say("Measured: {name}", name=run.name))
        yield points([_log_line(run, number) for number in range(len(run.logs))])
        if run.figures:
            yield figures_table(run.figures)
        told = _told(run)
        if told:
            yield paragraph(told)
        yield from ledger([], run.warnings, page, full=True)
    if answer.job is None and any(run.figures for run in answer.runs):
        yield paragraph(
            say("Name the job that ran (--job JOB) to see the prediction beside the measurement.")
        )


def _log_line(run: LearnedRun, number: int) -> str:
    log = run.logs[number]
    steps = (
        say(", steps {first} to {last}", first=log.first_step, last=log.last_step)
        if log.last_step is not None
        else ""
    )
    return say(
        "{path}: {format}, {points} entries{steps}",
        path=log.path,
        format=log.format,
        points=log.points,
        steps=steps,
    )


def figures_table(figures: list[LearnedFigure]) -> RenderableType:
    """Measured figures beside what was predicted."""
    columns = [
        Column(name=say("figure")),
        Column(name=say("measured"), right=True),
        Column(name=say("predicted"), right=True),
        Column(name=say("range"), right=True),
        Column(name=say("off by"), right=True),
        Column(name=say("inside")),
    ]
    rows = [
        (
            figure_label(figure.quantity),
            amount(figure.quantity, figure.measured),
            amount(figure.quantity, figure.predicted.likely) if figure.predicted else UNKNOWN,
            (range_text(figure.quantity, figure.predicted) if figure.predicted else UNKNOWN),
            UNKNOWN if figure.error_fraction is None else f"{figure.error_fraction:+.1%}",
            UNKNOWN
            if figure.inside_interval is None
            else say("yes")
            if figure.inside_interval
            else say("no"),
        )
        for figure in figures
    ]
    return table(columns, rows)


def range_text(quantity: str, predicted: Range) -> str:
    """Both ends; the unit once where it is the same."""
    low, high = amount(quantity, predicted.low), amount(quantity, predicted.high)
    number, _, unit = low.rpartition(" ")
    return f"{number} - {high}" if number and high.endswith(f" {unit}") else f"{low} - {high}"


def figure_label(quantity: str) -> str:
    """A measured figure in words."""
    return {
        "step_s": say("time of an optimizer step"),
        "train_s": say("training in all"),
        "total_s": say("the whole run"),
        "tokens_per_s_per_accelerator": say("tokens a second and card, padding included"),
        "real_tokens_per_s_per_accelerator": say("tokens a second and card"),
        "samples_per_s": say("samples a second"),
        "peak_bytes": say("memory, allocated peak"),
        "peak_reserved_bytes": say("memory, reserved peak"),
        "peak_device_bytes": say("memory of the whole device"),
        "power_w": say("power of a card, mean"),
        "utilization_fraction": say("utilization of a card, mean"),
    }.get(quantity, quantity)


def amount(quantity: str, value: float) -> str:
    """A figure with its unit."""
    if quantity.endswith("_bytes"):
        return format_gib(value)
    if quantity == "step_s":
        return say("{seconds} s", seconds=f"{value:.3g}" if value < 100 else f"{value:.0f}")
    if quantity.endswith("_s") and "_per_" not in quantity:
        return format_duration(value)
    if quantity.endswith("_fraction"):
        return f"{value:.0%}"
    if quantity == "power_w":
        return say("{watts} W", watts=f"{value:.0f}")
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _told(run: LearnedRun) -> str:
    parts = []
    if run.relative_error is not None:
        parts.append(
            say("The step time is known to ±{share} (80 %).", share=f"{run.relative_error:.1%}")
        )
    if run.measurement_id is not None:
        parts.append(say("Kept as {id}.", id=run.measurement_id[:ID_LENGTH]))
    return " ".join(parts)


def store_text(answer: StoreAnswer, page: Page) -> str:
    """One line a measurement, oldest first."""
    if not answer.measurements:
        return render([paragraph(say("{store} holds no measurement", store=answer.store))], page)
    columns = [
        Column(name=say("id"), keep=True),
        Column(name=say("measured"), keep=True),
        Column(name=say("from")),
        Column(name=say("job")),
        Column(name=say("card")),
        Column(name=say("step"), right=True, keep=True),
        Column(name=say("memory"), right=True, keep=True),
    ]
    rows = [_row(one) for one in answer.measurements]
    return render([heading(say("Kept in {store}", store=answer.store)), table(columns, rows)], page)


def _row(one: StoredMeasurement) -> tuple[str, ...]:
    count = f"{one.num_accelerators} x " if (one.num_accelerators or 1) > 1 else ""
    return (
        one.measurement_id[:ID_LENGTH],
        (one.measured_at or one.kept_at)[:10],
        f"{one.origin}, {one.status}" if one.status != "ok" else one.origin,
        ", ".join(word for word in (one.model, one.method) if word) or UNKNOWN,
        f"{count}{one.accelerator}" if one.accelerator else UNKNOWN,
        UNKNOWN if one.step_s is None else amount("step_s", one.step_s),
        UNKNOWN if one.peak_bytes is None else format_gib(one.peak_bytes),
    )
