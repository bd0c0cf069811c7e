"""The picture of levers: what each saves and costs, to the left and to the right of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.plan_charts import SCHEMA
from tuneplan.report.theme import FITS, GRID, MUTED, TIGHT

_NARROW: Final = 400
_LABEL: Final = 210  # units that the names take beside the first panel of a wide page


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A lever: what it changes, negative where it saves; None where that is not known.

    Attributes:
        address: On the page: the job with the change; empty elsewhere.
    """

    name: str
    gib: float | None = None
    hours: float | None = None
    money: float | None = None
    address: str = ""


def lever_bars(bars: Sequence[Bar], *, currency: str, width: int) -> dict[str, Any]:
    """Panels for memory, time and money beside each other, on a narrow page under each other."""
    panels = [
        (field, title)
        for field, title in (
            ("gib", say("GiB on each card")),
            ("hours", say("hours of the run")),
            ("money", say("cost in {currency}", currency=currency)),
        )
        if any(getattr(bar, field) is not None for bar in bars)
    ]
    wide = width > _NARROW
    each = (width - _LABEL) // max(1, len(panels)) - 18 if wide else width - 130
    drawn = [
        _panel(field, title, width=each, labels=not wide or not place)
        for place, (field, title) in enumerate(panels)
    ]
    if any(bar.address for bar in bars):
        for panel in drawn:
            panel["layer"][0]["encoding"]["href"] = {"field": "address"}
    return {
        "$schema": SCHEMA,
        "data": {"values": [_row(bar) for bar in bars]},
        "hconcat" if wide else "vconcat": drawn,
        "spacing": 14,
    }


def _row(bar: Bar) -> dict[str, Any]:
    row = {"name": bar.name, "gib": bar.gib, "hours": bar.hours, "money": bar.money}
    return {**row, "address": bar.address} if bar.address else row


def _panel(field: str, title: str, *, width: int, labels: bool) -> dict[str, Any]:
    axis = {"title": None, "labelLimit": _LABEL - 30 if labels and width > 100 else 120}
    return {
        "width": width,
        "height": {"step": 22},
        "layer": [
            {
                "mark": {"type": "bar", "size": 11, "cornerRadius": 2},
                "encoding": {
                    "y": {
                        "field": "name",
                        "type": "nominal",
                        "sort": None,  # as the rows come, so that a new order is no new chart
                        "title": say("Change"),
                        "axis": {**axis, "ticks": False} if labels else None,
                    },
                    "x": {
                        "field": field,
                        "type": "quantitative",
                        "title": title,
                        "axis": {"tickCount": 4, "gridColor": GRID},
                    },
                    "color": {
                        "condition": {"test": f"datum.{field} < 0", "value": FITS},
                        "value": TIGHT,
                    },
                },
            },
            {
                "mark": {"type": "rule", "color": MUTED, "aria": False},
                "encoding": {"x": {"datum": 0}},
            },
        ],
    }
