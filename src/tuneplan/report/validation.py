"""The answer of ``validate`` for people: tables of errors, and the worst rows with their terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.language import say, sentence
from tuneplan.planner.validate import SkippedReason, ValidatedRow, Validation
from tuneplan.runs.comparison import Quantity, Verdicts
from tuneplan.runs.summaries import Summary
from tuneplan.spec.answer import Term
from tuneplan.units import format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_GROUPS: Final = ("cards", "source", "method", "framework", "accelerator", "size")
# Heads of the figures of a group of runs.
FIGURE_HEADS: Final = (
    sentence("runs"),
    sentence("median"),
    "P90",
    sentence("bias"),
    sentence("inside"),
    sentence("width"),
)


def print_validation(
    validation: Validation,
    console: Console,
    *,
    worst: int = 10,
    group_by: Sequence[str] = ("source",),
) -> None:
    """Error tables, verdicts, the worst rows with what they are made of, and the skipped rows.

    Args:
        validation: The answer.
        console: Where to print; its width decides how much of a name is shown.
        worst: How many of the worst rows, of memory and of speed each.
        group_by: ``source``, ``method``, ``framework``, ``accelerator``: which tables to print.
    """
    predicted = sum(row.predicted is not None for row in validation.rows)
    console.print(
        say(
            "{path}: {rows} runs, {predicted} predicted, {skipped} skipped",
            path=validation.path,
            rows=len(validation.rows),
            predicted=predicted,
            skipped=len(validation.rows) - predicted,
        ),
        markup=False,
    )
    for quantity in dict.fromkeys(summary.quantity for summary in validation.summary):
        console.print()
        console.print(_errors(validation.summary, quantity, group_by))
    if validation.summary:
        console.print()
        console.print(
            say(
                "Median and P90 are of the absolute error, bias is the median with its sign; "
                "inside: the share of runs that lie in the predicted range (80 % would be right); "
                "width: (high - low) / likely."
            ),
            markup=False,
        )
    console.print()
    _print_verdicts(validation.verdicts, console)
    for memory in (True, False):
        rows = validation.worst(worst, memory=memory)
        if rows:
            console.print()
            console.print(_worst(rows, memory=memory))
    if validation.skipped:
        console.print()
        console.print(_skipped(validation.skipped))


def quantity_label(quantity: Quantity) -> str:
    """What people call it."""
    return {
        Quantity.ALLOCATED: say("memory, allocated peak"),
        Quantity.RESERVED: say("memory, reserved peak"),
        Quantity.DEVICE: say("memory, whole device (nvidia-smi)"),
        Quantity.TOKENS: say("tokens per second and accelerator"),
        Quantity.REAL_TOKENS: say("tokens per second and accelerator, without padding"),
    }[quantity]


def _errors(summaries: Sequence[Summary], quantity: Quantity, group_by: Sequence[str]) -> Table:
    table = _table(say("{quantity}: predicted / measured - 1", quantity=quantity_label(quantity)))
    table.add_column(say("runs of"), overflow="ellipsis", no_wrap=True, ratio=1)
    for label in FIGURE_HEADS:
        table.add_column(say(label), justify="right", no_wrap=True)
    shown = [item for item in summaries if item.quantity is quantity]
    for item in shown:
        kind = _group(item)
        if kind is None or kind[0] == "cards" or kind[0] in group_by:
            name = say("all") if kind is None else _card_label(kind[1])
            table.add_row(name, *_figures(item))
        if kind is None and item.num_sources > 1:
            table.add_row(
                say("all, median of {count} sources", count=item.num_sources),
                str(item.num_sources),
                _percent(item.source_median_abs_error_fraction),
                _percent(item.source_median_p90_abs_error_fraction),
                "",
                "",
                "",
            )
    return table


def _figures(item: Summary) -> tuple[str, ...]:
    return (
        str(item.count),
        _percent(item.median_abs_error_fraction),
        _percent(item.p90_abs_error_fraction),
        _signed(item.bias_fraction),
        f"{item.coverage_fraction:.0%}",
        f"{item.median_width_fraction:.0%}",
    )


def _group(item: Summary) -> tuple[str, str] | None:
    for name in _GROUPS:
        value = getattr(item, name)
        if value is not None:
            return name, value
    return None


def _card_label(value: str) -> str:
    return {"single": say("one accelerator"), "several": say("several accelerators")}.get(
        value, value
    )


def _print_verdicts(verdicts: Verdicts, console: Console) -> None:
    console.print(
        say(
            "Out of memory: {missed} of {oom} missed ({missed_rate}); {false} of {ran} that ran "
            "called too large ({false_rate}); tight: {tight} ({tight_rate})",
            missed=verdicts.missed_oom,
            oom=verdicts.num_out_of_memory,
            missed_rate=_rate(verdicts.missed_oom_rate),
            false=verdicts.false_oom,
            ran=verdicts.num_ran,
            false_rate=_rate(verdicts.false_oom_rate),
            tight=verdicts.tight,
            tight_rate=_rate(verdicts.tight_rate),
        ),
        markup=False,
    )


def _worst(rows: Sequence[ValidatedRow], *, memory: bool) -> Table:
    title = say("Worst runs, memory") if memory else say("Worst runs, speed")
    table = _table(title)
    table.add_column(say("run"), no_wrap=True)
    for label in (sentence("measured"), sentence("predicted"), sentence("error")):
        table.add_column(say(label), justify="right", no_wrap=True)
    table.add_column(say("largest terms of the prediction, and the nearest runs"), ratio=1)
    for row in rows:
        item = max(
            (item for item in row.compared if item.quantity.is_memory is memory),
            key=lambda item: abs(item.error_fraction),
        )
        table.add_row(
            row.run.id,
            _value(item.quantity, item.measured),
            _value(item.quantity, item.likely),
            _signed(item.error_fraction),
            explained(row, memory=memory),
        )
    return table


def explained(row: ValidatedRow, *, memory: bool) -> str:
    """The largest terms of a prediction, and the measured runs that were closest to the job."""
    terms, runs = largest_terms(row, memory=memory), nearest_runs(row, memory=memory)
    return f"{terms}; {runs}" if runs else terms


def nearest_runs(row: ValidatedRow, *, memory: bool) -> str:
    """The measured runs that a range rests on, the most first; blank where on none."""
    predicted = row.predicted
    nearest = None
    if predicted is not None:
        nearest = predicted.nearest_memory if memory else predicted.nearest_time
    if nearest is None or not nearest.rows:
        return ""
    ordered = sorted(nearest.rows.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    found = ", ".join(say("{count} of {source}", count=n, source=name) for name, n in ordered)
    if not nearest.fields:
        return say("nearest runs: {runs}, none alike", runs=found)
    return say("nearest runs: {runs}, same {shared}", runs=found, shared=", ".join(nearest.fields))


def largest_terms(row: ValidatedRow, *, memory: bool, count: int = 4) -> str:
    """What a prediction is mostly made of, largest first, for people."""
    predicted = row.predicted
    if predicted is None:
        return ""
    terms: Sequence[Term] = predicted.memory_terms if memory else predicted.time_terms
    largest = sorted(terms, key=lambda term: -abs(term.value))[:count]
    show = format_gib if memory else format_duration
    return ", ".join(f"{term.kind} {show(term.value)}" for term in largest)


def _skipped(reasons: Sequence[SkippedReason]) -> Table:
    table = _table(say("Skipped runs"))
    table.add_column(say("runs"), justify="right", no_wrap=True)
    table.add_column(say("complete"), justify="right", no_wrap=True)
    table.add_column(say("reason"), no_wrap=True)
    table.add_column(say("for example"), ratio=1)
    for reason in reasons:
        table.add_row(str(reason.count), str(reason.counted), reason.code, str(reason.example))
    return table


def _table(title: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    return RichTable(
        title=title, title_justify="left", box=SIMPLE_HEAD, expand=True, pad_edge=False
    )


def _value(quantity: Quantity, value: float) -> str:
    return format_gib(value) if quantity.is_memory else f"{value:,.0f}"


def _percent(fraction: float) -> str:
    return f"{fraction:.1%}"


def _signed(fraction: float) -> str:
    return f"{fraction:+.1%}"


def _rate(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.0%}"
