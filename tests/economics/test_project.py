"""The hours of a project, and the drawing of its cases, against closed forms."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.economics.project import (
    P90_SCORE,
    Phase,
    Span,
    Work,
    drivers,
    exactly,
    hours_of,
    run_hours_at,
)
from tuneplan.economics.simulation import draw, median_values, quantiles, tornado
from tuneplan.spec.answer import Estimate


def known(hours: float) -> Estimate:
    return Estimate(low=hours, likely=hours, high=hours)


def total_hours(work: Work, cases) -> np.ndarray:
    hours = hours_of(work, cases.values, cases.lost_share)
    return sum(part.rented() for part in hours.values())


def test_sixty_hours_with_three_iterations_of_the_data() -> None:
    # set-up 4 h; 5 experiments of a fifth of 6 h = 6 h; 2 more hours of sweeps (4 x 1/12 x 6);
    # 3 x 6 h x 2 = 36 h of main runs, 3 x 1 h of evaluation; hand-over 1 h
    work = Work(
        run_hours=known(6), num_experiments=5, experiment_fraction=exactly(0.2),
        num_sweep_runs=4, sweep_fraction=exactly(1 / 12), data_iterations=3,
        retry_factor=exactly(2), evaluation_hours=exactly(1), setup_hours=exactly(4),
    )  # fmt: skip
    found = hours_of(work, median_values(work))
    assert found[Phase.PROOF_OF_CONCEPT].rented()[0] == pytest.approx(4 + (6 + 2) * 2)
    assert found[Phase.MAIN].rented()[0] == pytest.approx(36 + 3)
    assert found[Phase.HAND_OVER].rented()[0] == pytest.approx(1)
    total = sum(part.rented()[0] for part in found.values())
    assert total == pytest.approx(60)
    assert total * 120 == pytest.approx(7200)  # 60 h x NT$120 = NT$7,200


def test_idle_time_is_rented_and_set_up_is_not_stretched_by_it() -> None:
    work = Work(run_hours=known(9), idle_fraction=exactly(0.1), setup_hours=exactly(3))
    found = hours_of(work, median_values(work))
    # 9 h of work in 10 h of rental
    assert found[Phase.MAIN].rented()[0] == pytest.approx(10)
    assert found[Phase.PROOF_OF_CONCEPT].rented()[0] == pytest.approx(3)


def test_percentiles_of_uniform_retries_are_those_of_the_closed_form() -> None:
    # 10 h x 4 runs x U(1.5, 3): P50 = 40 x 2.25 = 90, P80 = 40 x 2.7 = 108, P95 = 40 x 2.925 = 117
    work = Work(run_hours=known(10), data_iterations=4, retry_factor=Span(low=1.5, high=3))
    (cases,) = draw(np.random.default_rng(1), [work], 100_000)
    found = quantiles(total_hours(work, cases))
    assert found.p50 == pytest.approx(90, rel=0.005)
    assert found.p80 == pytest.approx(108, rel=0.005)
    assert found.p95 == pytest.approx(117, rel=0.005)
    assert found.mean == pytest.approx(90, rel=0.005)


def test_percentiles_of_uncertain_hours_are_those_of_a_lognormal() -> None:
    # hours 10 x 1.3^(z / 1.28): P80 = 10 x 1.3^(0.8416 / 1.2816) = 11.88, P95 = 14.00
    hours = Estimate(low=10 / 1.3, likely=10, high=13)
    work = Work(run_hours=hours)
    (cases,) = draw(np.random.default_rng(1), [work], 100_000)
    found = quantiles(total_hours(work, cases))
    for share, value in ((0.5, found.p50), (0.8, found.p80), (0.95, found.p95)):
        score = NormalDist().inv_cdf(share) / P90_SCORE
        assert value == pytest.approx(10 * 1.3**score, rel=0.005)
    assert found.p80 == pytest.approx(11.88, abs=0.06)


def test_a_range_with_unlike_sides_keeps_its_three_points() -> None:
    hours = Estimate(low=8, likely=10, high=20)
    at = run_hours_at(hours, np.array([-P90_SCORE, 0, P90_SCORE]))
    assert at == pytest.approx([8, 10, 20])


def test_the_same_seed_gives_the_same_cases_and_another_does_not() -> None:
    work = Work(
        run_hours=Estimate(low=5, likely=6, high=8), retry_factor=Span(low=1, high=3),
        failure_fraction=Span(low=0, high=0.3), num_experiments=6,
    )  # fmt: skip
    one, two, other = (
        quantiles(total_hours(work, draw(np.random.default_rng(seed), [work], 2000)[0]))
        for seed in (5, 5, 6)
    )
    assert one == two
    assert one != other


def test_more_draws_come_nearer_to_the_closed_form() -> None:
    # P80 of U(1.5, 3) is 2.7; the error over 40 seeds falls as one over the root of the draws
    work = Work(run_hours=known(1), retry_factor=Span(low=1.5, high=3))

    def error(draws: int) -> float:
        found = [
            quantiles(total_hours(work, draw(np.random.default_rng(seed), [work], draws)[0])).p80
            for seed in range(40)
        ]
        return float(np.sqrt(np.mean((np.array(found) - 2.7) ** 2)))

    rough, fine = error(500), error(8000)
    assert fine < rough / 2.5  # a quarter is expected
    # sqrt(0.8 x 0.2 / 8000) / density (1 / 1.5) = 0.0067
    assert fine == pytest.approx(0.0067, rel=0.4)


def test_failures_lose_half_a_run_each_on_average() -> None:
    # 100 runs of 2 h, one in ten fails half-way on average: 200 + 100 x 0.1 x 0.5 x 2 = 210 h
    work = Work(run_hours=known(2), data_iterations=100, failure_fraction=exactly(0.1))
    (cases,) = draw(np.random.default_rng(2), [work], 20_000)
    drawn = total_hours(work, cases)
    assert drawn.mean() == pytest.approx(210, rel=0.001)
    # variance of a sum of a binomial number of uniform losses: n (p E[u^2] - (p E[u])^2) x 4
    variance = 100 * (0.1 / 3 - (0.1 / 2) ** 2) * 4
    assert drawn.std() == pytest.approx(math.sqrt(variance), rel=0.03)
    expected = sum(part.rented()[0] for part in hours_of(work, median_values(work)).values())
    assert expected == pytest.approx(210)
    many = Work(run_hours=known(1), data_iterations=2000, failure_fraction=exactly(0.5))
    (cases,) = draw(np.random.default_rng(2), [many], 2000)
    assert total_hours(many, cases).mean() == pytest.approx(2500, rel=0.002)


def test_the_tornado_names_the_figure_that_moves_the_total_most() -> None:
    work = Work(
        run_hours=Estimate(low=9, likely=10, high=11), retry_factor=Span(low=1, high=3),
        num_experiments=2, experiment_fraction=Span(low=0.1, high=0.2),
    )  # fmt: skip

    def total(values):
        return sum(part.rented() for part in hours_of(work, values[0]).values())

    found = tornado([work], total)
    assert [driver.name for driver in found] == [
        "retry_factor",
        "run_hours",
        "experiment_fraction",
    ]
    # retries at 1.2 and 2.8 (P10 and P90 of 1 to 3), 10 h and 2 x 0.15 x 10 h of experiments
    assert found[0].total_at_low == pytest.approx(13 * 1.2)
    assert found[0].total_at_high == pytest.approx(13 * 2.8)
    assert (found[0].low, found[0].high) == pytest.approx((1.2, 2.8))
    assert found[1].total_at_high == pytest.approx(1.3 * 11 * 2)


def test_what_does_not_matter_is_no_driver() -> None:
    work = Work(run_hours=known(1), sweep_fraction=Span(low=0.1, high=0.2))
    assert drivers(work) == ()


def test_jobs_share_the_error_of_the_estimate_and_nothing_else() -> None:
    hours = Estimate(low=5, likely=6, high=8)
    work = Work(run_hours=hours, retry_factor=Span(low=1, high=3))
    one, two = draw(np.random.default_rng(3), [work, work], 500)
    assert one.values["run_hours"] == pytest.approx(two.values["run_hours"])
    assert abs(np.corrcoef(one.values["retry_factor"], two.values["retry_factor"])[0, 1]) < 0.15


spans = st.tuples(st.floats(0, 0.9), st.floats(0, 0.9)).map(
    lambda ends: Span(low=min(ends), high=max(ends))
)


@given(spans, spans, st.integers(0, 5), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_cases_lie_where_the_figures_allow(fraction, idle, experiments, iterations) -> None:
    work = Work(
        run_hours=Estimate(low=1, likely=2, high=3), num_experiments=experiments,
        experiment_fraction=fraction, data_iterations=iterations, idle_fraction=idle,
    )  # fmt: skip
    (cases,) = draw(np.random.default_rng(0), [work], 200)
    for hours in hours_of(work, cases.values, cases.lost_share).values():
        assert (hours.rented() >= hours.busy * (1 - 1e-12)).all()
        assert (hours.busy >= 0).all()
