"""Amounts in ranges, and conversion by dated rates only."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from tuneplan.frozen import dataclass
from tuneplan.spec.offer import ExchangeRate, Money


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyRange:
    """10th, 50th and 90th percentile of an amount, in one currency."""

    low: Money
    likely: Money
    high: Money

    def __add__(self, other: MoneyRange) -> MoneyRange:
        return MoneyRange(
            low=self.low + other.low,
            likely=self.likely + other.likely,
            high=self.high + other.high,
        )

    @property
    def currency(self) -> str:
        """ISO 4217 code."""
        return self.likely.currency


def convert(money: Money, currency: str, rates: Iterable[ExchangeRate]) -> Money | None:
    """The amount in another currency by the newest dated rate, or None where there is none.

    A rate serves in both directions; rates are not chained.
    """
    if money.currency == currency:
        return money
    newest = rate_between(money.currency, currency, rates)
    if newest is None:
        return None
    factor = newest.rate if newest.base == money.currency else 1 / newest.rate
    return Money(amount=money.amount * factor, currency=currency)


def rate_between(currency: str, other: str, rates: Iterable[ExchangeRate]) -> ExchangeRate | None:
    """The newest dated rate of two currencies, in either direction; None where there is none."""
    fitting = [rate for rate in rates if {rate.base, rate.quote} == {currency, other}]
    return max(fitting, key=lambda rate: (rate.as_of, rate.base, rate.rate), default=None)


def decimal(number: float) -> Decimal:
    """A float as the shortest decimal that means it."""
    return Decimal(repr(float(number)))
