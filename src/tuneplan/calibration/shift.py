"""A factor on a likely figure, shrunk to 1 where few sources speak.

First the chip (each source one observation), then the program on that chip. Medians, so that a bad
row does not move it. Two numbers a job at most, none of a row.
"""

from __future__ import annotations

from typing import Final

from tuneplan.calibration.hierarchy import Cells
from tuneplan.calibration.situations import Situation

CHIP: Final = ("chip",)
PROGRAM: Final = ("framework", "chip")
CHIP_STRENGTH: Final = 4.0  # sources that "the physics is right" is worth
PROGRAM_STRENGTH: Final = 4.0  # runs that the chip's own factor is worth


def log_shift(
    chips: Cells, programs: Cells, situation: Situation, *, without: str | None = None
) -> float:
    """Log of the factor on the likely figure; 0 where nothing is known."""
    shift = 0.0
    for cells, fields, strength, by_source in (
        (chips, CHIP, CHIP_STRENGTH, True),
        (programs, PROGRAM, PROGRAM_STRENGTH, False),
    ):
        cell = cells.get(situation.cell(fields), {})
        found = [one for source, one in cell.items() if source != without]
        weights = [1.0 if by_source else one.weight for one in found]
        if not weights:
            continue
        mean = sum(w * one.middle for w, one in zip(weights, found, strict=True)) / sum(weights)
        shift += sum(weights) / (sum(weights) + strength) * (mean - shift)
    return shift
