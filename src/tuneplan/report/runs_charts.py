"""Pictures of a live run as Vega-Lite specifications."""

from __future__ import annotations

from typing import Any

from tuneplan.language import say
from tuneplan.report.plan_charts import SCHEMA
from tuneplan.report.theme import GRID, SERIES


def progress_bar(step: int, total: int, *, width: int) -> dict[str, Any]:
    """How far a run is."""
    x = {
        "type": "quantitative",
        "title": say("optimizer steps"),
        "scale": {"domain": [0, total], "nice": False},
    }
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": 22,
        "layer": [
            {
                "data": {"values": [{"steps": total}]},
                "mark": {"type": "bar", "color": GRID, "cornerRadius": 3},
                "encoding": {"x": {"field": "steps", **x}},
            },
            {
                "data": {"values": [{"steps": min(step, total)}]},
                "mark": {"type": "bar", "color": SERIES[0], "cornerRadius": 3},
                "encoding": {"x": {"field": "steps", **x}},
            },
        ],
    }
