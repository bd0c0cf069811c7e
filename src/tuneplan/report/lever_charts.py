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
        _panel(bars, field, title, width=each, named=not wide or not place)
        for place, (field, title) in enumerate(panels)
    ]
    return {"$schema": SCHEMA, "hconcat" if wide else "vconcat": drawn, "spacing": 14}


def _panel(
    bars: Sequence[Bar], field: str, title: str, *, width: int, named: bool
) -> dict[str, Any]:
    values = [
        {
            "name": bar.name,
            "change": getattr(bar, field),
            "saves": getattr(bar, field) < 0,
            **({"address": bar.address} if bar.address else {}),
        }
        for bar in bars
        if getattr(bar, field) is not None
    ]
    encoding: dict[str, Any] = {
        "y": {
            "field": "name",
            "type": "nominal",
            "sort": [bar.name for bar in bars],
            "title": None,
            "axis": {"labelLimit": _LABEL - 20 if width > 100 else 120, "ticks": False}
            if named
            else None,
        },
        "x": {
            "field": "change",
            "type": "quantitative",
            "title": title,
            "axis": {"tickCount": 4, "gridColor": GRID},
        },
        "color": {
            "field": "saves",
            "type": "nominal",
            "scale": {"domain": [True, False], "range": [FITS, TIGHT]},
            "legend": None,
        },
    }
    if any(bar.address for bar in bars):
        encoding["href"] = {"field": "address"}
    return {
        "width": width,
        "height": {"step": 22},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "size": 11, "cornerRadius": 2},
                "encoding": encoding,
            },
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "color": MUTED},
                "encoding": {"x": {"field": "zero", "type": "quantitative"}},
            },
        ],
    }
