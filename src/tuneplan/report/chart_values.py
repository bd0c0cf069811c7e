"""The figures of a chart as a table, for those who do not see it and for pages without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tuneplan.language import say
from tuneplan.report.view import Amount, Cell, Chart, Column, Table

_MOST_ROWS: Final = 200
_SIGNIFICANT: Final = 4
_NO_FIGURES: Final = frozenset(["data", "datasets", "values", "href", "tooltip", "order"])


def chart_table(chart: Chart) -> Table:
    """The longest list of values that the chart draws; a column is called as its axis is."""
    lists = list(_value_lists(chart.specification))
    rows = max(lists, key=len, default=[])
    titles = dict(_titles(chart.specification))
    names = list(dict.fromkeys(name for row in rows for name in row if name in titles))
    numeric = [all(_is_number(row.get(name)) for row in rows) for name in names]
    note = ""
    if len(rows) > _MOST_ROWS:
        note = say("The first {shown} of {count} rows.", shown=_MOST_ROWS, count=len(rows))
    return Table(
        title=chart.title,
        columns=tuple(
            Column(name=titles[name], amounts=int(number))
            for name, number in zip(names, numeric, strict=True)
        ),
        rows=tuple(tuple(_cell(row.get(name)) for name in names) for row in rows[:_MOST_ROWS]),
        note=note,
    )


def _value_lists(part: Any) -> Iterator[list[Mapping[str, Any]]]:
    if isinstance(part, Mapping):
        values = (part.get("data") or {}).get("values") if "data" in part else None
        if isinstance(values, list):
            yield values
        for name in ("layer", "vconcat", "hconcat", "concat"):
            for one in part.get(name) or ():
                yield from _value_lists(one)
        if isinstance(part.get("spec"), Mapping):
            yield from _value_lists(part["spec"])


def _titles(part: Any) -> Iterator[tuple[str, str]]:
    """Fields that are drawn, with the titles of their axes or legends."""
    if isinstance(part, list):
        for one in part:
            yield from _titles(one)
    elif isinstance(part, Mapping):
        field, encoded = part.get("field"), "type" in part
        if isinstance(field, str) and (encoded or set(part) == {"field"}):
            legend, axis = part.get("legend"), part.get("axis")
            titles = [part.get("title")]
            titles += [one.get("title") for one in (legend, axis) if isinstance(one, Mapping)]
            yield field, next((one for one in titles if isinstance(one, str)), field)
        for name, one in part.items():
            if name not in _NO_FIGURES:
                yield from _titles(one)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> Cell:
    if not _is_number(value):
        return Cell(text="" if value is None else str(value))
    text = f"{value:,.{_SIGNIFICANT}g}" if abs(value) < 1000 else f"{value:,.0f}"
    return Cell(text=text, amounts=(Amount(text=text, value=float(value)),))
