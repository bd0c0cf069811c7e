"""Pictures of a data profile as Vega-Lite specifications; colours come from ``theme.py``."""

from __future__ import annotations

import math
from typing import Any, Final

from tuneplan.contract.measured import AtMaxLength, DataProfileAnswer
from tuneplan.language import say
from tuneplan.report.plan_charts import SCHEMA
from tuneplan.report.profile_lengths import WAYS
from tuneplan.report.theme import ALARM, SERIES
from tuneplan.units import format_count

_NARROW: Final = 400  # below so many units of width a legend stands in one column


def length_histogram(
    answer: DataProfileAnswer, *, width: int, max_length: int | None = None
) -> dict[str, Any]:
    """How many sequences have each length, and a line at ``max_length``, else the recommended."""
    bins = answer.length.histogram if answer.length else []
    names = [_span(one.low, one.high) for one in bins]
    wanted = max_length or (answer.recommended.max_length if answer.recommended else None)
    values = [
        {
            "tokens": name,
            "low": one.low,
            "high": one.high,
            "sequences": one.count,
            "cut": wanted is not None and one.low >= wanted,
        }
        for name, one in zip(names, bins, strict=True)
    ]
    axis: dict[str, Any] = {"field": "tokens", "type": "ordinal", "sort": names}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": values},
            "mark": {"type": "bar", "cornerRadius": 2},
            "encoding": {
                "x": {**axis, "title": say("tokens of a sequence"), "axis": {"labelAngle": -40}},
                "y": {
                    "field": "sequences",
                    "type": "quantitative",
                    "title": say("sequences"),
                },
                "color": {
                    "condition": {"test": "datum.cut", "value": SERIES[2]},
                    "value": SERIES[0],
                },
            },
        }
    ]
    place = None if wanted is None else _place(answer, wanted)
    if place is not None:
        number, share = place
        within = {"expr": "(datum.share - 0.5) * bandwidth('x')"}
        line = {"tokens": names[number], "share": share, "text": f"max_length {wanted:,}"}
        near_the_end = number + share > 0.7 * len(names)
        layers += [
            {
                "data": {"values": [line]},
                "mark": {"type": "rule", "color": ALARM, "strokeWidth": 3, "xOffset": within},
                "encoding": {"x": axis},
            },
            {
                "data": {"values": [line]},
                "mark": {
                    "type": "text",
                    "color": ALARM,
                    "align": "right" if near_the_end else "left",
                    "dx": -6 if near_the_end else 6,
                    "y": 8,
                    "xOffset": within,
                    "fontWeight": "bold",
                },
                "encoding": {"x": axis, "text": {"field": "text"}},
            },
        ]
    return {
        "$schema": SCHEMA,
        "usermeta": {"drags": "max_length"},  # on the page the line is dragged to another length
        "width": width,
        "height": 180,
        "layer": layers,
    }


def _place(answer: DataProfileAnswer, length: int) -> tuple[int, float] | None:
    """The bar that a length lies in, and how far along it; None where it lies outside of all."""
    bins = answer.length.histogram if answer.length else []
    for number, one in enumerate(bins):
        if one.low < length <= one.high:
            if one.low:
                return number, math.log(length / one.low) / math.log(one.high / one.low)
            return number, length / one.high
    return (len(bins) - 1, 1.0) if bins and length > bins[-1].high else None


def _span(low: float, high: float) -> str:
    return f"{format_count(low)} - {format_count(high - 1)}"


def length_tradeoff(answer: DataProfileAnswer, *, width: int) -> dict[str, Any]:
    """What each ``max_length`` cuts off, beside what padding and packing leave empty."""
    names = {
        "cut": say("tokens cut off"),
        "longest": say("padding, longest in a batch"),
        "grouped": say("padding, like lengths grouped"),
        "packed": say("empty in packed rows"),
    }
    values = [
        {"max_length": one.max_length, "what": names[what], "percent": 100 * share}
        for one in answer.at_max_length
        for what, share in _shares(one).items()
        if share is not None
    ]
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": 200,
        "data": {"values": values},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {
                "field": "max_length",
                "type": "ordinal",
                "title": "max_length",
                "axis": {"labelAngle": 0},
            },
            "y": {"field": "percent", "type": "quantitative", "title": "%"},
            "color": {
                "field": "what",
                "type": "nominal",
                "scale": {"domain": list(names.values()), "range": list(SERIES[: len(names)])},
                "legend": {
                    "title": None,
                    "orient": "bottom",
                    "columns": 2 if width > _NARROW else 1,
                    "columnPadding": 28,
                },
            },
        },
    }


def _shares(one: AtMaxLength) -> dict[str, float | None]:
    packed = one.packed_efficiency.get("best_fit_decreasing")
    return {
        "cut": one.truncated_tokens_fraction,
        "longest": one.padding_fraction.get("longest"),
        "grouped": one.padding_fraction.get("grouped"),
        "packed": None if packed is None else 1 - packed,
    }


def packing_bars(answer: DataProfileAnswer, *, max_length: int, width: int) -> dict[str, Any]:
    """How full the rows get that each framework packs, and the tokens that it loses.

    Raises:
        ValueError: The answer does not look at this ``max_length``.
    """
    found = next((one for one in answer.at_max_length if one.max_length == max_length), None)
    if found is None:
        msg = f"the answer has no max_length {max_length}"
        raise ValueError(msg)
    names = {"filled": say("filled"), "lost": say("tokens lost")}
    ways = [way for way, share in found.packed_efficiency.items() if share is not None]
    values = [
        {"way": WAYS.get(way, way), "what": names[what], "percent": 100 * (share or 0.0)}
        for way in ways
        for what, share in (
            ("filled", found.packed_efficiency[way]),
            ("lost", found.packed_lost_tokens_fraction.get(way, 0.0)),
        )
    ]
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": 12},
        "data": {"values": values},
        "mark": {"type": "bar", "cornerRadius": 2},
        "encoding": {
            "y": {
                "field": "way",
                "type": "nominal",
                "sort": [WAYS.get(way, way) for way in ways],
                "title": None,
                "axis": {"labelLimit": 180 if width > _NARROW else 120},
            },
            "yOffset": {"field": "what", "sort": list(names.values())},
            "x": {
                "field": "percent",
                "type": "quantitative",
                "title": "%",
                "scale": {"domain": [0, 100]},
            },
            "color": {
                "field": "what",
                "type": "nominal",
                "scale": {"domain": list(names.values()), "range": [SERIES[3], ALARM]},
                "legend": {"title": None, "orient": "bottom"},
            },
        },
    }
