"""A fitted calibration, and what it says of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tuneplan.calibration.evidence import Residual, Tally, tallies
from tuneplan.calibration.hierarchy import TIERS, Cells, Nearest, spread_of
from tuneplan.calibration.shift import CHIP, PROGRAM, log_shift
from tuneplan.calibration.situations import Figure, Situation
from tuneplan.estimation.spread import Spread
from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What is kept of the residuals of one figure.

    Attributes:
        shifts: Whether the likely figure is moved: held-out sources were predicted better so.
        chips, programs: Tallies that the factor comes from.
        tiers: Tallies that the range comes from, of what the factor leaves.
    """

    shifts: bool
    chips: Cells
    programs: Cells
    tiers: tuple[Cells, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted numbers of every figure.

    Attributes:
        as_of: Day of the fit.
        rows, sources: Measured figures and their publishers behind it.
        without: A source that is left out of every answer (to hold it out).
    """

    as_of: str
    rows: int
    sources: tuple[str, ...]
    figures: Mapping[Figure, Fitted]
    without: str | None = None

    def leaving_out(self, source: str) -> Calibration:
        """The same, as if this source had never been seen."""
        return replace(self, without=source)

    def log_shift(self, figure: Figure, situation: Situation) -> float:
        """Log of the factor on the likely figure."""
        fitted = self.figures.get(figure)
        if fitted is None or not fitted.shifts:
            return 0.0
        return log_shift(fitted.chips, fitted.programs, situation, without=self.without)

    def spread(
        self, figure: Figure, situation: Situation, prior: tuple[float, float]
    ) -> tuple[Spread, Nearest] | None:
        """Distribution of log(measured / likely); None without evidence of this figure.

        Args:
            figure: Which.
            situation: Of the job.
            prior: Distances of the stated prior's P10 and P90 from likely, as logarithms.
        """
        fitted = self.figures.get(figure)
        if fitted is None or min(prior) <= 0.0:
            return None
        return spread_of(figure, fitted.tiers, situation, prior, without=self.without)


def fit(residuals: Sequence[Residual], *, as_of: str, shifts: Iterable[Figure] = ()) -> Calibration:
    """A calibration from residuals of physics alone.

    Where a figure is shifted, the range is fitted to what a factor leaves that has not seen the
    model of the row: in-sample leftovers would be too small.
    """
    figures: dict[Figure, Fitted] = {}
    moved = frozenset(shifts)
    for figure in Figure:
        own = [one for one in residuals if one.figure is figure]
        if not own:
            continue
        chips, programs = tallies(own, CHIP), tallies(own, PROGRAM)
        left = shifted_out_of_sample(own) if figure in moved else own
        figures[figure] = Fitted(
            shifts=figure in moved,
            chips=chips,
            programs=programs,
            tiers=tuple(tallies(left, fields) for fields in TIERS[figure]),
        )
    return Calibration(
        as_of=as_of,
        rows=len(residuals),
        sources=tuple(sorted({one.source for one in residuals})),
        figures=MappingProxyType(figures),
    )


def shifted_out_of_sample(residuals: Sequence[Residual]) -> list[Residual]:
    """Residuals less the factor that is fitted without their own source's runs of their model."""
    left: list[Residual] = []
    for source, model in dict.fromkeys((one.source, one.model) for one in residuals):
        others = [one for one in residuals if (one.source, one.model) != (source, model)]
        chips, programs = tallies(others, CHIP), tallies(others, PROGRAM)
        left += [
            replace(one, log_ratio=one.log_ratio - log_shift(chips, programs, one.situation))
            for one in residuals
            if (one.source, one.model) == (source, model)
        ]
    return left


def to_plain(calibration: Calibration) -> dict[str, Any]:
    """As JSON keeps it; ``from_plain`` reads it."""
    return {
        "as_of": calibration.as_of,
        "rows": calibration.rows,
        "sources": list(calibration.sources),
        "figures": {
            figure.value: {
                "shifts": one.shifts,
                "chips": _plain(one.chips),
                "programs": _plain(one.programs),
                "tiers": [_plain(cells) for cells in one.tiers],
            }
            for figure, one in calibration.figures.items()
        },
    }


def from_plain(plain: Mapping[str, Any]) -> Calibration:
    """A calibration from what ``to_plain`` made."""
    return Calibration(
        as_of=plain["as_of"],
        rows=plain["rows"],
        sources=tuple(plain["sources"]),
        figures=MappingProxyType(
            {
                Figure(name): Fitted(
                    shifts=one["shifts"],
                    chips=_cells(one["chips"]),
                    programs=_cells(one["programs"]),
                    tiers=tuple(map(_cells, one["tiers"])),
                )
                for name, one in plain["figures"].items()
            }
        ),
    )


def _plain(cells: Cells) -> dict[str, dict[str, list[float]]]:
    return {
        cell: {
            source: [
                one.rows,
                *(
                    float(f"{value:.4g}")
                    for value in (
                        *(one.weight_below, one.weight_above, one.sum_below, one.sum_above),
                        one.middle,
                    )
                ),
            ]
            for source, one in sources.items()
        }
        for cell, sources in cells.items()
    }


def _cells(plain: Mapping[str, Mapping[str, Sequence[float]]]) -> Cells:
    return MappingProxyType(
        {
            cell: MappingProxyType(
                {source: Tally(int(row[0]), *row[1:]) for source, row in sources.items()}
            )
            for cell, sources in plain.items()
        }
    )
