"""What an hour of a machine costs its owner, item by item."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.offer import Money

MONTH_HOURS: Final = 720  # 30 x 24 h
NOTHING: Final = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedHardware:
    """A machine that was bought, and what keeping it takes. All amounts in one currency.

    Attributes:
        purchase: Price of the machine, with what belongs to it (network, installation).
        lifetime_hours: Over which it is written off, in equal parts.
        resale: What it still brings then.
        power_kw: At the plug of the machine while it trains.
        idle_power_kw: While it does not.
        pue: Power at the building's meter over power of the machines (cooling is in it).
        electricity_per_kwh: Price of a kWh.
        cooling_per_month: Cooling that is paid apart from electricity.
        rack_per_month: Room, rack, network.
        staff_per_month: Cost of those who look after it, of which ``staff_share`` counts.
        utilization: Share of all hours in which it works for somebody.
    """

    purchase: Money
    lifetime_hours: int
    power_kw: Decimal
    electricity_per_kwh: Money
    utilization: Decimal
    resale: Decimal = NOTHING
    idle_power_kw: Decimal = NOTHING
    pue: Decimal = Decimal(1)
    cooling_per_month: Decimal = NOTHING
    rack_per_month: Decimal = NOTHING
    staff_per_month: Decimal = NOTHING
    staff_share: Decimal = NOTHING


def hourly_items(owned: OwnedHardware) -> tuple[tuple[str, Money], ...]:
    """Cost of an hour of use, by item; an item of nothing is left out.

    What runs whether or not the machine is used is spread over the hours that are:

        depreciation = (purchase - resale) / (lifetime x utilization)
        energy       = (power + idle power x (1 - utilization) / utilization) x PUE x price
        cooling, rack, staff = a month's / (720 h x utilization)
    """
    used = owned.utilization
    idle_hours = (1 - used) / used
    month = MONTH_HOURS * used
    amounts = (
        (
            "depreciation",
            (owned.purchase.amount - owned.resale) / (owned.lifetime_hours * used),
        ),
        (
            "energy",
            (owned.power_kw + owned.idle_power_kw * idle_hours)
            * owned.pue
            * owned.electricity_per_kwh.amount,
        ),
        ("cooling", owned.cooling_per_month / month),
        ("rack", owned.rack_per_month / month),
        ("staff", owned.staff_per_month * owned.staff_share / month),
    )
    return tuple(
        (name, Money(amount=amount, currency=owned.purchase.currency))
        for name, amount in amounts
        if amount
    )


def hourly_price(items: tuple[tuple[str, Money], ...]) -> Money:
    """The items of an hour together."""
    first, *others = (money for _, money in items)
    total = first
    for money in others:
        total += money
    return total
