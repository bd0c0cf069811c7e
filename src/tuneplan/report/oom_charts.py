"""Pictures of a failure as Vega-Lite specifications: the card at that moment, what fixes save."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuneplan.contract.diagnosed import OomAnswer
from tuneplan.language import say
from tuneplan.report.plan_charts import SCHEMA, Interval, interval_bars
from tuneplan.report.theme import ALARM, INK, SERIES
from tuneplan.units import GIB

_NARROW: Final = 400  # below so many units of width a legend stands in two columns


def card_parts(answer: OomAnswer) -> Mapping[str, int]:
    """What the card held when memory ran out, by name; empty where the log does not say."""
    allocated, capacity = answer.allocated_bytes, answer.capacity_bytes
    if not allocated or not capacity:
        return {}
    kept = max(0, (answer.reserved_bytes or allocated) - allocated)
    others = answer.other_processes_bytes or 0
    free = answer.free_bytes
    if free is None:
        free = max(0, capacity - allocated - kept - others)
    rest = max(0, capacity - allocated - kept - others - free)
    parts = {
        say("allocated by PyTorch"): allocated,
        say("kept by its allocator"): kept,
        say("other processes"): others,
        say("the rest: CUDA context, driver"): rest,
        say("free"): free,
    }
    return {name: size for name, size in parts.items() if size}


def card_at_failure(answer: OomAnswer, *, width: int) -> dict[str, Any]:
    """The card at that moment, and under it what was asked for."""
    parts = card_parts(answer)
    on_card, asked = say("on the card"), say("asked for")
    values = [
        {"bar": on_card, "part": name, "place": place, "gib": size / GIB}
        for place, (name, size) in enumerate(parts.items())
    ]
    colors = dict(
        zip(
            (
                say("allocated by PyTorch"),
                say("kept by its allocator"),
                say("other processes"),
                say("the rest: CUDA context, driver"),
                say("free"),
            ),
            (SERIES[0], SERIES[3], SERIES[2], SERIES[5], SERIES[6]),
            strict=True,
        )
    )
    shown = {name: colors[name] for name in parts}
    if answer.requested_bytes:
        values.append(
            {"bar": asked, "part": asked, "place": 0, "gib": answer.requested_bytes / GIB}
        )
        shown[asked] = ALARM
    bars = [on_card, *([asked] if answer.requested_bytes else [])]
    y = {"field": "bar", "type": "nominal", "sort": bars, "title": None}
    capacity = (answer.capacity_bytes or 0) / GIB
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": 34},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar"},
                "encoding": {
                    "y": y,
                    "x": {
                        "field": "gib",
                        "type": "quantitative",
                        "stack": "zero",
                        "title": say("GiB; the mark is the card's capacity"),
                    },
                    "order": {"field": "place", "type": "quantitative"},
                    "color": {
                        "field": "part",
                        "type": "nominal",
                        "scale": {"domain": list(shown), "range": list(shown.values())},
                        "legend": {
                            "title": None,
                            "orient": "bottom",
                            "columns": 3 if width > _NARROW else 1,
                            "columnPadding": 24,
                        },
                    },
                },
            },
            {
                "data": {"values": [{"bar": on_card, "gib": capacity}]},
                "mark": {"type": "tick", "color": INK, "thickness": 3, "size": 32},
                "encoding": {"y": y, "x": {"field": "gib", "type": "quantitative"}},
            },
        ],
    }


def savings(answer: OomAnswer) -> list[Interval]:
    """What each fix that helps saves, in GiB, in the order in which to try them."""
    return [
        Interval(
            name=fix.change,
            low=fix.saves_bytes.low / GIB,
            likely=fix.saves_bytes.likely / GIB,
            high=fix.saves_bytes.high / GIB,
        )
        for fix in answer.fixes
        if fix.cannot_help_because is None
        and fix.saves_bytes is not None
        and fix.id != "larger_card"
        and fix.saves_bytes.likely > 0
    ]


def savings_bars(answer: OomAnswer, *, width: int) -> dict[str, Any]:
    """A bar from low to high for each fix."""
    return interval_bars(savings(answer), title=say("GiB saved on each card"), width=width)
