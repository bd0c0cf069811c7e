"""What can be rented or is owned, and for how much. Money is Decimal with an ISO currency."""

from __future__ import annotations

from dataclasses import field
from datetime import date
from decimal import Decimal

from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An exact amount; rounded only in ``report``, and where it is printed."""

    amount: Decimal
    currency: str  # ISO 4217

    def __str__(self) -> str:
        """As a person would print it: ``1.48 USD``; below one cent, two digits that count."""
        shown = (
            f"{self.amount:,.2f}" if abs(self.amount) >= Decimal("0.01") else f"{self.amount:.2g}"
        )
        return f"{shown} {self.currency}"

    def __add__(self, other: Money) -> Money:
        if self.currency != other.currency:
            msg = f"cannot add {other.currency} to {self.currency}"
            raise ValueError(msg)
        return Money(amount=self.amount + other.amount, currency=self.currency)

    def times(self, factor: Decimal | float) -> Money:
        """The amount times a factor (floats go through their shortest decimal form)."""
        exact = factor if isinstance(factor, Decimal) else Decimal(repr(float(factor)))
        return Money(amount=self.amount * exact, currency=self.currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """How time is turned into what is paid, beyond the price itself.

    Attributes:
        minimum_s: Least time that one rental is charged.
        increment_s: Used time is rounded up to a multiple of this; 0 = charged as used.
        commitment_hours: Hours that are paid whether used or not (a minimum term, a reservation).
        upfront: Paid once for each instance.
        discounts: (hours, fraction): for a rental of at least so many hours the price is lower by
            the fraction; the largest that applies counts.
    """

    minimum_s: int = 0
    increment_s: int = 0
    commitment_hours: int = 0
    upfront: Money | None = None
    discounts: tuple[tuple[int, Decimal], ...] = ()

    def discount(self, hours: Decimal | int) -> Decimal:
        """Share of the price that a rental of so many hours is spared."""
        return max((share for least, share in self.discounts if hours >= least), default=Decimal(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """When a spot instance goes away, and what coming back takes.

    Attributes:
        every_hours: Mean time between two interruptions of one instance.
        restart_hours: Charged time until training goes on: start, loading.
        wait_hours: Time without an instance, which is not charged.
    """

    every_hours: float
    restart_hours: float
    wait_hours: float = 0.0


AS_USED = Billing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One way to get accelerators.

    Attributes:
        accelerator: Catalogue name.
        num_accelerators: Cards that are rented together (the instance size).
        price: Per hour for the whole instance.
        region: None where the source does not say: it then never satisfies a residency limit.
        interruptible: Spot or preemptible.
        as_of: Date of the price; ``source`` says where it stood.
        on_hand: The user's own cards: no price per hour, or an internal one.
        max_per_node: Cards that one machine can hold, where the price is by the card; 0 = the
            instance is the machine.
        term_hours: Billed in whole terms of this length (720 for a month); 0 = as used.
        term_price: Exact price of one term for the whole instance.
        cautions: Codes of what to know about the price (``docs/reference/prices.md``).
        billing: Minimums, increments, commitments and discounts.
        interruptions: Of a spot offer, where they are known.
        price_items: What an hour of owned hardware is made of; sums to ``price``.
        certifications: Of the site (``ISO 27001``), as far as the source says.
        single_tenant: Whether nobody else is on the machine; None where the source does not say.
        place: File and line of the user's own sheet.
    """

    provider: str
    name: str
    accelerator: str
    num_accelerators: int
    price: Money
    region: str | None
    interruptible: bool
    as_of: date
    source: str
    host_memory_bytes: int | None = None
    vcpus: int | None = None
    on_hand: bool = False
    from_user: bool = False
    max_per_node: int = 0
    term_hours: int = 0
    term_price: Money | None = None
    cautions: tuple[str, ...] = ()
    billing: Billing = AS_USED
    interruptions: Interruptions | None = None
    price_items: tuple[tuple[str, Money], ...] = ()
    certifications: tuple[str, ...] = ()
    single_tenant: bool | None = None
    place: tuple[str, int] | None = field(default=None, compare=False)

    @property
    def accelerators_per_node(self) -> int:
        """Cards that can share one machine."""
        return max(self.max_per_node, self.num_accelerators)

    @property
    def price_per_accelerator_hour(self) -> Money:
        """Hourly price divided by the number of cards."""
        return Money(amount=self.price.amount / self.num_accelerators, currency=self.price.currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRate:
    """What one unit of ``base`` costs in ``quote``, on a day."""

    base: str
    quote: str
    rate: Decimal
    as_of: date
    source: str
