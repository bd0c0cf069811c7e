"""Two ways from residuals to ranges, compared on runs that were held out.

``hierarchy`` is what ships (``calibration/hierarchy.py``). ``conformal`` takes the nearest tier
that has enough runs and of it the order statistics of the signed scores at P10 and P90 (split
conformal by cells, Vovk's Mondrian taxonomy), each source weighted alike in far tiers; with too few
runs anywhere the prior stands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tuneplan.calibration.evidence import Residual, tallies
from tuneplan.calibration.hierarchy import FIRST_NEAR_TIER, TIERS, spread_of
from tuneplan.calibration.situations import Figure

ENOUGH = 10  # runs that P10 and P90 can be read from
Fold = Callable[[Residual], object]
FOLDS: tuple[tuple[str, Fold], ...] = (
    ("sources", lambda one: one.source),
    ("models of a source", lambda one: (one.source, one.model)),
)


@dataclass(frozen=True)
class Score:
    """How ranges did on held-out runs.

    Attributes:
        coverage: Share inside; 80 % would be right.
        worst_source: The lowest coverage of a source with at least 15 runs.
        width: Median of the range, as a logarithm.
        interval_score: Mean width and, for each miss, ten times by how much (Gneiting and Raftery
            2007, equation 43, at 80 %): the lower, the better.
    """

    figure: Figure
    held_out: str
    method: str
    count: int
    coverage: float
    worst_source: float
    width: float
    interval_score: float


def compared(residuals: Sequence[Residual]) -> list[Score]:
    """Every figure, both ways of holding out, both methods."""
    scores = []
    for figure in Figure:
        own = [one for one in residuals if one.figure is figure]
        for held_out, fold in FOLDS if own else ():
            for method, ranges in (("hierarchy", _hierarchy), ("conformal", _conformal)):
                scores.append(_score(figure, held_out, method, own, fold, ranges))
    return scores


Ranges = Callable[[Figure, Sequence[Residual]], Callable[[Residual], tuple[float, float]]]


def _score(
    figure: Figure, held_out: str, method: str, own: Sequence[Residual], fold: Fold, ranges: Ranges
) -> Score:
    inside: list[tuple[str, bool]] = []
    widths, penalties = [], []
    for part in dict.fromkeys(map(fold, own)):
        range_of = ranges(figure, [one for one in own if fold(one) != part])
        for one in (one for one in own if fold(one) == part):
            low, high = range_of(one)
            beyond = max(low - one.log_ratio, one.log_ratio - high, 0.0)
            inside.append((one.source, beyond <= 1e-12))
            widths.append(high - low)
            penalties.append(high - low + 10.0 * beyond)
    counts = Counter(source for source, _ in inside)
    by_source = [
        sum(yes for name, yes in inside if name == source) / count
        for source, count in counts.items()
        if count >= 15
    ]
    return Score(
        figure=figure,
        held_out=held_out,
        method=method,
        count=len(own),
        coverage=sum(yes for _, yes in inside) / len(inside),
        worst_source=min(by_source, default=math.nan),
        width=median(widths),
        interval_score=sum(penalties) / len(penalties),
    )


def _hierarchy(
    figure: Figure, seen: Sequence[Residual]
) -> Callable[[Residual], tuple[float, float]]:
    tiers = tuple(tallies(seen, fields) for fields in TIERS[figure])

    def range_of(one: Residual) -> tuple[float, float]:
        spread, _ = spread_of(figure, tiers, one.situation, (one.prior_below, one.prior_above))
        return math.log(spread.low_factor), math.log(spread.high_factor)

    return range_of


def _conformal(
    figure: Figure, seen: Sequence[Residual]
) -> Callable[[Residual], tuple[float, float]]:
    cells: list[dict[str, list[Residual]]] = []
    for fields in TIERS[figure]:
        tier: dict[str, list[Residual]] = {}
        for one in seen:
            tier.setdefault(one.situation.cell(fields), []).append(one)
        cells.append(tier)

    def range_of(one: Residual) -> tuple[float, float]:
        for place in reversed(range(len(cells))):
            found = cells[place].get(one.situation.cell(TIERS[figure][place]), [])
            if len(found) >= ENOUGH:
                low, high = _ends(found, near=place >= FIRST_NEAR_TIER)
                return min(low, 0.0) * one.prior_below, max(high, 0.0) * one.prior_above
        return -one.prior_below, one.prior_above

    return range_of


def _ends(found: Sequence[Residual], *, near: bool) -> tuple[float, float]:
    """P10 and P90 of the signed scores, with the one more that conformal prediction asks for."""
    counts = Counter(one.source for one in found)
    weight = {source: 1.0 if near else 1.0 / count for source, count in counts.items()}
    ordered = sorted(found, key=lambda one: one.score)
    total = sum(weight[one.source] for one in ordered)
    share = total / len(ordered)  # of the run that is to come

    def end(runs: Sequence[Residual]) -> float:
        known = 0.0
        for one in runs:
            known += weight[one.source]
            if known >= 0.9 * (total + share):
                return one.score
        return runs[-1].score

    return end(ordered[::-1]), end(ordered)
