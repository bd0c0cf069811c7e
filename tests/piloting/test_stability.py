"""When a pilot is steady, and how far its step time may be off."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.piloting.batches import pilot_lengths
from tuneplan.piloting.stability import FEWEST_STEPS, steadiness, step_range, warm_up_of
from tuneplan.spec.data import TokenStatistics


def test_the_warm_up_ends_where_steps_are_as_fast_as_the_rest() -> None:
    assert warm_up_of([9.0, 4.0, 2.0, 1.0, 1.02, 0.99, 1.0, 1.01]) == 3
    assert warm_up_of([1.0] * 10) == 2


def test_seconds_of_a_token_do_not_depend_on_the_lengths_of_batches() -> None:
    tokens = [100.0, 400.0, 200.0, 300.0, 100.0, 400.0, 250.0]
    found = steadiness([0.01 * count for count in tokens], tokens)
    assert found.seconds_per_token == pytest.approx(0.01)
    assert found.relative_error == pytest.approx(0, abs=1e-9)
    assert found.stable
    assert step_range(found, 1000).likely == pytest.approx(10)


def test_steps_that_get_slower_and_slower_are_not_steady() -> None:
    assert not steadiness([1.0 + 0.1 * step for step in range(20)], [1.0] * 20).stable


def test_too_few_steps_are_not_steady() -> None:
    count = FEWEST_STEPS + 1
    assert not steadiness([1.0] * count, [1.0] * count).stable
    assert steadiness([1.0] * (count + 1), [1.0] * (count + 1)).stable


def test_the_interval_holds_the_truth_four_times_of_five() -> None:
    """2,000 pilots of 14 steps with 5 % noise: the true rate is 1."""
    generator = random.Random(11)  # noqa: S311 - noise
    inside = 0
    for _ in range(2000):
        steps = [generator.gauss(1.0, 0.05) for _ in range(14)]
        found = steadiness(steps, [1.0] * 14)
        span = step_range(found, 1.0)
        inside += span.low <= 1.0 <= span.high
    assert 0.72 <= inside / 2000 <= 0.86


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(1, 10**6)), min_size=1, max_size=40))
def test_any_steps_can_be_judged(steps: list[tuple[float, int]]) -> None:
    found = steadiness([seconds for seconds, _ in steps], [float(count) for _, count in steps])
    assert found.seconds_per_token > 0
    assert 0 <= found.warm_up_steps < len(steps)
    span = step_range(found, 100)
    assert span.low <= span.likely <= span.high


def test_the_worst_micro_batch_is_first_and_the_rest_is_a_fair_sample() -> None:
    lengths = tuple(range(1, 1001))
    statistics = TokenStatistics(
        num_samples=1000, total_tokens=sum(lengths), quantiles={}, lengths=lengths
    )
    batches = pilot_lengths(
        statistics,
        rows=4,
        max_length=900,
        worst_length=900,
        packing=False,
        num_micro_batches=51,
    )
    assert batches[0] == (900, 900, 900, 900)
    rest = [length for rows in batches[1:] for length in rows]
    assert len(rest) == 200
    # Cut at 900: the mean of 1..900 and a hundred times 900 is 495.45.
    assert sum(rest) / len(rest) == pytest.approx(495.45, rel=0.01)
    assert sum(length == 900 for length in rest) == pytest.approx(20, abs=1)


def test_the_worst_micro_batch_comes_again_once_there_are_optimizer_states() -> None:
    statistics = TokenStatistics(num_samples=10, total_tokens=500, quantiles={0.5: 30.0})
    settings = {"rows": 2, "max_length": 512, "worst_length": 400, "packing": False}
    # Two micro-batches a step: the third belongs to the second step.
    batches = pilot_lengths(statistics, **settings, num_micro_batches=6, again_at=2)
    assert [number for number, one in enumerate(batches) if one == (400, 400)] == [0, 2]
    assert len(batches) == 6
    alone = pilot_lengths(statistics, **settings, num_micro_batches=2, again_at=2)
    assert alone[0] == (400, 400)
    assert len(alone) == 2


@given(
    st.integers(1, 8),
    st.integers(1, 4096),
    st.integers(1, 30),
    st.dictionaries(st.sampled_from([0.1, 0.5, 0.9, 1.0]), st.floats(1, 10_000)),
)
def test_every_row_has_a_length_that_the_job_allows(
    rows: int, max_length: int, micro_batches: int, quantiles: dict[float, float]
) -> None:
    ordered = dict(zip(sorted(quantiles), sorted(quantiles.values()), strict=True))
    statistics = TokenStatistics(num_samples=10, total_tokens=5000, quantiles=ordered)
    batches = pilot_lengths(
        statistics,
        rows=rows,
        max_length=max_length,
        worst_length=max_length,
        packing=False,
        num_micro_batches=micro_batches,
    )
    assert len(batches) == micro_batches
    assert all(len(one) == rows for one in batches)
    assert all(1 <= length <= max_length for one in batches for length in one)


def test_packed_rows_are_full() -> None:
    statistics = TokenStatistics(num_samples=10, total_tokens=5000, quantiles={0.5: 30.0})
    batches = pilot_lengths(
        statistics,
        rows=2,
        max_length=512,
        worst_length=512,
        packing=True,
        num_micro_batches=3,
    )
    assert batches == ((512, 512),) * 3
