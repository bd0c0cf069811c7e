"""The answer of ``validate`` as one HTML page: nothing is loaded; tables need no extra."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.language import current_language, say
from tuneplan.planner.validate import Validation
from tuneplan.report.dates import date_text
from tuneplan.report.drawing import svg
from tuneplan.report.html import style
from tuneplan.report.validation import FIGURE_HEADS, largest_terms, nearest_runs, quantity_label
from tuneplan.report.validation_charts import probability, reliability, scatter
from tuneplan.runs.comparison import Comparison, Quantity
from tuneplan.runs.summaries import Summary
from tuneplan.units import format_gib

_GROUPS: Final = ("cards", "source", "method", "framework", "accelerator", "size")
_WORST: Final = 20
_WIDE, _NARROW = 440, 250


def validation_html(found: Validation, *, as_of: str) -> str:
    """The page; without the ``report`` extra it says how to install it where charts would be."""
    title = say("Predictions against measured runs")
    sheet = (resources.files("tuneplan.report") / "templates" / "report.css").read_text("utf-8")
    predicted = sum(row.predicted is not None for row in found.rows)
    body = [
        *_section("verdicts", say("Does it fit?"), _verdicts(found)),
        *_section("charts", say("Predicted over measured"), _scatters(found)),
        *_section("ranges", say("Do the ranges hold?"), _reliability(found)),
        *(
            line
            for quantity in dict.fromkeys(one.quantity for one in found.summary)
            for line in _section(
                str(quantity), quantity_label(quantity), _errors(found.summary, quantity)
            )
        ),
        *_section("worst", say("The worst runs"), _worst(found)),
        *_section("skipped", say("Skipped runs"), _skipped(found)),
    ]
    subtitle = say(
        "{path}: {rows} runs, {predicted} predicted, {skipped} skipped; {day}",
        path=found.path,
        rows=len(found.rows),
        predicted=predicted,
        skipped=len(found.rows) - predicted,
        day=date_text(as_of),
    )
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="{current_language()}"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            (
                '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
                "style-src 'unsafe-inline'; img-src data:\">"
            ),
            f'<link rel="icon" href="data:,"><title>{escape(title)}</title>',
            f"<style>\n{style(sheet)}\n</style></head><body>",
            f'<header><h1>{escape(title)}</h1><p class="quiet">{escape(subtitle)}</p></header>',
            "<main>",
            *body,
            "</main></body></html>\n",
        ]
    )


def _section(name: str, title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f'<section id="{escape(name)}"><h2>{escape(title)}</h2>'
    yield from lines
    yield "</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """A table whose first columns are words, the others numbers."""
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(
        f'<th scope="col"{"" if place < words else _NUMBER}>{escape(name)}</th>'
        for place, name in enumerate(head)
    )
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = (
            f"<td{'' if place < words else _NUMBER}>{escape(cell)}</td>"
            for place, cell in enumerate(row)
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


_NUMBER: Final = ' class="number"'


def _verdicts(found: Validation) -> Iterator[str]:
    said = found.verdicts
    yield from _table(
        [say("what happened"), say("runs"), say("wrong verdicts"), say("share")],
        [
            _verdict_row(say("ran out of memory, called fits"), said.num_out_of_memory,
                         said.missed_oom, said.missed_oom_rate),
            _verdict_row(say("ran, called does not fit"), said.num_ran, said.false_oom,
                         said.false_oom_rate),
            _verdict_row(say("called tight"), said.num_ran + said.num_out_of_memory, said.tight,
                         said.tight_rate),
        ],
    )  # fmt: skip


def _verdict_row(name: str, count: int, wrong: int, rate: float | None) -> list[str]:
    return [name, str(count), str(wrong), "-" if rate is None else f"{rate:.1%}"]


def _scatters(found: Validation) -> Iterator[str]:
    for quantity in Quantity:
        points = [
            (row.run.source, item)
            for row in found.rows
            for item in row.compared
            if item.quantity is quantity
        ]
        if points:
            label = quantity_label(quantity)
            yield from _figure(
                label,
                scatter(points, title="", size=_WIDE),
                scatter(points, title="", size=_NARROW),
            )


def _reliability(found: Validation) -> Iterator[str]:
    series: dict[str, list[float]] = {}
    for item in (item for row in found.rows for item in row.compared):
        known = probability(item)
        if known is not None:
            series.setdefault(quantity_label(item.quantity), []).append(known)
    if not series:
        yield f"<p>{escape(say('Nothing was compared.'))}</p>"
        return
    label = say("Share of runs that had at most what was given a probability")
    yield from _figure(
        label,
        reliability(series, title="", size=_WIDE),
        reliability(series, title="", size=_NARROW),
    )


def _figure(label: str, wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> Iterator[str]:
    try:
        drawn = svg(wide, label=label), svg(narrow, label=label)
    except MissingExtra as missing:
        yield f'<p class="quiet">{escape(label)}: {escape(str(missing))}</p>'
        return
    yield f"<figure><figcaption>{escape(label)}</figcaption>"
    yield f'<div class="wide">{drawn[0]}</div><div class="narrow">{drawn[1]}</div></figure>'


def _errors(summaries: Sequence[Summary], quantity: Quantity) -> Iterator[str]:
    shown = [one for one in summaries if one.quantity is quantity]
    head = [say("runs of"), *(say(name) for name in FIGURE_HEADS)]
    for group in (None, *_GROUPS):
        own = [one for one in shown if _group(one) == group]
        if not own or (group is not None and len(own) < 2):
            continue
        yield f"<h3>{escape(say('all') if group is None else say('by {group}', group=group))}</h3>"
        yield from _table(head, [_error_row(one, group) for one in own])


def _group(one: Summary) -> str | None:
    return next((name for name in _GROUPS if getattr(one, name) is not None), None)


def _error_row(one: Summary, group: str | None) -> list[str]:
    return [
        say("all") if group is None else str(getattr(one, group)),
        str(one.count),
        f"{one.median_abs_error_fraction:.1%}",
        f"{one.p90_abs_error_fraction:.1%}",
        f"{one.bias_fraction:+.1%}",
        f"{one.coverage_fraction:.0%}",
        f"{one.median_width_fraction:.1%}",
    ]


def _worst(found: Validation) -> Iterator[str]:
    for memory in (True, False):
        rows = found.worst(_WORST, memory=memory)
        if not rows:
            continue
        yield f"<h3>{escape(say('memory') if memory else say('speed'))}</h3>"
        table = []
        for row in rows:
            item = max(
                (one for one in row.compared if one.quantity.is_memory is memory),
                key=lambda one: abs(one.error_fraction),
            )
            table.append(
                [
                    row.run.id,
                    f"{row.run.model}, {row.run.accelerator} x {row.run.accelerators}",
                    largest_terms(row, memory=memory),
                    nearest_runs(row, memory=memory),
                    _value(item, item.measured),
                    _value(item, item.likely),
                    f"{item.error_fraction:+.0%}",
                ]
            )
        head = [say("run"), say("job"), say("largest terms"), say("nearest runs"),
                say("measured"), say("predicted"), say("error")]  # fmt: skip
        yield from _table(head, table, words=4)


def _value(item: Comparison, value: float) -> str:
    return format_gib(value) if item.quantity.is_memory else f"{value:,.0f}"


def _skipped(found: Validation) -> Iterator[str]:
    if not found.skipped:
        yield f"<p>{escape(say('None.'))}</p>"
        return
    rows = [[one.code, str(one.example), str(one.count), str(one.counted)] for one in found.skipped]
    head = [say("reason"), say("for example"), say("runs"), say("of them complete")]
    yield from _table(head, rows, words=2)
