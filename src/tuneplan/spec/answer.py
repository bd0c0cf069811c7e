"""What every answer is made of: ranges, their basis, assumptions, warnings, terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.language import Message


class Basis(StrEnum):
    """How well founded a figure is, weakest first."""

    ASSUMED = "assumed"
    ANALYTIC = "analytic"
    TRACED = "traced"
    CALIBRATED = "calibrated"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A range: 10th, 50th and 90th percentile. The unit is in the name of the holding field."""

    low: float
    likely: float
    high: float
    basis: Basis = Basis.ANALYTIC

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            msg = f"an estimate needs low <= likely <= high, got {self}"
            raise ValueError(msg)

    def scaled(self, factor: float) -> Estimate:
        """The same range times a non-negative factor."""
        return Estimate(
            low=self.low * factor,
            likely=self.likely * factor,
            high=self.high * factor,
            basis=self.basis,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something nobody stated, and what was taken instead.

    Attributes:
        name: The job key it stands for (``training.gradient_checkpointing``) or a topic.
        value: What was taken.
        reason: Why this value.
        source: Framework file and version, paper, datasheet.
        how_to_set: What to write in the job file or on the command line to say otherwise.
    """

    name: str
    value: Any
    reason: Message
    source: str
    how_to_set: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the reader should know; never fatal."""

    message: Message
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One addend of a sum, with how it was computed.

    Attributes:
        kind: Stable name, e.g. ``weights``.
        value: Bytes or seconds; the holder says which.
        formula: With the symbols of ``inputs``.
        inputs: Symbol to value.
        source: Where the formula comes from.
        basis: How well founded.
        parts: What it is made of, largest first (sums to ``value``), where that is known.
    """

    kind: str
    value: float
    formula: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    basis: Basis = Basis.ANALYTIC
    parts: tuple[Term, ...] = ()
