"""Energy and CO2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.economics.energy import (
    DRAW_FRACTION,
    HOST_FRACTION,
    PUE,
    CarbonIntensity,
    energy_of,
    product,
)
from tuneplan.spec.answer import Basis, Estimate


def exactly(value: float, basis: Basis = Basis.ANALYTIC) -> Estimate:
    return Estimate(low=value, likely=value, high=value, basis=basis)


def test_energy_is_the_product_of_its_factors() -> None:
    # 8 x 700 W x 10 h = 56 kWh at the board's limit; x 0.75 x 1.3 x 1.3 = 70.98 kWh
    found = energy_of(power_w=700, num_accelerators=8, hours=exactly(10))
    assert found.energy_kwh.likely == pytest.approx(56 * 0.75 * 1.3 * 1.3)
    assert found.energy_kwh.low < found.energy_kwh.likely < found.energy_kwh.high
    assert found.energy_kwh.basis is Basis.ASSUMED
    assert found.co2_kg is None
    assert [a.name for a in found.assumptions] == [
        "energy.draw_fraction",
        "energy.host_fraction",
        "energy.pue",
    ]


def test_co2_follows_the_grid() -> None:
    carbon = CarbonIntensity(grams_per_kwh=exactly(56.0), region="France", source="s")
    found = energy_of(
        power_w=1000,
        num_accelerators=1,
        hours=exactly(100),
        carbon=carbon,
        draw_fraction=exactly(1),
        host_fraction=exactly(0),
        pue=exactly(1),
    )
    # 100 kWh x 56 g = 5.6 kg
    assert found.energy_kwh.likely == pytest.approx(100)
    assert found.co2_kg is not None
    assert found.co2_kg.likely == pytest.approx(5.6)
    assert len(found.assumptions) == 4


def test_the_range_is_narrower_than_all_low_or_all_high() -> None:
    hours = Estimate(low=8, likely=10, high=14)
    found = energy_of(power_w=700, num_accelerators=8, hours=hours).energy_kwh
    worst = 5.6 * DRAW_FRACTION.high * (1 + HOST_FRACTION.high) * PUE.high * 14
    assert found.high < worst


positive = st.floats(min_value=0.01, max_value=1e4)


@given(positive, positive, st.integers(min_value=1, max_value=1000))
def test_energy_scales_with_cards_and_hours(power, hours, cards) -> None:
    one = energy_of(power_w=power, num_accelerators=1, hours=exactly(hours)).energy_kwh
    many = energy_of(power_w=power, num_accelerators=cards, hours=exactly(2 * hours)).energy_kwh
    assert many.likely == pytest.approx(2 * cards * one.likely)
    assert many.high == pytest.approx(2 * cards * one.high)


@given(st.lists(st.lists(positive, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_product_keeps_its_order(values) -> None:
    factors = []
    for three in values:
        low, likely, high = sorted(three)
        factors.append(Estimate(low=low, likely=likely, high=high))
    found = product(*factors)
    assert found.low <= found.likely <= found.high


def test_a_factor_that_may_be_zero_is_allowed() -> None:
    found = product(Estimate(low=0, likely=1, high=2), exactly(3))
    assert (found.low, found.likely, found.high) == (0, 3, 6)
    assert product(exactly(0), exactly(5)).high == 0
