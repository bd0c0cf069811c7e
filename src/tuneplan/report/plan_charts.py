"""Pictures of plans and estimates as Vega-Lite specifications; colours come from ``theme.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuneplan.contract.answers import EstimateBody, Fit
from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.theme import ALARM, INK, MUTED, SERIES
from tuneplan.units import GIB, format_gib

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
WIDE: Final = 660  # of a chart on a page of a screen or of paper
NARROW: Final = 270  # and of a telephone
_NARROW: Final = 400  # below so many units of width, labels stand above bars
_BARE: Final = {"title": None}  # an axis whose title only a table of the figures shows
# What the terms of memory are put together as, so that few colours tell them apart.
_GROUPS: Final = {
    "frozen_weights": "weights",
    "quantized_weights": "weights",
    "quantization_constants": "weights",
    "trained_weights": "weights",
    "adapters": "weights",
    "reference_model": "weights",
    "autocast_weights": "weights",
    "gathered_units": "weights",
    "layer_unit": "weights",
    "gradients": "gradients",
    "gradient_buckets": "gradients",
    "embedding_gradient": "gradients",
    "optimizer_states": "optimizer",
    "master_weights": "optimizer",
    "step_temporary": "optimizer",
    "kept_activations": "activations",
    "in_flight_activations": "activations",
    "layer_working_set": "activations",
    "held_logits": "loss",
    "loss_working_set": "loss",
}
_ORDER: Final = ("weights", "gradients", "optimizer", "activations", "loss", "rest", "outside")


def memory_groups() -> list[tuple[str, str]]:
    """Each group of memory with its colour, in the order of the stack."""
    return [(group, SERIES[place]) for place, group in enumerate(_ORDER)]


def group_names() -> dict[str, str]:
    """What each group of memory is called, in the order of the stack."""
    return {
        "weights": say("weights"),
        "gradients": say("gradients"),
        "optimizer": say("optimizer"),
        "activations": say("activations"),
        "loss": say("head and loss"),
        "rest": say("other"),
        "outside": say("fragments and CUDA context"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """One card of one configuration; sizes in bytes by group."""

    name: str
    sizes: Mapping[str, float]
    capacity_bytes: float | None = None

    def sentence(self) -> str:
        """What the bar shows, in words."""
        need = format_gib(sum(self.sizes.values()))
        if self.capacity_bytes is None:
            return say("{name} {need}", name=self.name, need=need)
        return say(
            "{name}: {need} of {capacity}",
            name=self.name,
            need=need,
            capacity=format_gib(self.capacity_bytes),
        )


def memory_bar(name: str, answer: EstimateBody) -> MemoryBar:
    """The likely need of a card by group."""
    sizes = dict.fromkeys(_ORDER, 0.0)
    for term in answer.memory.terms:
        sizes[_GROUPS.get(term.kind, "rest")] += term.size_bytes
    fit = answer.fit
    capacity = None
    if isinstance(fit, Fit):
        capacity = float(fit.capacity_bytes)
        need = fit.capacity_bytes - fit.headroom_bytes
        sizes["outside"] = max(0.0, need - float(answer.memory.peak_bytes.likely))
    found = {group: size for group, size in sizes.items() if size > 0}
    return MemoryBar(name=name, sizes=found, capacity_bytes=capacity)


def memory_stack(bars: Sequence[MemoryBar], *, width: int) -> dict[str, Any]:
    """Stacked bars of what a card holds, and a mark at what it has."""
    names = group_names()
    used = [group for group in _ORDER if any(group in bar.sizes for bar in bars)]
    values = [
        {
            "card": bar.name,
            "part": names[group],
            "place": used.index(group),
            "gib": bar.sizes[group] / GIB,
        }
        for bar in bars
        for group in used
        if group in bar.sizes
    ]
    limits = [
        {"card": bar.name, "gib": bar.capacity_bytes / GIB}
        for bar in bars
        if bar.capacity_bytes is not None
    ]
    card = {
        "field": "card",
        "type": "nominal",
        "sort": [bar.name for bar in bars],
        "title": None,
        "axis": None if len(bars) == 1 else {"labelLimit": 180 if width > _NARROW else 120},
    }
    title = capacity_title(width) if limits else say("GiB on each card")
    colors = [SERIES[_ORDER.index(group)] for group in used]
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": 34 if len(bars) > 1 else 48},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar"},
                "encoding": {
                    "y": card,
                    "x": {
                        "field": "gib",
                        "type": "quantitative",
                        "stack": "zero",
                        "title": title,
                    },
                    "order": {"field": "place", "type": "quantitative"},
                    "color": {
                        "field": "part",
                        "type": "nominal",
                        "scale": {"domain": [names[group] for group in used], "range": colors},
                        "legend": {
                            "title": None,
                            "orient": "bottom",
                            "columns": 4 if width > _NARROW else 2,
                            "columnPadding": 28,
                        },
                    },
                },
            },
            {
                "data": {"values": limits},
                "mark": {"type": "tick", "color": ALARM, "thickness": 3, "size": 34},
                "encoding": {"y": card, "x": {"field": "gib", "type": "quantitative"}},
            },
        ],
    }


def capacity_title(width: int) -> str:
    """Of an axis of memory on which a card's capacity is marked."""
    if width <= _NARROW:
        return say("GiB; red: all of the card")
    return say("GiB on each card; the red mark is what it has")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure as low, likely and high; ``limit`` is what it must not pass."""

    name: str
    low: float
    likely: float
    high: float
    limit: float | None = None


def interval_bars(rows: Sequence[Interval], *, title: str, width: int) -> dict[str, Any]:
    """A bar from low to high for each row, a point at the likely figure."""
    values = [
        {"name": row.name, "low": row.low, "likely": row.likely, "high": row.high} for row in rows
    ]
    limits = [{"name": row.name, "limit": row.limit} for row in rows if row.limit is not None]
    name = {
        "field": "name",
        "type": "nominal",
        "sort": [row.name for row in rows],
        "title": say("Plan"),
        "axis": None
        if len(rows) == 1
        else {**_BARE, "labelLimit": 180 if width > _NARROW else 120},
    }
    axis = {"title": title, "tickCount": 10 if width > _NARROW else 5}
    scale = {"zero": True}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": values},
            "mark": {"type": "bar", "size": 12, "cornerRadius": 3, "color": SERIES[0]},
            "encoding": {
                "y": name,
                "x": _along("low", say("low"), axis, scale),
                "x2": {"field": "high", "title": say("high")},
            },
        },
        {
            "data": {"values": values},
            "mark": {"type": "tick", "color": INK, "thickness": 3, "size": 20},
            "encoding": {"y": name, "x": _along("likely", say("likely"), axis, scale)},
        },
    ]
    if limits:
        layers.append(
            {
                "data": {"values": limits},
                "mark": {"type": "tick", "color": ALARM, "thickness": 3, "size": 26},
                "encoding": {"y": name, "x": _along("limit", say("limit"), axis, scale)},
            }
        )
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": 30},
        "layer": layers,
    }


def _along(
    field: str, title: str, axis: Mapping[str, Any], scale: Mapping[str, Any]
) -> dict[str, Any]:
    """A figure on an axis that others share: ``title`` is its own, the axis has one for all."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": dict(axis),
        "scale": dict(scale),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to run the job, by hours and money; ranges as (low, likely, high).

    Attributes:
        address: On the page: where it is opened; empty elsewhere.
        remark: What is read when one points at it; empty for nothing.
    """

    name: str
    hours: tuple[float, float, float]
    money: tuple[float, float, float]
    address: str = ""
    remark: str = ""


def cheaper_and_faster(options: Sequence[Option]) -> list[Option]:
    """Those that no other beats in hours and money together, fastest first."""
    front: list[Option] = []
    for option in sorted(options, key=lambda one: (one.hours[1], one.money[1])):
        if not front or option.money[1] < front[-1].money[1]:
            front.append(option)
    return front


def cost_time_scatter(
    options: Sequence[Option], *, currency: str, width: int, others: Sequence[Option] = ()
) -> dict[str, Any]:
    """Hours against money, each with its range, and a line through those that nothing beats.

    ``others`` are small points without ranges: what else the search found that nothing beats.
    """
    shown = [*options, *others]
    front = [{"hours": one.hours[1], "money": one.money[1]} for one in cheaper_and_faster(shown)]
    wide = _spread(shown)
    along = {"title": say("hours until it is done")}
    up = {"title": say("cost in {currency}", currency=currency)}
    hours = _scale([one.hours for one in shown], logarithmic=wide)
    money = _scale([one.money for one in shown], logarithmic=wide)
    x = _along("hours", say("hours, likely"), along, hours)
    y = _along("money", say("cost, likely"), up, money)
    across = {
        "x": _along("h_low", say("hours, low"), along, hours),
        "x2": {"field": "h_high", "title": say("hours, high")},
        "y": y,
    }
    upward = {
        "y": _along("m_low", say("cost, low"), up, money),
        "y2": {"field": "m_high", "title": say("cost, high")},
        "x": x,
    }
    point = {"x": x, "y": y}
    dots = {
        "data": {"values": [_point(one) for one in others]},
        "mark": {"type": "point", "filled": True, "size": 22, "color": MUTED, "opacity": 0.8},
        "encoding": {**point, **_pointed_at(others)},
    }
    rule = {"type": "rule", "color": SERIES[0], "opacity": 0.45}
    named = {
        "type": "text",
        "dx": 8,
        "dy": -8,
        "align": "left",
        "color": INK,
        "fontWeight": "bold",
    }
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": 260,
        "layer": [
            {
                "data": {"values": front},
                "mark": {
                    "type": "line",
                    "interpolate": "step-after",
                    "strokeDash": [5, 4],
                    "color": MUTED,
                },
                "encoding": point,
            },
            *([dots] if others else []),
            {
                "data": {"values": [_point(one) for one in options]},
                "layer": [
                    {"mark": rule, "encoding": across},
                    {"mark": rule, "encoding": upward},
                    {
                        "mark": {"type": "point", "filled": True, "size": 90, "color": SERIES[0]},
                        "encoding": {**point, **_pointed_at(options)},
                    },
                    {
                        "mark": named,
                        "encoding": {**point, "text": {"field": "name", "title": say("Plan")}},
                    },
                ],
            },
        ],
    }


def _point(one: Option) -> dict[str, Any]:
    return {
        "name": one.name,
        **dict(zip(("h_low", "hours", "h_high"), one.hours, strict=True)),
        **dict(zip(("m_low", "money", "m_high"), one.money, strict=True)),
        **({"address": one.address} if one.address else {}),
        **({"remark": one.remark} if one.remark else {}),
    }


def _pointed_at(options: Sequence[Option]) -> dict[str, Any]:
    """What happens when one points at a point or clicks it, where there is something to tell."""
    found: dict[str, Any] = {}
    if any(one.remark for one in options):
        found["tooltip"] = {"field": "remark"}
    if any(one.address for one in options):
        found["href"] = {"field": "address"}
    return found


def _scale(figures: Sequence[tuple[float, float, float]], *, logarithmic: bool) -> dict[str, Any]:
    if not logarithmic:
        return {"zero": True}
    low, high = min(one[0] for one in figures), max(one[2] for one in figures)
    return {"type": "log", "domain": [low / 1.15, high * 1.15], "nice": False}


def _spread(options: Sequence[Option]) -> bool:
    """Whether figures lie so far apart that a linear axis would put most into a corner."""
    for figures in ([one.hours for one in options], [one.money for one in options]):
        lows, highs = [f[0] for f in figures], [f[2] for f in figures]
        if min(lows) <= 0:
            return False
        if max(highs) / min(lows) > 12:
            return True
    return False
