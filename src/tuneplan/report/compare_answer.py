"""Jobs side by side as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tuneplan.contract.answers import ErrorEntry, EstimateBody, Fit, header
from tuneplan.contract.compared import CompareAnswer, ComparedFigure, ComparedKey, ComparedPlan
from tuneplan.contract.parts import MoneyRange, Range
from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.planner.compare import Compared
from tuneplan.report.errors import errors_document
from tuneplan.report.estimate_answer import estimate_body
from tuneplan.report.labels import method_label
from tuneplan.report.sections.alternatives import short_cards

_LETTERS: Final = "ABCDEFGH"
MOST_PLANS: Final = 4
# Figures that are compared; True where more is better.
FIGURES: Final = {
    "memory.peak_bytes": False,
    "fit.headroom_bytes": True,
    "time.real_tokens_per_s_per_accelerator": True,
    "time.total_s": False,
    "accelerator_hours": False,
    "cost.total": False,
    "energy_kwh": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A figure as plain numbers; ``currency`` of money."""

    low: float
    likely: float
    high: float
    currency: str = ""


def compare_answer(plans: Sequence[Compared], *, as_of: str) -> CompareAnswer:
    """The answer of ``compare``; ``as_of`` is the day it is given, ``2026-11-30``."""
    models = [_plan(place, one) for place, one in enumerate(plans)]
    return CompareAnswer(
        **header("compare", as_of=as_of),
        plans=models,
        differences=list(_differences(models)),
        best=list(_best(models)),
        assumptions=models[0].estimate.assumptions if models[0].estimate else [],
    )


def _plan(place: int, one: Compared) -> ComparedPlan:
    if one.estimate is None:
        errors = errors_document(one.mistakes)["errors"]
        return ComparedPlan(
            name=_LETTERS[place], errors=[ErrorEntry.model_validate(each) for each in errors]
        )
    body = estimate_body(one.estimate)
    return ComparedPlan(name=_name(_LETTERS[place], body), estimate=body)


def _name(letter: str, body: EstimateBody) -> str:
    method = method_label(str(body.job.get("method") or ""))
    if body.hardware is None:
        return say("{letter}: {method}", letter=letter, method=method)
    return say(
        "{letter}: {cards}, {method}",
        letter=letter,
        cards=short_cards(body.hardware),
        method=method,
    )


def _differences(plans: Sequence[ComparedPlan]) -> Iterator[ComparedKey]:
    """Keys of the job, in the order of the job file; a plan with mistakes has no values."""
    flat = [dict(_flat(one.estimate.job)) if one.estimate else {} for one in plans]
    known = [values for values, one in zip(flat, plans, strict=True) if one.estimate]
    for key in dict.fromkeys(key for values in known for key in values):
        values = [values.get(key) for values in known]
        if any(value != values[0] for value in values):
            yield ComparedKey(key=key, values=[one.get(key) for one in flat])


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _best(plans: Sequence[ComparedPlan]) -> Iterator[ComparedFigure]:
    for figure, more in FIGURES.items():
        found = {
            place: bounds
            for place, one in enumerate(plans)
            if one.estimate is not None
            and (bounds := figure_bounds(one.estimate, figure)) is not None
        }
        if len(found) < 2 or len({bounds.currency for bounds in found.values()}) > 1:
            continue
        order = sorted(found, key=lambda place: found[place].likely, reverse=more)
        first, others = found[order[0]], [found[place] for place in order[1:]]
        if others[0].likely == first.likely:
            continue
        clearly = all(first.low > one.high if more else first.high < one.low for one in others)
        yield ComparedFigure(figure=figure, best=order[0], clearly=clearly)


def figure_bounds(body: EstimateBody, figure: str) -> Bounds | None:
    """Low, likely and high of a figure; None where it is not known."""
    found = figure_range(body, figure)
    if isinstance(found, Range):
        return Bounds(low=found.low, likely=found.likely, high=found.high)
    if isinstance(found, MoneyRange):
        low, likely, high = (float(one.amount) for one in (found.low, found.likely, found.high))
        return Bounds(low=low, likely=likely, high=high, currency=found.likely.currency)
    if figure == "fit.headroom_bytes" and isinstance(body.fit, Fit):
        room = float(body.fit.headroom_bytes)
        return Bounds(low=room, likely=room, high=room)
    return None


def figure_range(body: EstimateBody, figure: str) -> Range | MoneyRange | None:
    """A figure of an estimate by its path."""
    found: Any = body
    for name in figure.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, Range | MoneyRange) else None
