"""The answers of ``prices refresh`` and ``prices break-even``."""

from __future__ import annotations

from tuneplan.contract.budgeted import BreakEven
from tuneplan.contract.parts import Header, Notice, Part


class LeftOutCard(Part):
    """A card that the catalogue does not have."""

    card: str
    num_offers: int


class PricesRefreshAnswer(Header):
    """The answer of ``prices refresh``."""

    file: str
    num_offers: int
    num_before: int
    providers: list[str]
    accelerators: list[str]
    left_out: list[LeftOutCard]
    num_counting: int
    oldest_days: int
    warnings: list[Notice]


class BreakEvenAnswer(Header):
    """The answer of ``prices break-even``."""

    num_accelerators: int
    horizon_hours: float
    currency: str
    break_even: BreakEven
    warnings: list[Notice]
