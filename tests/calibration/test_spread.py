"""Tails of the distance between measured and likely."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.estimation.spread import OUTSIDE, Spread, Tail
from tuneplan.spec.answer import Estimate

shares = st.floats(0.02, 0.98)
shapes = st.floats(1.0, 200.0)
scales = st.floats(1e-4, 5.0)


def spread(share: float, shape: float, scale: float) -> Spread:
    return Spread(
        below=Tail(share=1 - share, shape=shape, scale=scale),
        above=Tail(share=share, shape=shape, scale=2 * scale),
    )


@given(shares, shapes, scales)
def test_a_tenth_lies_beyond_each_end_of_the_range(share, shape, scale):
    tail = Tail(share=share, shape=shape, scale=scale)
    if share > OUTSIDE:
        assert tail.beyond(tail.reach()) == pytest.approx(OUTSIDE)
    else:
        assert tail.reach() == 0.0  # the side is too rare to have a tenth


@given(shares, shapes, scales, st.floats(0.01, 4.0), st.floats(0.01, 4.0))
def test_a_higher_edge_is_never_less_probable(share, shape, scale, one, other):
    value = Estimate(low=0.8, likely=1.0, high=1.3)
    found = spread(share, shape, scale)
    low, high = sorted((one, other))
    assert found.probability_below(value, low) <= found.probability_below(value, high) + 1e-12
    assert 0.0 <= found.probability_below(value, one) <= 1.0


def test_the_ends_of_the_range_are_p10_and_p90_of_the_same_distribution():
    value = Estimate(low=0.8, likely=1.0, high=1.3)
    found = spread(0.5, 12.0, 0.1)
    assert found.probability_below(value, 1.3) == pytest.approx(0.9)
    assert found.probability_below(value, 0.8) == pytest.approx(0.1)
    assert found.probability_below(value, 1.0) == pytest.approx(0.5)


def test_many_observations_make_a_laplace_tail():
    """P(d) = 1/2 exp(-d / b): P90 at b ln 5."""
    many = Tail(share=0.5, shape=1e7, scale=1e7 * 0.02)
    assert many.reach() == pytest.approx(0.02 * math.log(5), rel=1e-4)


def test_few_observations_reach_further_than_many():
    few = Tail(share=0.5, shape=4.0, scale=4.0 * 0.02)
    assert few.reach() > 1.1 * 0.02 * math.log(5)
