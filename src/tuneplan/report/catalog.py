"""The answer of ``catalog`` as text: a list, or one entry in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuneplan.contract.answers import CatalogAnswer, CatalogEntry, Fact
from tuneplan.language import say
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    heading,
    paragraph,
    render,
    table,
    value_text,
)
from tuneplan.units import format_count, format_gb, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of the lists: field of the entries, head of the column.
_LISTED: Final = {
    "models": (("hf_id", "Hub id"),),
    "accelerators": (
        ("memory_bytes", "Memory"),
        ("memory_bandwidth_bytes_per_s", "Bandwidth"),
        ("bfloat16_flop_per_s", "bf16 dense"),
        ("link", "Link"),
    ),
    "prices": (
        ("accelerator", "Accelerator"),
        ("num_accelerators", "Cards"),
        ("price", "Per hour"),
        ("region", "Region"),
        ("as_of", "Of"),
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
        "bytes": format_gib,
        "bytes/s": lambda rate: f"{format_gb(rate)}/s",
        "flop/s": lambda rate: f"{rate / 1e12:,.0f} TFLOP/s",
        "count": format_count,
    }
    if unit in shown:
        return str(shown[unit](value))
    return f"{value_text(value)} {unit or ''}".rstrip()


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
        cells = [entry.name, *(fact_text(entry.fields.get(name)) for name, _ in listed)]
        if models:
            cells += [_count(entry.total_parameters), _count(entry.active_parameters)]
        rows.append(cells)
    return table(columns, rows)


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else format_count(number)


def _in_full(entry: CatalogEntry) -> list[RenderableType]:
    blocks = [heading(entry.name)]
    if entry.aliases:
        blocks.append(paragraph(say("also: {names}", names=", ".join(entry.aliases))))
    if entry.overridden_by:
        blocks.append(paragraph(say("replaced by {file}", file=entry.overridden_by)))
    rows = [
        (name, fact_text(fact), fact.source or UNKNOWN, fact.as_of or UNKNOWN)
        for name, fact in entry.fields.items()
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
        Column(name=say("Source")),
        Column(name=say("Of"), keep=True),
    )
    return [*blocks, table(heads, rows)]
