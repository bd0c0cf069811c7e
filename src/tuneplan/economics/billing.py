"""What an offer costs for so many cards and hours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

from tuneplan.economics.money import MoneyRange, convert, decimal
from tuneplan.economics.tariff import charge
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import ExchangeRate, Money, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class CostItem:
    """One addend of a cost.

    ``used``, ``unused_accelerators``, ``interruptions`` (lost work and restarts on spot offers),
    ``rounding`` (least charge and increments), ``unused_term`` or ``upfront``.
    """

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


def cost_of(
    offer: Offer,
    *,
    num_accelerators: int,
    hours: Estimate,
    charged_hours: Estimate | None = None,
) -> Cost:
    """The cost of running ``num_accelerators`` cards for ``hours``.

    Whole instances are rented: the count is rounded up to the instance's. An offer with a term
    (a month) is paid in whole terms, as many as the hours or its commitment ask for, or more where
    a discount makes them cheaper. Each such rounding stands as an item of its own.

    Args:
        offer: What is rented.
        num_accelerators: Cards the job uses, at least one.
        hours: Wall-clock hours of the rental, with start-up, evaluation and saving.
        charged_hours: The same with what interruptions add (``spot.spot_run``); None for none.
    """
    num_instances = math.ceil(num_accelerators / offer.num_accelerators)
    paid_cards = num_instances * offer.num_accelerators
    edges = []
    for edge in ("low", "likely", "high"):
        run = decimal(getattr(hours, edge))
        charged = max(run, decimal(getattr(charged_hours or hours, edge)))
        paid = charge(offer, charged)
        lost = paid.used * (1 - run / charged) if charged else Decimal(0)
        used = (paid.used - lost) * num_instances
        items = {
            "used": used * num_accelerators / paid_cards,
            "unused_accelerators": used * (paid_cards - num_accelerators) / paid_cards,
            "interruptions": lost * num_instances,
            "rounding": paid.rounding * num_instances,
            "unused_term": paid.unused_term * num_instances,
            "upfront": paid.upfront * num_instances,
        }
        edges.append((paid.total * num_instances, items))
    always = {"used"} | ({"unused_term"} if offer.term_hours else set())
    return Cost(
        offer=offer,
        num_instances=num_instances,
        num_accelerators=paid_cards,
        total=_money_range(offer, [total for total, _ in edges]),
        items=tuple(
            CostItem(name=name, amount=_money_range(offer, [items[name] for _, items in edges]))
            for name in edges[0][1]
            if name in always or any(items[name] for _, items in edges)
        ),
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


def _money_range(offer: Offer, amounts: Sequence[Decimal]) -> MoneyRange:
    low, likely, high = (Money(amount=amount, currency=offer.price.currency) for amount in amounts)
    return MoneyRange(low=low, likely=likely, high=high)
