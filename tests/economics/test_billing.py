"""Money for hours."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.economics.billing import break_even_hours, compare, cost_of
from tuneplan.economics.money import convert
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import ExchangeRate, Money, Offer


def usd(amount) -> Money:
    return Money(amount=Decimal(amount), currency="USD")


def twd(amount) -> Money:
    return Money(amount=Decimal(amount), currency="TWD")


def offer(price: Money, *, count: int = 1, **other) -> Offer:
    return Offer(
        provider=other.pop("provider", "X"),
        name="n",
        accelerator="chip",
        num_accelerators=count,
        price=price,
        region=None,
        interruptible=False,
        as_of=date(2026, 11, 2),
        source="s",
        **other,
    )


def exactly(hours: float) -> Estimate:
    return Estimate(low=hours, likely=hours, high=hours)


def test_sixty_hours_at_120_dollars_taiwan() -> None:
    # 60 h x NT$120 = NT$7,200
    assert cost_of(offer(twd(120)), num_accelerators=1, hours=exactly(60)).total.likely == twd(7200)


def test_gpu_hours_are_what_is_paid_not_the_clock() -> None:
    # 4 GPUs x 6 h = 8 GPUs x 3 h = 24 GPU-hours
    four = cost_of(offer(usd(2)), num_accelerators=4, hours=exactly(6))
    eight = cost_of(offer(usd(2)), num_accelerators=8, hours=exactly(3))
    assert four.total.likely == eight.total.likely == usd(48)


def test_whole_instances_are_rented_and_the_idle_share_is_an_item() -> None:
    # 3 cards on an 8-card node at 80 USD/h for 2 h: 160 USD, of which 3/8 = 60 are used.
    cost = cost_of(offer(usd(80), count=8), num_accelerators=3, hours=exactly(2))
    assert (cost.num_instances, cost.num_accelerators) == (1, 8)
    assert cost.total.likely == usd(160)
    items = {item.name: item.amount.likely.amount for item in cost.items}
    assert items == {"used": Decimal(60), "unused_accelerators": Decimal(100)}


def test_a_month_is_paid_whole() -> None:
    month = offer(
        Money(amount=Decimal(350_000) / 720, currency="TWD"),
        count=8,
        term_hours=720,
        term_price=twd(350_000),
    )
    one_day = cost_of(month, num_accelerators=8, hours=exactly(24))
    assert one_day.total.likely == twd(350_000)
    assert cost_of(month, num_accelerators=8, hours=exactly(721)).total.likely == twd(700_000)
    items = {item.name: item.amount.likely.amount for item in one_day.items}
    # 24 / 720 of the month is used
    assert items["used"] == pytest.approx(Decimal(350_000) / 30)
    assert items["unused_term"] == pytest.approx(Decimal(350_000) * 29 / 30)


def test_break_even_of_hourly_and_monthly() -> None:
    # NT$50,000 / NT$120 = 416.7 h
    hours = break_even_hours(hourly=twd(120), monthly=twd(50_000))
    assert round(hours, 1) == Decimal("416.7")
    assert math.ceil(hours) == 417  # from hour 417 on the month is cheaper
    with pytest.raises(ValueError, match="no break-even"):
        break_even_hours(hourly=usd(3), monthly=twd(50_000))


amounts = st.decimals(min_value="0.01", max_value="500", places=2)
counts = st.integers(min_value=1, max_value=64)
hours_strategy = st.floats(min_value=0.01, max_value=5000)
estimates = st.lists(hours_strategy, min_size=3, max_size=3).map(
    lambda hours: Estimate(low=min(hours), likely=sorted(hours)[1], high=max(hours))
)


@given(amounts, counts, counts, estimates)
def test_twice_the_price_is_twice_the_cost(price, size, cards, hours) -> None:
    one = cost_of(offer(usd(price), count=size), num_accelerators=cards, hours=hours)
    two = cost_of(offer(usd(2 * price), count=size), num_accelerators=cards, hours=hours)
    assert two.total.likely.amount == pytest.approx(2 * one.total.likely.amount)
    assert two.total.high.amount == pytest.approx(2 * one.total.high.amount)


@given(amounts, counts, counts, estimates)
def test_whole_instances_are_never_cheaper_than_the_used_share(price, size, cards, hours) -> None:
    cost = cost_of(offer(usd(price), count=size), num_accelerators=cards, hours=hours)
    share = usd(price).amount / size * cards
    assert cost.total.likely.amount >= share * Decimal(repr(hours.likely)) * Decimal("0.999999999")
    assert cost.num_accelerators >= cards
    assert cost.num_accelerators - cards < size


@given(amounts, counts, counts, estimates, st.sampled_from([0, 24, 720]))
def test_items_sum_to_the_total_and_the_range_is_ordered(price, size, cards, hours, term) -> None:
    rented = offer(usd(price), count=size, term_hours=term)
    cost = cost_of(rented, num_accelerators=cards, hours=hours)
    for edge in ("low", "likely", "high"):
        total = getattr(cost.total, edge).amount
        items = sum(getattr(item.amount, edge).amount for item in cost.items)
        assert float(items) == pytest.approx(float(total), rel=1e-12, abs=1e-12)
        assert all(getattr(item.amount, edge).amount >= -Decimal("1e-15") for item in cost.items)
    assert cost.total.low.amount <= cost.total.likely.amount <= cost.total.high.amount


@given(st.permutations([usd(3), usd(1), twd(20), usd(2)]))
def test_comparison_does_not_depend_on_the_order(prices) -> None:
    costs = [cost_of(offer(p), num_accelerators=1, hours=exactly(1)) for p in prices]
    found = compare(costs, currency="USD")
    assert [total.likely for _, total in found.ranked] == [usd(1), usd(2), usd(3)]
    (aside,) = found.incomparable
    assert aside.reason.code == "currency_without_rate"


def test_currencies_are_compared_by_a_dated_rate_only() -> None:
    old = ExchangeRate(
        base="TWD", quote="USD", rate=Decimal("0.03"), as_of=date(2026, 1, 1), source="s"
    )
    new = replace(old, rate=Decimal("0.032"), as_of=date(2026, 11, 1))
    assert convert(twd(1000), "USD", [new, old]) == usd("32.000")
    assert convert(usd(32), "TWD", [old, new]) == twd(1000)
    assert convert(twd(1), "EUR", [new]) is None
    costs = [cost_of(offer(twd(100)), num_accelerators=1, hours=exactly(1))]
    found = compare(costs, currency="USD", rates=[old, new])
    assert found.ranked[0][1].likely == usd("3.200")


def test_cards_that_cost_nothing_compare_in_any_currency() -> None:
    free = cost_of(offer(usd(0), on_hand=True), num_accelerators=1, hours=exactly(5))
    assert compare([free], currency="TWD").ranked[0][1].likely == twd(0)


@pytest.mark.parametrize(
    ("amount", "shown"), [("1.482177315675", "1.48 USD"), ("12345", "12,345.00 USD"),
                          ("0.00123", "0.0012 USD"), ("-2.5", "-2.50 USD")]
)  # fmt: skip
def test_an_amount_prints_as_people_write_it(amount: str, shown: str) -> None:
    assert str(Money(amount=Decimal(amount), currency="USD")) == shown
