"""Ranges by hierarchical Bayes: from all evidence to what is closest, tier by tier.

Scores (residuals in units of the stated prior) have two Laplace tails, each with a scale of its
own. The scale of a cell has an inverse-gamma prior around that of the tier before it, worth
``strength`` observations; the first tier's prior is the stated width itself. The predictive
distribution is then a Lomax tail a side (``estimation.spread``): narrow where many runs are close,
wide where the job resembles nothing, without a rule for either. Sources of a far tier count once
each, so that no source with many rows decides about programs that it does not use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuneplan.calibration.evidence import Tally
from tuneplan.calibration.situations import Figure, Situation
from tuneplan.estimation.spread import Spread, Tail
from tuneplan.frozen import dataclass

TIERS: Final[Mapping[Figure, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        Figure.ALLOCATED: (
            (),
            ("code",),
            ("framework", "layout"),
            ("framework", "layout", "method"),
            ("framework", "layout", "method", "chip"),
        ),
        Figure.RESERVED: ((), ("code",), ("framework", "layout", "method")),
        Figure.TOKENS: ((), ("code",), ("framework", "chip"), ("framework", "chip", "layout")),
    }
)
FIRST_NEAR_TIER: Final = 2  # from here on a source counts by its runs
STRENGTH: Final = 2.0  # observations that the tier before is worth
_SHARE_STRENGTH: Final = 1.0
# Of a Laplace tail with one half of the probability, P90 lies at log(5) scales.
_PRIOR_SCALE: Final = 1.0 / math.log(5.0)

Cells = Mapping[str, Mapping[str, Tally]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The closest evidence of a job.

    Attributes:
        tier: Of how many the last was that had any; -1: none.
        last: Whether that is the closest tier there is.
        fields: What the evidence shares with the job.
        rows: Runs of it, by source.
    """

    tier: int
    last: bool
    fields: tuple[str, ...]
    rows: Mapping[str, int]

    @property
    def is_near(self) -> bool:
        """Whether the program itself was measured in this situation."""
        return self.tier >= FIRST_NEAR_TIER


def spread_of(
    figure: Figure,
    tiers: tuple[Cells, ...],
    situation: Situation,
    prior: tuple[float, float],
    *,
    without: str | None = None,
    strength: float = STRENGTH,
) -> tuple[Spread, Nearest]:
    """The distribution of log(measured / likely) of a job.

    Args:
        figure: Which.
        tiers: Tallies by tier, cell and source.
        situation: Of the job.
        prior: Distances of the stated prior's P10 and P90 from likely, as logarithms.
        without: A source that is left out.
        strength: Observations that the tier before is worth.
    """
    share = 0.5
    scales = [_PRIOR_SCALE, _PRIOR_SCALE]
    shapes = [strength, strength]
    nearest = Nearest(tier=-1, last=False, fields=(), rows=MappingProxyType({}))
    for place, (fields, cells) in enumerate(zip(TIERS[figure], tiers, strict=True)):
        cell = cells.get(situation.cell(fields), {})
        found = {source: one for source, one in cell.items() if source != without}
        if not found:
            break
        weights, sums = _summed(found, near=place >= FIRST_NEAR_TIER)
        total = sum(weights)
        share = (_SHARE_STRENGTH * share + weights[1]) / (_SHARE_STRENGTH + total)
        for side in (0, 1):
            shapes[side] = strength + weights[side]
            scales[side] = (strength * scales[side] + sums[side]) / shapes[side]
        nearest = Nearest(
            tier=place,
            last=place == len(tiers) - 1,
            fields=fields,
            rows=MappingProxyType({source: one.rows for source, one in found.items()}),
        )
    below, above = (
        Tail(share=part, shape=shapes[side], scale=shapes[side] * scales[side] * prior[side])
        for side, part in ((0, 1.0 - share), (1, share))
    )
    return Spread(below=below, above=above), nearest


def _summed(found: Mapping[str, Tally], *, near: bool) -> tuple[list[float], list[float]]:
    weights, sums = [0.0, 0.0], [0.0, 0.0]
    for one in found.values():
        scale = 1.0 if near else 1.0 / one.weight
        weights = [weights[0] + one.weight_below * scale, weights[1] + one.weight_above * scale]
        sums = [sums[0] + one.sum_below * scale, sums[1] + one.sum_above * scale]
    return weights, sums
