"""The answer of ``catalog`` as text: a list, or one entry in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tuneplan.contract.answers import CatalogAnswer, CatalogEntry, Fact
from tuneplan.language import say, sentence
from tuneplan.report.labels import basis_label, counted
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    heading,
    paragraph,
    points,
    render,
    table,
    value_text,
)
from tuneplan.units import format_count, format_gb, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of the lists: field of the entries, head of the column.
_LISTED: Final = {
    "models": (("hf_id", sentence("Hub id")),),
    "accelerators": (
        ("memory_bytes", sentence("Memory")),
        ("memory_bandwidth_bytes_per_s", sentence("Bandwidth")),
        ("dense_flop_per_s.bfloat16", sentence("bf16 dense")),
        ("link", sentence("Link")),
    ),
    "prices": (
        ("accelerator", sentence("Accelerator")),
        ("num_accelerators", sentence("Cards")),
        ("price_per_accelerator", sentence("Per card")),
        ("region", sentence("Region")),
        ("age", sentence("Age")),
    ),
}


def catalog_text(answer: CatalogAnswer, page: Page) -> str:
    """One line an entry, or every fact with its source where there is one entry only."""
    blocks: list[RenderableType] = []
    if len(answer.entries) == 1:
        blocks = _in_full(answer.entries[0])
    else:
        blocks = [
            _list(answer),
            paragraph(say("{count} entries", count=len(answer.entries))),
        ]
    return render(blocks, page)


def fact_text(fact: Fact | None) -> str:
    """A fact in its unit, as people read it."""
    if fact is None or fact.value is None:
        return UNKNOWN
    value, unit = fact.value, fact.unit
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value_text(value)
    shown: dict[str, Any] = {
        "B": format_gib,
        "B/s": lambda rate: f"{format_gb(rate)}/s",
        "FLOP/s": lambda rate: f"{rate / 1e12:,.0f} TFLOP/s",
    }
    if unit in shown:
        return str(shown[unit](value))
    return counted(value_text(value), unit or "")


def _list(answer: CatalogAnswer) -> RenderableType:
    listed = _LISTED[answer.kind]
    models = answer.kind == "models"
    columns = [Column(name=say("Name"))]
    columns += [Column(name=say(head)) for _, head in listed]
    if models:
        columns += [
            Column(name=say("Parameters"), right=True, keep=True),
            Column(name=say("Active"), right=True, keep=True),
        ]
    rows = []
    for entry in answer.entries:
        cells = [_name(entry), *_cells(entry, [name for name, _ in listed])]
        if models:
            cells += [_count(entry.total_parameters), _count(entry.active_parameters)]
        rows.append(cells)
    return table(columns, rows)


def _name(entry: CatalogEntry) -> str:
    """The name, with what sets an entry apart from the others of its name."""
    spot = entry.fields.get("interruptible")
    if spot is not None and spot.value:
        return say("{name} (interruptible)", name=entry.name)
    return entry.name


def _cells(entry: CatalogEntry, names: Sequence[str]) -> list[str]:
    """Facts in a list: the head of the column says the rest; an old price is marked."""
    cells = [fact_text(entry.fields.get(name)) for name in names]
    stale = entry.fields.get("stale")
    if stale is not None and stale.value:
        cells[-1] += " " + say("old")
    return cells


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else format_count(number)


def _in_full(entry: CatalogEntry) -> list[RenderableType]:
    blocks = [heading(entry.name)]
    if entry.aliases:
        blocks.append(paragraph(say("also: {names}", names=", ".join(entry.aliases))))
    if entry.overridden_by:
        blocks.append(paragraph(say("replaced by {file}", file=entry.overridden_by)))
    facts = {name: fact for name, fact in entry.fields.items() if fact.value is not None}
    sources = list(dict.fromkeys(fact.source for fact in facts.values() if fact.source))
    rows = [
        (
            name,
            fact_text(fact),
            _number(fact.source, sources),
            basis_label(fact.confidence or UNKNOWN),
        )
        for name, fact in facts.items()
    ]
    for name, count in (
        ("total_parameters", entry.total_parameters),
        ("active_parameters", entry.active_parameters),
    ):
        if count is not None:
            rows.insert(0, (name, format_count(count), UNKNOWN, UNKNOWN))
    heads = (
        Column(name=say("Fact")),
        Column(name=say("Value")),
        Column(name=say("Source"), keep=True),
        Column(name=say("Sure"), keep=True),
    )
    dates = sorted({fact.as_of for fact in facts.values() if fact.as_of})
    listed = [f"[{number}] {source}" for number, source in enumerate(sources, start=1)]
    blocks.append(table(heads, rows))
    if dates:
        blocks.append(paragraph(say("Of {dates}", dates=", ".join(dates))))
    return [*blocks, *([points(listed)] if listed else [])]


def _number(source: str | None, sources: list[str]) -> str:
    """A source as its number in the list below the table."""
    return f"[{sources.index(source) + 1}]" if source else UNKNOWN
