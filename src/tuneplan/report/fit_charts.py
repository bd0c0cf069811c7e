"""Pictures of one configuration as Vega-Lite specifications: against cards, by phase, in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tuneplan.contract.answers import EstimateBody, Fit, FitOn
from tuneplan.contract.parts import Moment, Range
from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.labels import phase_label
from tuneplan.report.plan_charts import SCHEMA, group_names, memory_bar, memory_groups
from tuneplan.report.theme import ALARM, FITS, GRID, INK, MUTED, SERIES, TIGHT
from tuneplan.units import GIB, format_gib

_NARROW: Final = 400
_VERDICTS: Final = {"fits": FITS, "tight": TIGHT, "does_not_fit": ALARM}
_ROW: Final = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """A card that the need is held against."""

    name: str
    capacity_bytes: int
    verdict: str


def card_rows(answer: EstimateBody, shown: Sequence[FitOn] = ()) -> list[CardRow]:
    """The stated card, or those of ``shown``, smallest first."""
    fit = answer.fit
    if isinstance(fit, Fit) and answer.hardware is not None:
        return [
            CardRow(
                name=answer.hardware.accelerator,
                capacity_bytes=fit.capacity_bytes,
                verdict=fit.verdict,
            )
        ]
    rows = [
        CardRow(name=one.accelerator, capacity_bytes=one.capacity_bytes, verdict=one.verdict)
        for one in shown
    ]
    return sorted(rows, key=lambda row: (row.capacity_bytes, row.name))


def memory_against_cards(
    answer: EstimateBody, cards: Sequence[CardRow], *, width: int
) -> dict[str, Any]:
    """The need by term, its range as a band, and what each card has below it."""
    need, names = say("needed"), group_names()
    bar, span = memory_bar(need, answer), device_range(answer)
    order = [need, *(row.name for row in cards)]
    stack = [
        {"row": need, "part": names[group], "place": place, "gib": bar.sizes[group] / GIB}
        for place, (group, _) in enumerate(memory_groups())
        if group in bar.sizes
    ]
    used = [(names[group], color) for group, color in memory_groups() if group in bar.sizes]
    limit = 160 if width > _NARROW else 105
    y = {
        "field": "row",
        "type": "nominal",
        "sort": order,
        "title": None,
        "axis": {"labelLimit": limit, "ticks": False, "domain": False},
    }
    most = max([span.high, *(row.capacity_bytes for row in cards)]) / GIB
    room = 1.12 if width > _NARROW else 1.3  # for the sizes behind the bars
    scale = {"zero": True, "domainMax": most * room, "nice": False}
    x = {"type": "quantitative", "title": say("GiB on each card"), "scale": scale}
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": _ROW},
        "layer": [
            _band(span, x),
            _capacities(cards, y, x),
            {
                "data": {"values": stack},
                "mark": {"type": "bar", "size": 18},
                "encoding": {
                    "y": y,
                    "x": {"field": "gib", "stack": "zero", **x},
                    "order": {"field": "place", "type": "quantitative"},
                    "color": {
                        "field": "part",
                        "type": "nominal",
                        "scale": {
                            "domain": [name for name, _ in used],
                            "range": [color for _, color in used],
                        },
                        "legend": {
                            "title": None,
                            "orient": "bottom",
                            "columns": 6 if width > _NARROW else 2,
                            "columnPadding": 16,
                        },
                    },
                },
            },
            _whisker(span, y, x, need),
            *_capacity_texts(cards, y, x),
        ],
    }


def device_range(answer: EstimateBody) -> Range:
    """What a card holds in all: low, likely, high, in bytes."""
    return answer.memory.peak_device_bytes or answer.memory.peak_bytes


def _band(span: Range, x: dict[str, Any]) -> dict[str, Any]:
    """From the low to the high need, over all rows."""
    return {
        "data": {"values": [{"low": span.low / GIB, "high": span.high / GIB}]},
        "mark": {"type": "rect", "color": SERIES[0], "opacity": 0.12},
        "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}},
    }


def _whisker(span: Range, y: dict[str, Any], x: dict[str, Any], row: str) -> dict[str, Any]:
    values = [{"row": row, "low": span.low / GIB, "high": span.high / GIB}]
    return {
        "data": {"values": values},
        "mark": {"type": "rule", "color": INK, "strokeWidth": 2},
        "encoding": {"y": y, "x": {"field": "low", **x}, "x2": {"field": "high"}},
    }


def _capacities(cards: Sequence[CardRow], y: dict[str, Any], x: dict[str, Any]) -> dict[str, Any]:
    values = [{"row": row.name, "capacity": row.capacity_bytes / GIB} for row in cards]
    return {
        "data": {"values": values},
        "mark": {"type": "bar", "size": 14, "color": GRID, "cornerRadiusEnd": 3},
        "encoding": {"y": y, "x": {"field": "capacity", **x}},
    }


def _capacity_texts(
    cards: Sequence[CardRow], y: dict[str, Any], x: dict[str, Any]
) -> list[dict[str, Any]]:
    """A mark where each card ends, in the colour of its verdict, with its size behind it."""
    layers = []
    for verdict, color in _VERDICTS.items():
        values = [
            {
                "row": row.name,
                "capacity": row.capacity_bytes / GIB,
                "size": format_gib(row.capacity_bytes),
            }
            for row in cards
            if row.verdict == verdict
        ]
        if not values:
            continue
        place = {"y": y, "x": {"field": "capacity", **x}}
        layers += [
            {
                "data": {"values": values},
                "mark": {"type": "tick", "color": color, "thickness": 4, "size": 20},
                "encoding": place,
            },
            {
                "data": {"values": values},
                "mark": {"type": "text", "align": "left", "dx": 7, "color": INK, "fontSize": 11},
                "encoding": {**place, "text": {"field": "size"}},
            },
        ]
    return layers


def memory_by_phase(answer: EstimateBody, *, width: int) -> dict[str, Any]:
    """Allocated bytes at the worst moment of each phase; the one that decides stands out."""
    memory = answer.memory
    values = [
        {
            "phase": phase_label(one.phase),
            "gib": one.size_bytes / GIB,
            "size": format_gib(one.size_bytes),
            "peak": one.phase == memory.peak_phase,
        }
        for one in memory.by_phase
    ]
    y = {
        "field": "phase",
        "type": "nominal",
        "sort": [one["phase"] for one in values],
        "title": None,
        "axis": {"ticks": False, "domain": False, "labelLimit": 150},
    }
    x = {
        "field": "gib",
        "type": "quantitative",
        "title": say("GiB allocated"),
        "scale": {"zero": True},
    }
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": 24},
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "bar", "size": 14, "cornerRadiusEnd": 3},
                "encoding": {
                    "y": y,
                    "x": x,
                    "color": {
                        "field": "peak",
                        "type": "nominal",
                        "scale": {"domain": [True, False], "range": [SERIES[0], SERIES[6]]},
                        "legend": None,
                    },
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": INK, "fontSize": 11},
                "encoding": {"y": y, "x": x, "text": {"field": "size"}},
            },
        ],
    }


def memory_timeline(
    timeline: Sequence[Moment], capacity_bytes: int | None, *, width: int
) -> dict[str, Any]:
    """Allocated and reserved memory from loading to the end of the second step of a trace."""
    names = {"allocated": say("allocated"), "reserved": say("reserved")}
    values = [
        {"t": one.t, "phase": phase_label(one.phase), "gib": size / GIB, "what": names[what]}
        for one in timeline
        for what, size in (("allocated", one.allocated_bytes), ("reserved", one.reserved_bytes))
    ]
    x = {
        "field": "t",
        "type": "quantitative",
        "title": say("births and deaths of blocks, from loading to the second step"),
        "axis": {"grid": False},
    }
    y = {"field": "gib", "type": "quantitative", "title": say("GiB")}
    legend = {"title": None, "orient": "bottom"}
    scale = {"domain": list(names.values()), "range": [SERIES[0], MUTED]}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": values},
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
            "encoding": {
                "x": x,
                "y": y,
                "color": {"field": "what", "type": "nominal", "scale": scale, "legend": legend},
            },
        }
    ]
    if capacity_bytes is not None:
        layers.append(
            {
                "data": {"values": [{"gib": capacity_bytes / GIB}]},
                "mark": {"type": "rule", "color": ALARM, "strokeWidth": 2, "strokeDash": [6, 4]},
                "encoding": {"y": {**y}},
            }
        )
    return {"$schema": SCHEMA, "width": width, "height": 200, "layer": layers}
