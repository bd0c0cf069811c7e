"""Pictures of a budget as Vega-Lite specifications; colours come from ``theme.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuneplan.contract.budgeted import BreakEven, BudgetAnswer, BudgetDriver
from tuneplan.language import say
from tuneplan.report.labels import driver_label, phase_of_project_label
from tuneplan.report.plan_charts import SCHEMA
from tuneplan.report.theme import INK, MUTED, SERIES

_NARROW: Final = 400  # below so many units of width names have less room


def tornado(answer: BudgetAnswer, *, width: int) -> dict[str, Any]:
    """A bar for each open figure, from the total at its P10 to that at its P90."""
    rows = [
        {"driver": driver_label(driver.name), "from": ends[0], "to": ends[1]}
        for driver in answer.drivers
        if (ends := driver_ends(driver))
    ]
    middle = float(answer.money.p50.amount) if answer.money else answer.rented_hours.p50
    unit = answer.currency if answer.money else say("machine-hours")
    y = {
        "field": "driver",
        "type": "nominal",
        "sort": [row["driver"] for row in rows],
        "title": None,
        "axis": {"labelLimit": 200 if width > _NARROW else 110},
    }
    x = {"type": "quantitative", "title": unit, "scale": {"zero": False}}
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": {"step": 26},
        "layer": [
            {
                "data": {"values": rows},
                "mark": {"type": "bar", "cornerRadius": 2, "color": SERIES[0]},
                "encoding": {"y": y, "x": {"field": "from", **x}, "x2": {"field": "to"}},
            },
            {
                "data": {"values": [{"middle": middle}]},
                "mark": {"type": "rule", "color": MUTED, "strokeDash": [4, 4]},
                "encoding": {"x": {"field": "middle", **x}},
            },
        ],
    }


def distribution(answer: BudgetAnswer, *, width: int) -> dict[str, Any]:
    """With which chance the project costs at most so much, through its quantiles."""
    points = quantile_points(answer)
    values = [{"chance": chance, "total": total, "name": name} for name, chance, total in points]
    unit = answer.currency if answer.money else say("machine-hours")
    x = {"field": "total", "type": "quantitative", "title": unit, "scale": {"zero": False}}
    y = {
        "field": "chance",
        "type": "quantitative",
        "title": say("chance to stay below"),
        "axis": {"format": ".0%", "values": [chance for _, chance, _ in points]},
        "scale": {"domain": [0, 1]},
    }
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": 180,
        "layer": [
            {
                "data": {"values": values},
                "mark": {
                    "type": "line",
                    "interpolate": "monotone",
                    "color": SERIES[0],
                    "point": {"filled": True, "size": 70, "color": SERIES[0]},
                },
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": values},
                "mark": {"type": "text", "align": "left", "dx": 9, "dy": 9, "color": INK},
                "encoding": {"x": x, "y": y, "text": {"field": "name", "type": "nominal"}},
            },
        ],
    }


def quantile_points(answer: BudgetAnswer) -> list[tuple[str, float, float]]:
    """Name, chance and total of each quantile: money where it is known, else hours."""
    money, hours = answer.money, answer.rented_hours
    if money is not None:
        totals = [float(one.amount) for one in (money.p10, money.p50, money.p80, money.p95)]
    else:
        totals = [hours.p10, hours.p50, hours.p80, hours.p95]
    chances = (("P10", 0.1), ("P50", 0.5), ("P80", 0.8), ("P95", 0.95))
    return [(name, chance, total) for (name, chance), total in zip(chances, totals, strict=True)]


def driver_ends(driver: BudgetDriver) -> tuple[float, float] | None:
    """The two totals, in money where it is known."""
    if driver.money_at_low is not None and driver.money_at_high is not None:
        return float(driver.money_at_low.amount), float(driver.money_at_high.amount)
    if driver.hours_at_low is not None and driver.hours_at_high is not None:
        return driver.hours_at_low, driver.hours_at_high
    return None


def weeks(answer: BudgetAnswer, *, width: int) -> dict[str, Any]:
    """Held and working hours of every week, coloured by phase."""
    rows: list[Mapping[str, Any]] = [
        {
            "week": week.week,
            "phase": phase_of_project_label(part.phase),
            "works": part.busy_hours,
            "held": part.rented_hours,
        }
        for week in answer.calendar
        for part in week.parts
    ]
    names = list(dict.fromkeys(row["phase"] for row in rows))
    color = {
        "field": "phase",
        "type": "nominal",
        "scale": {"domain": names, "range": [SERIES[place] for place in range(len(names))]},
        "legend": {"title": None, "orient": "bottom", "columns": 3 if width > _NARROW else 1},
    }
    x = {"field": "week", "type": "ordinal", "title": say("week"), "axis": {"labelAngle": 0}}
    hours = {"type": "quantitative", "title": say("machine-hours")}
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": 180,
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "bar", "opacity": 0.35},
                "encoding": {"x": x, "y": {"field": "held", **hours}, "color": color},
            },
            {
                "mark": {"type": "bar"},
                "encoding": {"x": x, "y": {"field": "works", **hours}, "color": color},
            },
        ],
    }


def break_even_lines(found: BreakEven, *, width: int) -> dict[str, Any]:
    """What both offers cost over hours of use."""
    names = [f"{offer.provider}: {offer.name}" for offer in (found.first, found.second)]
    rows: Sequence[Mapping[str, Any]] = [
        {"hours": point.hours, "offer": name, "money": float(money.amount)}
        for point in found.points
        for name, money in zip(names, (point.first, point.second), strict=True)
    ]
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": 220,
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {"field": "hours", "type": "quantitative", "title": say("hours of use")},
            "y": {
                "field": "money",
                "type": "quantitative",
                "title": found.points[0].first.currency if found.points else None,
            },
            "color": {
                "field": "offer",
                "type": "nominal",
                "scale": {"domain": names, "range": [SERIES[0], SERIES[2]]},
                "legend": {"title": None, "orient": "bottom", "columns": 1},
            },
        },
    }
