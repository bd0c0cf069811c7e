"""What each candidate of a search costs, with the cheapest offer that the limits leave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from tuneplan.economics.interruptions import likely_paid_hours
from tuneplan.economics.money import convert
from tuneplan.economics.tariff import charges
from tuneplan.frozen import dataclass
from tuneplan.planner.candidates import Table
from tuneplan.planner.offering import compared_currency, rejection
from tuneplan.planner.sources import Sources
from tuneplan.spec.offer import Money, Offer
from tuneplan.spec.stated import Limits
from tuneplan.units import HOUR_S

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Cost of every candidate, in one currency (``offering.compared_currency``).

    Attributes:
        cost: NaN without an offer or without hours.
        why_none: For chips and shapes without an offer, the reason's code.
    """

    cost: Floats
    currency: str
    offers: Mapping[tuple[int, int], tuple[Offer, ...]]
    why_none: Mapping[tuple[int, int], str]


def price_table(table: Table, sources: Sources, limits: Limits) -> Prices:
    """Price every row of a table."""
    cost = np.full(len(table), np.nan)
    offers: dict[tuple[int, int], tuple[Offer, ...]] = {}
    why_none: dict[tuple[int, int], str] = {}
    hours, segments = table.total_s / HOUR_S, table.segment_s / HOUR_S
    currency = compared_currency(sources.offers.offers, limits)
    for chip in np.unique(table.chip):
        name = table.space.accelerators[chip].name
        listed = sources.offers.of(name)
        for shape in np.unique(table.shape[table.chip == chip]):
            nodes, per_node = table.space.shapes[shape]
            reasons = {offer: rejection(offer, nodes, per_node, limits) for offer in listed}
            allowed = tuple(offer for offer, reason in reasons.items() if reason is None)
            key = (int(chip), int(shape))
            offers[key] = allowed
            if not allowed:
                why_none[key] = _telling(reasons)
                continue
            if not any(convert(offer.price, currency, sources.offers.rates) for offer in allowed):
                if limits.budget is not None:
                    why_none[key] = "currency_without_rate"
                continue
            rows = (table.chip == chip) & (table.shape == shape)
            priced = [
                _cost(offer, nodes * per_node, hours[rows], segments[rows], sources, currency)
                for offer in allowed
            ]
            cost[rows] = np.fmin.reduce(priced)
    return Prices(cost=cost, currency=currency, offers=offers, why_none=why_none)


def _telling(reasons: Mapping[Offer, str | None]) -> str:
    """The reason to show: of the user's own offers, then what most offers failed on.

    An offer that stands elsewhere says more than one that does not say where it stands.
    """
    own = [reason for offer, reason in reasons.items() if offer.from_user and reason]
    found = own or [reason for reason in reasons.values() if reason]
    if not found:
        return "no_offer"
    return min(set(found), key=lambda code: (code == "region_unknown", -found.count(code), code))


def _cost(
    offer: Offer,
    num_accelerators: int,
    hours: Floats,
    segment_hours: Floats,
    sources: Sources,
    currency: str,
) -> Floats:
    """Cost of the hours under one offer; NaN where its currency has no rate into ``currency``.

    The same rule as ``economics.billing.cost_of``.
    """
    instances = math.ceil(num_accelerators / offer.num_accelerators)
    one = convert(Money(amount=Decimal(1), currency=offer.price.currency), currency,
                  sources.offers.rates)  # fmt: skip
    if offer.price.amount == 0 and offer.billing.upfront is None:
        return np.where(np.isnan(hours), np.nan, 0.0)
    if one is None:
        return np.full(len(hours), np.nan)
    paid = likely_paid_hours(offer, hours, segment_hours, num_instances=instances)
    found: Floats = charges(offer, paid) * float(one.amount) * instances
    return np.where(np.isnan(hours), np.nan, found)
