"""What one instance is charged for so many hours: exactly, and for many durations at once."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.frozen import dataclass
from tuneplan.spec.offer import Offer
from tuneplan.units import HOUR_S

Floats = NDArray[np.float64]
_HOUR: Final = Decimal(int(HOUR_S))
_NOTHING: Final = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one instance is charged for one rental.

    Attributes:
        used: For the hours used, at the price that counts.
        rounding: For the least charge and the rounding to increments.
        unused_term: For hours of terms and commitments that are not used.
        upfront: Paid once.
        paid_hours: Hours that are paid.
        discount: Share by which the price is lower for that length.
    """

    used: Decimal
    rounding: Decimal
    unused_term: Decimal
    upfront: Decimal
    paid_hours: Decimal
    discount: Decimal

    @property
    def total(self) -> Decimal:
        """All of it."""
        return self.used + self.rounding + self.unused_term + self.upfront

    @property
    def per_hour(self) -> Decimal:
        """Price of a paid hour, without what is paid once."""
        paid = self.used + self.rounding + self.unused_term
        return paid / self.paid_hours if self.paid_hours else _NOTHING


def charge(offer: Offer, hours: Decimal, *, least_hours: Decimal = _NOTHING) -> Charge:
    """What a rental of one instance is charged.

    A longer commitment is taken where its discount makes it the cheaper one.

    Args:
        offer: What is rented.
        hours: In use; nothing is charged for no hours.
        least_hours: The rental lasts at least so long, used or not (weeks of a calendar).
    """
    if hours <= 0:
        return Charge(used=_NOTHING, rounding=_NOTHING, unused_term=_NOTHING,
                      upfront=_NOTHING, paid_hours=_NOTHING, discount=_NOTHING)  # fmt: skip
    rounded = rounded_hours(offer, hours)
    held = max(rounded, least_hours) if offer.term_hours else rounded
    options = [_commitment(offer, held)]
    options += [
        _commitment(offer, Decimal(least))
        for least, _ in offer.billing.discounts
        if least > options[0]
    ]
    price, paid = min((_price(offer, option), option) for option in options)
    upfront = offer.billing.upfront
    used = price * hours / paid
    rounding = price * (rounded - hours) / paid
    return Charge(
        used=used,
        rounding=rounding,
        unused_term=price - used - rounding if paid > rounded else _NOTHING,
        upfront=upfront.amount if upfront is not None else _NOTHING,
        paid_hours=paid,
        discount=offer.billing.discount(paid),
    )


def charges(offer: Offer, hours: Floats, *, least_hours: float = 0.0) -> Floats:
    """Total of ``charge`` for many durations, in floats."""
    billing = offer.billing
    rounded = np.maximum(hours, billing.minimum_s / HOUR_S)
    if billing.increment_s:
        step = billing.increment_s / HOUR_S
        rounded = np.maximum(1.0, np.ceil(np.round(rounded / step, 9))) * step
    held = np.maximum(rounded, least_hours) if offer.term_hours else rounded
    paid = _commitments(offer, held)
    found = _prices(offer, paid)
    for least, _ in billing.discounts:
        longer = _commitments(offer, np.maximum(held, float(least)))
        found = np.minimum(found, _prices(offer, longer))
    if billing.upfront is not None:
        found = found + float(billing.upfront.amount)
    return np.where(hours > 0, found, 0.0)


def rounded_hours(offer: Offer, hours: Decimal) -> Decimal:
    """Hours with the least charge and the increments of the offer."""
    billing = offer.billing
    least = max(hours, Decimal(billing.minimum_s) / _HOUR)
    if not billing.increment_s:
        return least
    step = Decimal(billing.increment_s) / _HOUR
    return max(1, math.ceil(round(least / step, 9))) * step


def idle_cost_per_hour(offer: Offer) -> Decimal:
    """What an hour costs in which the rented instance does nothing."""
    if offer.term_price is not None and offer.term_hours:
        return offer.term_price.amount / offer.term_hours
    return offer.price.amount


def _commitment(offer: Offer, hours: Decimal) -> Decimal:
    """Hours that are paid where nobody looks at discounts."""
    least = max(hours, Decimal(offer.billing.commitment_hours))
    term = offer.term_hours
    return Decimal(math.ceil(least / term) * term) if term else least


def _price(offer: Offer, paid: Decimal) -> Decimal:
    share = 1 - offer.billing.discount(paid)
    if offer.term_hours and offer.term_price is not None:
        return offer.term_price.amount * (paid / offer.term_hours) * share
    return offer.price.amount * paid * share


def _commitments(offer: Offer, hours: Floats) -> Floats:
    least = np.maximum(hours, float(offer.billing.commitment_hours))
    if not offer.term_hours:
        return least
    found: Floats = np.ceil(least / offer.term_hours) * offer.term_hours
    return found


def _prices(offer: Offer, paid: Floats) -> Floats:
    share = np.ones_like(paid)
    for least, fraction in sorted(offer.billing.discounts):
        lower = np.minimum(share, 1 - float(fraction))
        share = np.where(paid >= least, lower, share)
    if offer.term_hours and offer.term_price is not None:
        return paid / offer.term_hours * float(offer.term_price.amount) * share
    return paid * float(offer.price.amount) * share
