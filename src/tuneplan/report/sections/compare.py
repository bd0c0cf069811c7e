"""A few plans side by side: figures with their ranges, pictures, and in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tuneplan.contract.answers import EstimateBody, Fit
from tuneplan.contract.compared import CompareAnswer, ComparedFigure, ComparedPlan
from tuneplan.contract.parts import MoneyRange
from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.amounts import (
    gib_cell,
    gib_range_cell,
    hours_range_cell,
    money_range_cell,
    range_cell,
    words,
)
from tuneplan.report.compare_answer import FIGURES, figure_bounds, figure_range
from tuneplan.report.plan_charts import (
    NARROW,
    WIDE,
    Interval,
    capacity_title,
    interval_bars,
    memory_bar,
)
from tuneplan.report.sections.memory import memory_chart
from tuneplan.report.tables import UNKNOWN, value_text
from tuneplan.report.verdict import percent_text, verdict_text
from tuneplan.report.view import (
    Block,
    Cell,
    Chart,
    Column,
    Paragraph,
    Points,
    Section,
    Table,
)
from tuneplan.units import GIB, HOUR_S

_UNKNOWN: Final = Cell(text=UNKNOWN)
_LABELS: Final = 120  # units of width that the names beside several panels take
_DRAWN: Final = ("memory.peak_bytes", "time.total_s", "cost.total")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLinks:
    """On the page: where one plan is opened, and the comparison without it (empty = stays)."""

    opened: str
    removed: str = ""


def compare_sections(
    answer: CompareAnswer, *, links: Sequence[PlanLinks] = ()
) -> tuple[Section, ...]:
    """The figures, the pictures, the differences; what is wrong with a plan in its place."""
    plans = answer.plans
    blocks: list[Block] = [_figures(answer, links)]
    for plan in plans:
        if plan.errors:
            title = say("Plan {name} cannot be", name=plan.name)
            blocks.append(Points(title=title, items=tuple(one.message for one in plan.errors)))
    good = [plan for plan in plans if plan.estimate is not None]
    pictures = list(_pictures(good))
    found = [Section(name="compare", title=say("Side by side"), blocks=tuple(blocks))]
    if pictures:
        found.append(Section(name="ranges", title=say("Ranges"), blocks=tuple(pictures)))
    if len(good) > 1:
        found.append(
            Section(name="differences", title=say("Differences"), blocks=(_differences(answer),))
        )
    return tuple(found)


def _figures(answer: CompareAnswer, links: Sequence[PlanLinks]) -> Table:
    best = {one.figure: one for one in answer.best}
    rows: list[tuple[Cell, ...]] = [
        (words(say("Verdict")), *(_verdict(plan) for plan in answer.plans))
    ]
    for figure in FIGURES:
        cells = [
            _UNKNOWN if plan.estimate is None else _cell(plan.estimate, figure)
            for plan in answer.plans
        ]
        if any(cell.amounts for cell in cells):
            named = words(figure_label(figure))
            rows.append((named, *_marked(cells, best.get(figure))))
    if links:
        rows += _link_rows(links)
    return Table(
        title=say("What each plan comes to"),
        columns=(
            Column(name=say("Figure")),
            *(Column(name=plan.name, amounts=3) for plan in answer.plans),
        ),
        rows=tuple(rows),
        note=say(
            "Marked is the best of a row; a star says that its range lies apart from the others."
        )
        if best
        else "",
    )


def figure_label(figure: str) -> str:
    """A figure of an estimate in words."""
    return {
        "memory.peak_bytes": say("Allocated by PyTorch"),
        "fit.headroom_bytes": say("Stays free"),
        "time.real_tokens_per_s_per_accelerator": say("Tokens per second and card"),
        "time.total_s": say("Duration"),
        "accelerator_hours": say("Card-hours"),
        "cost.total": say("Cost"),
        "energy_kwh": say("Energy"),
    }[figure]


def _cell(body: EstimateBody, figure: str) -> Cell:
    found = figure_range(body, figure)
    if isinstance(found, MoneyRange):
        return money_range_cell(found)
    if figure == "memory.peak_bytes":
        return gib_range_cell(found)
    if figure == "fit.headroom_bytes":
        return gib_cell(body.fit.headroom_bytes if isinstance(body.fit, Fit) else None)
    if figure == "time.total_s":
        return hours_range_cell(found)
    unit = {"accelerator_hours": "h", "energy_kwh": "kWh"}.get(figure, "")
    return range_cell(found, unit=unit)


def _marked(cells: Sequence[Cell], best: ComparedFigure | None) -> Iterator[Cell]:
    for place, cell in enumerate(cells):
        if best is None or place != best.best:
            yield cell
            continue
        text = f"{cell.text} *" if best.clearly else cell.text
        yield Cell(text=text, amounts=cell.amounts, tone="better")


def _verdict(plan: ComparedPlan) -> Cell:
    if plan.estimate is None:
        return Cell(text=say("cannot be"), tone="does_not_fit")
    fit = plan.estimate.fit
    if not isinstance(fit, Fit):
        return _UNKNOWN
    text = verdict_text(fit.verdict)
    if fit.verdict != "fits":
        text = f"{text} ({percent_text(fit.probability_fits)})"
    return Cell(text=text, tone=fit.verdict)


def _link_rows(links: Sequence[PlanLinks]) -> Iterator[tuple[Cell, ...]]:
    yield (
        words(""),
        *(Cell(text=say("open in Fit"), link=one.opened) for one in links),
    )
    if any(one.removed for one in links):
        yield (
            words(""),
            *(
                Cell(text=say("take out"), link=one.removed) if one.removed else words("")
                for one in links
            ),
        )


def _pictures(plans: Sequence[ComparedPlan]) -> Iterator[Chart]:
    bodies = [(plan.name, plan.estimate) for plan in plans if plan.estimate is not None]
    panels = [panel for figure in _DRAWN if (panel := _panel(bodies, figure)) is not None]
    if panels:
        yield Chart(
            name="compared",
            title=say("Low, likely, high"),
            caption="; ".join(
                say("{name}: {low:.3g} to {high:.3g}", name=row.name, low=row.low, high=row.high)
                for _, rows in panels
                for row in rows
            ),
            specification=_under_each_other(panels, WIDE - _LABELS),
            narrow=_under_each_other(panels, NARROW - _LABELS),
        )
    if bodies:
        yield memory_chart([memory_bar(_short(name), body) for name, body in bodies])


def _panel(
    bodies: Sequence[tuple[str, EstimateBody]], figure: str
) -> tuple[str, list[Interval]] | None:
    rows: list[Interval] = []
    currency = ""
    for name, body in bodies:
        bounds = figure_bounds(body, figure)
        if bounds is None:
            continue
        if rows and bounds.currency != currency:
            return None
        currency = bounds.currency
        scale = {"memory.peak_bytes": GIB, "time.total_s": HOUR_S}.get(figure, 1.0)
        low, likely, high = (one / scale for one in (bounds.low, bounds.likely, bounds.high))
        limit = None
        if figure == "memory.peak_bytes" and isinstance(body.fit, Fit):
            limit = body.fit.capacity_bytes / GIB
        rows.append(Interval(name=_short(name), low=low, likely=likely, high=high, limit=limit))
    if not rows:
        return None
    titles = {
        "memory.peak_bytes": "",  # by the width of the page
        "time.total_s": say("hours until it is done"),
        "cost.total": say("cost in {currency}", currency=currency),
    }
    return titles[figure], rows


def _short(name: str) -> str:
    """The letter and the cards: pictures have no room for more."""
    return name.partition(",")[0].partition("，")[0]  # as the language writes a comma


def _under_each_other(
    panels: Sequence[tuple[str, Sequence[Interval]]], width: int
) -> dict[str, object]:
    drawn = [
        interval_bars(rows, title=title or capacity_title(width), width=width)
        for title, rows in panels
    ]
    bare = [{key: value for key, value in one.items() if key != "$schema"} for one in drawn]
    return {"$schema": drawn[0]["$schema"], "vconcat": bare, "spacing": 18}


def _differences(answer: CompareAnswer) -> Block:
    if not answer.differences:
        return Paragraph(text=say("The plans are the same."), tone="quiet")
    return Table(
        title=say("Settings that are not the same"),
        columns=(
            Column(name=say("Key")),
            *(Column(name=plan.name) for plan in answer.plans),
        ),
        rows=tuple((words(one.key), *_values(one.values)) for one in answer.differences),
    )


def _values(values: Sequence[object]) -> Iterator[Cell]:
    """What differs from the first plan is marked."""
    for place, value in enumerate(values):
        tone = "differs" if place and value != values[0] else ""
        yield Cell(text=value_text(value), tone=tone)
