"""Minimums, increments, commitments, discounts, owned machines, and break-even hours."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.economics.billing import cost_of
from tuneplan.economics.break_even import break_even
from tuneplan.economics.owned import OwnedHardware, hourly_items, hourly_price
from tuneplan.economics.tariff import charge, charges, idle_cost_per_hour, rounded_hours
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import Billing, ExchangeRate, Money, Offer


def twd(amount) -> Money:
    return Money(amount=Decimal(amount), currency="TWD")


def hourly(price, *, count: int = 1, name: str = "hour", **billing) -> Offer:
    return Offer(
        provider="X", name=name, accelerator="chip", num_accelerators=count, price=twd(price),
        region=None, interruptible=False, as_of=date(2026, 11, 2), source="s",
        billing=Billing(**billing),
    )  # fmt: skip


def monthly(price, *, count: int = 1, **billing) -> Offer:
    offer = hourly(Decimal(price) / 720, count=count, name="month", **billing)
    return replace(offer, term_hours=720, term_price=twd(price))


def exactly(hours: float) -> Estimate:
    return Estimate(low=hours, likely=hours, high=hours)


def test_ten_minutes_at_least_and_by_the_minute_after_that() -> None:
    offer = hourly(120, minimum_s=600, increment_s=60)
    # 2 TWD a minute: 3 min are charged as 10 (20 TWD); 10 min 1 s as 11 (22 TWD)
    assert charge(offer, Decimal(3) / 60).total == pytest.approx(Decimal(20))
    assert charge(offer, Decimal(601) / 3600).total == pytest.approx(Decimal(22))
    # a whole number of minutes is not rounded up by the third that a decimal cannot hold
    assert rounded_hours(offer, Decimal(20) / 60) == pytest.approx(Decimal(20) / 60)
    cost = cost_of(offer, num_accelerators=1, hours=exactly(0.05))
    items = {item.name: item.amount.likely.amount for item in cost.items}
    # 3 min used = 6 TWD; 7 more are charged = 14 TWD
    assert items == {"used": pytest.approx(Decimal(6)), "rounding": pytest.approx(Decimal(14))}


def test_a_started_hour_is_an_hour() -> None:
    offer = hourly(120, increment_s=3600)
    assert charge(offer, Decimal("5.2")).total == 6 * 120


def test_ten_percent_less_from_six_months_on() -> None:
    offer = monthly(50_000, discounts=((6 * 720, Decimal("0.1")),))
    # four months: 4 x 50,000 = 200,000
    assert charge(offer, Decimal(4 * 720)).total == 200_000
    # five months: 250,000; six at 45,000 are 270,000, so five are taken
    assert charge(offer, Decimal(5 * 720)).total == 250_000
    # six months: 6 x 50,000 x 0.9 = 270,000; seven: 7 x 45,000 = 315,000
    assert charge(offer, Decimal(6 * 720)).total == 270_000
    assert charge(offer, Decimal(6 * 720)).discount == Decimal("0.1")
    assert charge(offer, Decimal(6 * 720 + 1)).total == 315_000


def test_a_longer_commitment_is_taken_where_its_discount_pays() -> None:
    offer = monthly(50_000, discounts=((6 * 720, Decimal("0.2")),))
    # five months at 50,000 are 250,000; six at 40,000 are 240,000
    found = charge(offer, Decimal(5 * 720))
    assert found.total == 240_000
    assert found.paid_hours == 6 * 720
    assert found.unused_term == 40_000


def test_a_minimum_term_is_paid_whether_used_or_not() -> None:
    offer = monthly(50_000, commitment_hours=3 * 720)
    assert charge(offer, Decimal(10)).total == 150_000
    assert charge(offer, Decimal(4 * 720)).total == 200_000
    # a reservation by the hour with something paid at once: 8,760 h x 60 + 100,000
    reserved = hourly(60, commitment_hours=8760, upfront=twd(100_000))
    assert charge(reserved, Decimal(100)).total == 8760 * 60 + 100_000
    assert charge(reserved, Decimal(9000)).total == 9000 * 60 + 100_000


def test_nothing_is_charged_for_no_hours() -> None:
    for offer in (hourly(120, minimum_s=600), monthly(50_000, commitment_hours=2160)):
        assert charge(offer, Decimal(0)).total == 0


def test_an_idle_node_burns_486_an_hour() -> None:
    # NT$350,000 / (30 x 24 h) = NT$486.11
    node = monthly(350_000, count=8)
    assert round(idle_cost_per_hour(node)) == 486
    assert idle_cost_per_hour(hourly(120)) == 120


terms = st.sampled_from([0, 24, 168, 720])
tariffs = st.builds(
    lambda price, term, minimum, increment, commitment, discounts, upfront: replace(
        hourly(
            price,
            minimum_s=minimum,
            increment_s=increment,
            commitment_hours=commitment,
            discounts=tuple(discounts),
            upfront=twd(upfront) if upfront else None,
        ),
        term_hours=term,
        term_price=twd(price * term) if term else None,
    ),
    st.integers(1, 500).map(Decimal),
    terms,
    st.sampled_from([0, 60, 600]),
    st.sampled_from([0, 60, 3600]),
    st.sampled_from([0, 0, 100, 2160]),
    st.lists(
        st.tuples(st.integers(1, 9000), st.integers(1, 90).map(lambda p: Decimal(p) / 100)),
        max_size=3,
    ),
    st.sampled_from([0, 1000]),
)


@given(tariffs, st.lists(st.floats(0, 9000), min_size=1, max_size=8))
@settings(max_examples=150)
def test_many_durations_at_once_cost_what_each_costs_alone(offer, hours) -> None:
    together = charges(offer, np.array(hours))
    alone = [float(charge(offer, Decimal(repr(h))).total) for h in hours]
    assert together == pytest.approx(alone, rel=1e-9)


@given(tariffs, st.floats(0.01, 5000), st.floats(0, 500))
@settings(max_examples=150)
def test_more_hours_never_cost_less_and_parts_sum_to_the_charge(offer, hours, more) -> None:
    less, longer = (charge(offer, Decimal(repr(h))) for h in (hours, hours + more))
    assert less.total <= longer.total * Decimal("1.000000001")
    assert min(less.used, less.rounding, less.unused_term, less.upfront) >= -Decimal("1e-9")
    assert less.used <= less.total


def test_an_owned_machine_hour_by_item() -> None:
    owned = OwnedHardware(
        purchase=twd(9_500_000),
        resale=Decimal(500_000),
        lifetime_hours=4 * 8760,
        power_kw=Decimal("10.2"),
        idle_power_kw=Decimal("2.5"),
        pue=Decimal("1.5"),
        electricity_per_kwh=twd("4.5"),
        rack_per_month=Decimal(30_000),
        cooling_per_month=Decimal(7200),
        staff_per_month=Decimal(120_000),
        staff_share=Decimal("0.2"),
        utilization=Decimal("0.5"),
    )
    items = {name: money.amount for name, money in hourly_items(owned)}
    # 9,000,000 / (35,040 h x 0.5) = 513.70
    assert items["depreciation"] == pytest.approx(Decimal("513.70"), abs=Decimal("0.01"))
    # (10.2 + 2.5 x 0.5 / 0.5) kW x 1.5 x 4.5 = 85.725
    assert items["energy"] == Decimal("85.725")
    # 7,200 / (720 x 0.5) = 20; 30,000 / 360 = 83.33; 120,000 x 0.2 / 360 = 66.67
    assert items["cooling"] == 20
    assert round(items["rack"], 2) == Decimal("83.33")
    assert round(items["staff"], 2) == Decimal("66.67")
    assert hourly_price(hourly_items(owned)).amount == sum(items.values())


def test_a_machine_that_is_used_more_costs_less_an_hour() -> None:
    prices = [
        hourly_price(
            hourly_items(
                OwnedHardware(
                    purchase=twd(1_000_000), lifetime_hours=8760, power_kw=Decimal(1),
                    electricity_per_kwh=twd(5), utilization=Decimal(share) / 10,
                )
            )
        ).amount
        for share in range(1, 11)
    ]  # fmt: skip
    assert prices == sorted(prices, reverse=True)


def test_break_even_of_120_an_hour_and_50000_a_month() -> None:
    found = break_even(
        hourly(120), monthly(50_000), num_accelerators=1, horizon_hours=Decimal(1440)
    )
    # 50,000 / 120 = 416.67 h: from 417 h on the month is cheaper, until the second one is begun
    # at 720 h, when two months cost 100,000 and 720 h only 86,400; that is even at 833.3 h
    assert found.cheaper_at_first == 0
    assert [(round(c.hours, 1), c.cheaper) for c in found.crossings] == [
        (Decimal("416.7"), 1),
        (Decimal("720.0"), 0),
        (Decimal("833.3"), 1),
    ]
    assert round(found.hours, 1) == Decimal("416.7")
    assert math.ceil(found.hours) == 417
    at_hundred = min(found.points, key=lambda point: abs(point.hours - 96))
    assert at_hundred.first.amount == 120 * at_hundred.hours
    assert at_hundred.second.amount == 50_000


def test_break_even_of_two_currencies_needs_a_rate() -> None:
    usd = replace(hourly(4), price=Money(amount=Decimal(4), currency="USD"))
    asked = {"num_accelerators": 1, "horizon_hours": Decimal(720)}
    assert break_even(usd, monthly(50_000), **asked) is None
    rate = ExchangeRate(
        base="USD", quote="TWD", rate=Decimal(32), as_of=date(2026, 11, 2), source="s"
    )
    # 50,000 TWD / 32 = 1,562.5 USD; / 4 = 390.6 h
    found = break_even(usd, monthly(50_000), rates=[rate], **asked)
    assert round(found.hours, 1) == Decimal("390.6")


@given(tariffs, tariffs, st.integers(1, 8), st.integers(100, 3000))
@settings(max_examples=60, deadline=None)
def test_between_two_crossings_the_cheaper_offer_is_cheaper(first, second, cards, horizon) -> None:
    found = break_even(first, second, num_accelerators=cards, horizon_hours=Decimal(horizon))
    plain = [
        replace(o, billing=replace(o.billing, minimum_s=0, increment_s=0)) for o in (first, second)
    ]
    for number in range(1, 40):
        hours = Decimal(horizon) * number / 40
        cheaper = found.cheaper_at_first
        for crossing in found.crossings:
            if crossing.hours < hours:
                cheaper = crossing.cheaper
        costs = [charge(o, hours).total for o in plain]
        if cheaper is not None:
            assert costs[cheaper] <= costs[1 - cheaper] * Decimal("1.0000001")
