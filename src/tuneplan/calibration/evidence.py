"""Residuals of measured runs, and their sums: all that a calibration keeps of the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType

from tuneplan.calibration.situations import Figure, Situation
from tuneplan.frozen import dataclass

# What a further run of a model that a source has already run adds, as a share of an independent
# run: the runs of one ladder of lengths or batches err together.
REPEATED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One measured figure beside its prediction by physics alone.

    Attributes:
        source: Who published it.
        model: What ran; runs of one model and source are not independent.
        log_ratio: log(measured / likely).
        prior_below, prior_above: Distances of the stated prior's P10 and P90, as logarithms.
    """

    figure: Figure
    run: str
    source: str
    model: str
    situation: Situation
    log_ratio: float
    prior_below: float
    prior_above: float

    @property
    def score(self) -> float:
        """The residual in units of the prior's distance on its side."""
        return self.log_ratio / (self.prior_above if self.log_ratio >= 0 else self.prior_below)


@dataclass(frozen=True, slots=True)
class Tally:
    """The residuals of one source in one cell.

    Attributes:
        rows: Runs.
        weight_below, weight_above: Runs on each side, repeated ones counted in part.
        sum_below, sum_above: Absolute scores of each side, weighted alike.
        middle: Median log ratio.
    """

    rows: int
    weight_below: float
    weight_above: float
    sum_below: float
    sum_above: float
    middle: float

    @property
    def weight(self) -> float:
        """Independent runs that these are worth."""
        return self.weight_below + self.weight_above


def tally(residuals: Sequence[Residual]) -> Tally:
    """Sums over the residuals of one source in one cell."""
    models: dict[str, int] = {}
    for one in residuals:
        models[one.model] = models.get(one.model, 0) + 1
    weights, sums = [0.0, 0.0], [0.0, 0.0]
    for one in residuals:
        count = models[one.model]
        weight = (1.0 + REPEATED_SHARE * (count - 1)) / count
        if one.log_ratio == 0.0:
            weights = [side + weight / 2 for side in weights]
            continue
        side = int(one.log_ratio > 0)
        weights[side] += weight
        sums[side] += weight * abs(one.score)
    middle = median(one.log_ratio for one in residuals)
    below, above = weights
    sum_below, sum_above = sums
    return Tally(len(residuals), below, above, sum_below, sum_above, middle)


def tallies(
    residuals: Iterable[Residual], fields: tuple[str, ...]
) -> Mapping[str, Mapping[str, Tally]]:
    """By cell of a tier, then by source."""
    grouped: dict[str, dict[str, list[Residual]]] = {}
    for one in residuals:
        cell = grouped.setdefault(one.situation.cell(fields), {})
        cell.setdefault(one.source, []).append(one)
    return MappingProxyType(
        {
            cell: MappingProxyType({source: tally(rows) for source, rows in sources.items()})
            for cell, sources in grouped.items()
        }
    )
