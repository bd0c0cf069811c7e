"""The answer about our own accuracy: figures beside their targets, and a point for each run."""

from __future__ import annotations

from pydantic import FiniteFloat

from tuneplan.contract.parts import Fraction, Header, Part


class AccuracySource(Part):
    """Who published runs, and how many."""

    name: str
    runs: int
    published_in: str


class AccuracyFigure(Part):
    """A figure that accuracy is judged by; fractions.

    ``must``, ``aim`` and ``measured`` are the median and the P90 of the absolute error, or one
    share and null; of a coverage ``must`` and ``aim`` are the ends of a band, and ``measured`` is
    the share of runs inside their range. ``by_source``: medians over the sources.
    """

    key: str
    runs: int
    must: list[FiniteFloat | None]
    aim: list[FiniteFloat | None]
    measured: list[FiniteFloat | None]
    by_source: list[FiniteFloat | None] | None = None
    met: bool | None
    aimed: bool | None


class AccuracyPoint(Part):
    """A measured figure beside its prediction, calibrated without the runs of its own source."""

    quantity: str
    source: str
    measured: FiniteFloat
    likely: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    probability: Fraction | None = None


class AccuracyAnswer(Header):
    """Predictions of this release against the published runs of ``evidence/``.

    ``measured_on``: the day on which they were made.
    """

    measured_on: str
    num_runs: int
    num_predicted: int
    figures: list[AccuracyFigure]
    points: list[AccuracyPoint]
    sources: list[AccuracySource]
