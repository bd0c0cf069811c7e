"""Pictures of predictions beside measured runs, as Vega-Lite specifications."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tuneplan.language import say
from tuneplan.report.theme import INK, MUTED, SERIES
from tuneplan.runs.comparison import Comparison
from tuneplan.units import GIB

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
_SIZE: Final = 420
_MOST_SOURCES: Final = len(SERIES) - 1
_LEVELS: Final = tuple(place / 20 for place in range(1, 20))


def scatter(
    points: Sequence[tuple[str, Comparison]], *, title: str, size: int = _SIZE
) -> dict[str, Any]:
    """Predicted over measured, logarithmic, with the line of equality; a colour a source.

    Args:
        points: Sources and figures of one quantity; the smallest sources share a colour.
        title: What the figures are.
        size: Of each side, in pixels.
    """
    counts: dict[str, int] = {}
    for source, _ in points:
        counts[source] = counts.get(source, 0) + 1
    shown = sorted(counts, key=lambda name: (-counts[name], name))[:_MOST_SOURCES]
    other = say("others")
    unit = GIB if points[0][1].quantity.is_memory else 1.0
    values = [
        {
            "measured": item.measured / unit,
            "predicted": item.likely / unit,
            "low": item.low / unit,
            "high": item.high / unit,
            "source": source if source in shown else other,
        }
        for source, item in points
    ]
    ends = [value[key] for value in values for key in ("measured", "predicted")]
    numbers = [float(end) for end in ends if isinstance(end, int | float)]
    scale = {"type": "log", "domain": [min(numbers) * 0.9, max(numbers) * 1.1], "nice": False}
    line = [{"at": scale_end} for scale_end in (min(numbers) * 0.9, max(numbers) * 1.1)]
    named = [*shown, *([other] if len(counts) > len(shown) else [])]
    name = say("GiB") if unit == GIB else say("tokens/s")
    axis = {"format": "~s", "tickCount": 6}
    x = {"field": "measured", "type": "quantitative", "scale": scale, "axis": axis,
         "title": say("measured, {unit}", unit=name)}  # fmt: skip
    y_title = say("predicted, {unit}", unit=name)
    return {
        "$schema": SCHEMA,
        "width": size,
        "height": size,
        "title": title,
        "layer": [
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": MUTED, "strokeDash": [4, 3]},
                "encoding": {
                    "x": {"field": "at", "type": "quantitative", "scale": scale},
                    "y": {"field": "at", "type": "quantitative", "scale": scale},
                },
            },
            {
                "data": {"values": values},
                "mark": {"type": "rule", "color": MUTED, "opacity": 0.3},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", "type": "quantitative", "scale": scale, "axis": axis,
                          "title": y_title},
                    "y2": {"field": "high"},
                },
            },
            {
                "data": {"values": values},
                "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.75},
                "encoding": {
                    "x": x,
                    "y": {"field": "predicted", "type": "quantitative", "scale": scale,
                          "axis": axis, "title": y_title},
                    "color": {
                        "field": "source", "type": "nominal", "title": say("source"),
                        "sort": named,
                        "scale": {"domain": named, "range": list(SERIES)},
                    },
                },
            },
        ],
    }  # fmt: skip


def reliability(
    series: Mapping[str, Iterable[float]], *, title: str, size: int = _SIZE
) -> dict[str, Any]:
    """How often what was given a probability came true; right ranges lie on the diagonal.

    Args:
        series: By name: the predicted probability of the measured value or less, of each run.
        title: Of the picture.
        size: Of each side, in pixels.
    """
    values = []
    for name, probabilities in series.items():
        known = sorted(probabilities)
        if not known:
            continue
        for level in (0.0, *_LEVELS, 1.0):
            share = sum(one <= level for one in known) / len(known)
            values.append({"level": level, "share": share, "runs": name})
    percent = {"format": ".0%", "tickCount": 5}
    legend = {"orient": "bottom", "columns": 1, "labelLimit": 0}
    line = [{"level": 0.0, "share": 0.0}, {"level": 1.0, "share": 1.0}]
    band = [
        {"level": level, "low": max(level - 0.1, 0.0), "high": min(level + 0.1, 1.0)}
        for level in (0.0, *_LEVELS, 1.0)
    ]
    x = {"field": "level", "type": "quantitative", "axis": percent,
         "title": say("predicted probability of this much or less")}  # fmt: skip
    y = {"field": "share", "type": "quantitative", "axis": percent,
         "title": say("share of runs that had this much or less")}  # fmt: skip
    return {
        "$schema": SCHEMA,
        "width": size,
        "height": size,
        "title": title,
        "layer": [
            {
                "data": {"values": band},
                "mark": {"type": "area", "color": MUTED, "opacity": 0.15},
                "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"},
                             "y2": {"field": "high"}},
            },
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": INK, "strokeDash": [4, 3], "strokeWidth": 1},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": values},
                "mark": {"type": "line", "point": {"size": 26}, "interpolate": "linear"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {"field": "runs", "type": "nominal", "title": None,
                              "scale": {"range": list(SERIES)}, "legend": legend},
                },
            },
        ],
    }  # fmt: skip


def probability(item: Comparison) -> float | None:
    """The predicted probability of what was measured, or less; None where it is not known."""
    known = item.probability
    return known if known is not None and math.isfinite(known) else None
