"""From how many hours on one offer is cheaper than another, and the curves to draw it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Final

from tuneplan.economics.money import convert
from tuneplan.economics.tariff import charge
from tuneplan.frozen import dataclass
from tuneplan.spec.offer import ExchangeRate, Money, Offer

_POINTS: Final = 60  # of a curve, beside its corners
_CLOSE: Final = Decimal("0.000001")  # hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """From ``hours`` on the offer ``cheaper`` (0 or 1, its place) costs less than the other."""

    hours: Decimal
    cheaper: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What both offers cost for so many hours of use."""

    hours: Decimal
    first: Money
    second: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Two offers over hours of use.

    Attributes:
        cheaper_at_first: 0 or 1: which offer is cheaper for the shortest use; None if neither.
        crossings: Where the other one becomes cheaper, in order, up to ``horizon_hours``.
        points: Of both curves, the corners of terms among them.
    """

    first: Offer
    second: Offer
    currency: str
    horizon_hours: Decimal
    cheaper_at_first: int | None
    crossings: tuple[Crossing, ...]
    points: tuple[CurvePoint, ...]

    @property
    def hours(self) -> Decimal | None:
        """The first break-even."""
        return self.crossings[0].hours if self.crossings else None


def break_even(
    first: Offer,
    second: Offer,
    *,
    num_accelerators: int,
    horizon_hours: Decimal,
    rates: Iterable[ExchangeRate] = (),
) -> BreakEven | None:
    """Where two offers cost the same for ``num_accelerators`` cards; None without a rate.

    Exact: between two ends of terms, commitments and discounts both costs are straight lines.
    Charges by the second, minute or hour are taken as steady: their steps are shorter than an
    hour.

    Args:
        first: One offer.
        second: Another, of the same cards or not.
        num_accelerators: Cards that are needed.
        horizon_hours: The most hours of use that are looked at.
        rates: Dated, for offers in two currencies.
    """
    currency, rates = first.price.currency, tuple(rates)

    def cost(offer: Offer, hours: Decimal) -> Decimal | None:
        instances = math.ceil(num_accelerators / offer.num_accelerators)
        amount = charge(_steady(offer), hours).total * instances
        money = convert(Money(amount=amount, currency=offer.price.currency), currency, rates)
        return money.amount if money is not None else None

    corners = sorted({_CLOSE, horizon_hours, *_ends(first, horizon_hours),
                      *_ends(second, horizon_hours)})  # fmt: skip
    crossings: list[Crossing] = []
    leading: int | None = None
    at_first: int | None = None
    for start, end in pairwise(corners):
        a, b = start + (_CLOSE if start > _CLOSE else 0), end
        values = [cost(offer, at) for at in (a, b) for offer in (first, second)]
        if any(value is None for value in values):
            return None
        difference = [values[0] - values[1], values[2] - values[3]]  # type: ignore[operator]
        for at, gap in ((a, difference[0]), (b, difference[1])):
            now = leading if gap == 0 else int(gap > 0)
            if now is not None and now != leading:
                if leading is None:
                    at_first = now
                else:
                    where = _root(a, b, difference) if at == b else start
                    crossings.append(Crossing(hours=where, cheaper=now))
                leading = now
    step = horizon_hours / _POINTS
    drawn = sorted(
        {*corners, *(c + _CLOSE for c in corners[1:-1]), *(step * n for n in range(1, _POINTS))}
    )
    points = tuple(
        CurvePoint(
            hours=hours,
            first=Money(amount=cost(first, hours) or Decimal(0), currency=currency),
            second=Money(amount=cost(second, hours) or Decimal(0), currency=currency),
        )
        for hours in drawn
    )
    return BreakEven(
        first=first,
        second=second,
        currency=currency,
        horizon_hours=horizon_hours,
        cheaper_at_first=at_first,
        crossings=tuple(crossings),
        points=points,
    )


def _root(a: Decimal, b: Decimal, difference: list[Decimal]) -> Decimal:
    """Where a straight line between two differences is zero."""
    return a + (b - a) * difference[0] / (difference[0] - difference[1])


def _steady(offer: Offer) -> Offer:
    billing = replace(offer.billing, minimum_s=0, increment_s=0)
    return replace(offer, billing=billing)


def _ends(offer: Offer, horizon_hours: Decimal) -> list[Decimal]:
    """Hours at which the offer's cost jumps or bends."""
    billing, term = offer.billing, offer.term_hours
    found = [Decimal(billing.commitment_hours), *(Decimal(h) for h, _ in billing.discounts)]
    if term:
        found += [Decimal(term * n) for n in range(1, math.ceil(horizon_hours / term))]
    shares = (Decimal(0), *(share for _, share in billing.discounts))
    for least, share in billing.discounts:  # from here on the longer commitment is the cheaper
        found += [least * (1 - share) / (1 - other) for other in shares if other < share]
    return [hours for hours in found if 0 < hours < horizon_hours]
