"""What an offer costs for so many cards and hours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from tuneplan.economics.money import MoneyRange, convert, decimal
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import ExchangeRate, Money, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class CostItem:
    """One addend of a cost: ``used``, ``unused_accelerators`` or ``unused_term``."""

    name: str
    amount: MoneyRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run costs under one offer.

    Attributes:
        num_instances: Whole instances that are rented.
        num_accelerators: Cards that are paid for, used or not.
        items: Sum to ``total``.
    """

    offer: Offer
    num_instances: int
    num_accelerators: int
    total: MoneyRange
    items: tuple[CostItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomparable:
    """A cost that cannot be set beside the others, and why (``currency_without_rate``)."""

    cost: Cost
    reason: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Costs in one currency, cheapest first, and those that have no rate into it."""

    currency: str
    ranked: tuple[tuple[Cost, MoneyRange], ...]
    incomparable: tuple[Incomparable, ...]


def cost_of(offer: Offer, *, num_accelerators: int, hours: Estimate) -> Cost:
    """The cost of running ``num_accelerators`` cards for ``hours``.

    Whole instances are rented: the count is rounded up to the instance's. An offer with a term
    (a month) is paid in whole terms. Both roundings stand as items of their own.

    Args:
        offer: What is rented.
        num_accelerators: Cards the job uses, at least one.
        hours: Wall-clock hours of the rental, with start-up, evaluation and saving.
    """
    num_instances = math.ceil(num_accelerators / offer.num_accelerators)
    paid_cards = num_instances * offer.num_accelerators
    used = _range(offer, hours, lambda h: _as_used(offer, h) * num_accelerators)
    idle_cards = _range(
        offer, hours, lambda h: _as_used(offer, h) * (paid_cards - num_accelerators)
    )
    idle_term = _range(offer, hours, lambda h: _unused_term(offer, h) * num_instances)
    items = [CostItem(name="used", amount=used)]
    if paid_cards > num_accelerators:
        items.append(CostItem(name="unused_accelerators", amount=idle_cards))
    if offer.term_hours:
        items.append(CostItem(name="unused_term", amount=idle_term))
    return Cost(
        offer=offer,
        num_instances=num_instances,
        num_accelerators=paid_cards,
        total=_range(offer, hours, lambda h: _instance(offer, h) * num_instances),
        items=tuple(items),
    )


def compare(
    costs: Sequence[Cost], *, currency: str, rates: Iterable[ExchangeRate] = ()
) -> Comparison:
    """Costs in one currency, cheapest likely total first; ties by provider and name.

    A cost in another currency needs a dated rate; without one it is kept aside with its reason,
    never converted by guess. A cost of zero needs none.
    """
    rates = tuple(rates)
    ranked: list[tuple[Cost, MoneyRange]] = []
    aside: list[Incomparable] = []
    for cost in costs:
        total = convert_range(cost.total, currency, rates)
        if total is None:
            aside.append(Incomparable(cost=cost, reason=no_rate(cost.total.currency, currency)))
        else:
            ranked.append((cost, total))
    ranked.sort(
        key=lambda pair: (pair[1].likely.amount, pair[0].offer.provider, pair[0].offer.name)
    )
    return Comparison(currency=currency, ranked=tuple(ranked), incomparable=tuple(aside))


def convert_range(
    amount: MoneyRange, currency: str, rates: Iterable[ExchangeRate]
) -> MoneyRange | None:
    """A range in another currency, None where no dated rate leads there."""
    if amount.high.amount == 0:
        nothing = Money(amount=Decimal(0), currency=currency)
        return MoneyRange(low=nothing, likely=nothing, high=nothing)
    rates = tuple(rates)
    low = convert(amount.low, currency, rates)
    likely = convert(amount.likely, currency, rates)
    high = convert(amount.high, currency, rates)
    if low is None or likely is None or high is None:
        return None
    return MoneyRange(low=low, likely=likely, high=high)


def no_rate(currency: str, wanted: str) -> Message:
    """Why an amount in ``currency`` cannot be compared with one in ``wanted``."""
    return message(
        "currency_without_rate",
        "prices in {currency} cannot be compared with {wanted}: give a dated rate under rates in "
        "a price sheet",
        currency=currency,
        wanted=wanted,
    )


def break_even_hours(*, hourly: Money, monthly: Money) -> Decimal:
    """Hours of use in a month from which the monthly price is the cheaper one.

    Raises:
        ValueError: The currencies differ, or the hourly price is not above zero.
    """
    if hourly.currency != monthly.currency or hourly.amount <= 0:
        msg = f"no break-even of {hourly} and {monthly}"
        raise ValueError(msg)
    return monthly.amount / hourly.amount


def _as_used(offer: Offer, hours: Decimal) -> Decimal:
    """One card for exactly these hours."""
    if offer.term_price is not None and offer.term_hours:
        return offer.term_price.amount * hours / offer.term_hours / offer.num_accelerators
    return offer.price.amount * hours / offer.num_accelerators


def _instance(offer: Offer, hours: Decimal) -> Decimal:
    """One instance for these hours, in whole terms."""
    if not offer.term_hours:
        return offer.price.amount * hours
    terms = math.ceil(hours / offer.term_hours)
    if offer.term_price is not None:
        return offer.term_price.amount * terms
    return offer.price.amount * offer.term_hours * terms


def _unused_term(offer: Offer, hours: Decimal) -> Decimal:
    return _instance(offer, hours) - _as_used(offer, hours) * offer.num_accelerators


def _range(offer: Offer, hours: Estimate, amount: Callable[[Decimal], Decimal]) -> MoneyRange:
    def at(value: float) -> Money:
        return Money(amount=amount(decimal(value)), currency=offer.price.currency)

    return MoneyRange(low=at(hours.low), likely=at(hours.likely), high=at(hours.high))
