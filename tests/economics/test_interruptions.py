"""Spot interruptions: the renewal formula against runs that are played out minute by minute."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.economics.interruptions import (
    interrupted,
    likely_paid_hours,
    simulate_interrupted,
    spot_run,
)
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import Interruptions, Money, Offer


def played(
    rng: random.Random, *, work: int, segment: int, every: float, restart: int, wait: int
) -> tuple[int, int, int]:
    """One run, minute by minute: charged minutes, minutes on the clock, interruptions.

    Every minute with a machine it goes away with a small chance; nothing is computed ahead.
    """
    paid = clock = gone = 0
    kept = since = starting = 0
    while kept + since < work:
        paid += 1
        clock += 1
        if rng.random() < 1 / every:
            gone += 1
            since, starting = 0, restart
            clock += wait
            continue
        if starting:
            starting -= 1
            continue
        since += 1
        if since == segment:
            kept, since = kept + since, 0
    return paid, clock, gone


def test_formula_and_drawing_agree_with_runs_played_out_minute_by_minute() -> None:
    # 20 h of work, a checkpoint every 2 h, an interruption every 5 h on average, 15 min to start
    # again and 30 min until there is a machine; the step of a minute shifts it by under 1 %.
    rng = random.Random(7)  # noqa: S311 - for drawing, not for secrets
    runs = [
        played(rng, work=1200, segment=120, every=300.0, restart=15, wait=30) for _ in range(3000)
    ]
    paid, clock, gone = (np.array(column) for column in zip(*runs, strict=True))
    found = interrupted(
        work_hours=20, segment_hours=2, every_hours=5, restart_hours=0.25, wait_hours=0.5
    )
    assert found.paid_hours * 60 == pytest.approx(paid.mean(), rel=0.015)
    assert found.clock_hours * 60 == pytest.approx(clock.mean(), rel=0.015)
    assert found.interruptions == pytest.approx(gone.mean(), rel=0.03)
    assert math.sqrt(found.paid_variance) * 60 == pytest.approx(paid.std(), rel=0.05)
    assert math.sqrt(found.clock_variance) * 60 == pytest.approx(clock.std(), rel=0.05)
    drawn_paid, drawn_clock = simulate_interrupted(
        np.random.default_rng(3),
        np.full(20_000, 20.0),
        segment_hours=2,
        every_hours=5,
        restart_hours=0.25,
        wait_hours=0.5,
    )
    assert drawn_paid.mean() == pytest.approx(found.paid_hours, rel=0.005)
    assert drawn_clock.mean() == pytest.approx(found.clock_hours, rel=0.005)
    assert drawn_paid.std() == pytest.approx(math.sqrt(found.paid_variance), rel=0.03)
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(drawn_paid, share) * 60 == pytest.approx(
            np.quantile(paid, share), rel=0.02
        )


def test_the_mean_is_daly_s() -> None:
    # m (exp(s/m) - 1) exp(r/m) for each of 10 segments: 5 (e^0.4 - 1) e^0.05 x 10 = 25.85 h
    found = interrupted(work_hours=20, segment_hours=2, every_hours=5, restart_hours=0.25)
    by_hand = 10 * 5 * (math.exp(2 / 5) - 1) * math.exp(0.25 / 5)
    assert found.paid_hours == pytest.approx(by_hand)
    assert found.paid_hours == pytest.approx(25.85, abs=0.01)
    # With a machine, interruptions come every 5 h: 25.85 / 5 = 5.17 of them (Wald).
    assert found.interruptions == pytest.approx(found.paid_hours / 5)


@given(
    st.floats(0.5, 200), st.floats(0.05, 50), st.floats(2, 1000), st.floats(0, 1), st.floats(0, 2)
)
@settings(max_examples=60)
def test_interruptions_never_help(work, segment, every, restart, wait) -> None:
    found = interrupted(
        work_hours=work,
        segment_hours=segment,
        every_hours=every,
        restart_hours=restart,
        wait_hours=wait,
    )
    assert found.paid_hours >= work * (1 - 1e-9)
    assert found.clock_hours >= found.paid_hours * (1 - 1e-9)
    assert found.paid_variance >= 0
    assert found.interruptions * every == pytest.approx(found.paid_hours, rel=1e-6)


@given(st.floats(1, 50), st.floats(3, 100))
@settings(max_examples=40)
def test_more_checkpoints_lose_less_work(work, every) -> None:
    seldom, often = (
        interrupted(work_hours=work, segment_hours=work / n, every_hours=every, restart_hours=0.1)
        for n in (1, 4)
    )
    assert often.paid_hours <= seldom.paid_hours * (1 + 1e-9)


def test_a_run_without_a_checkpoint_begins_again_from_the_start() -> None:
    # 10 h in one piece, an interruption every 5 h: 5 (e^2 - 1) = 31.9 h
    found = interrupted(work_hours=10, segment_hours=100, every_hours=5, restart_hours=0)
    assert found.paid_hours == pytest.approx(5 * (math.exp(2) - 1))
    assert not interrupted(work_hours=100, segment_hours=100, every_hours=5, restart_hours=0).ends


def test_two_instances_go_twice_as_often() -> None:
    offer = Offer(
        provider="X", name="spot", accelerator="chip", num_accelerators=8,
        price=Money(amount=Decimal(10), currency="USD"), region=None, interruptible=True,
        as_of=date(2026, 11, 2), source="s",
        interruptions=Interruptions(every_hours=10, restart_hours=0.25, wait_hours=0.5),
    )  # fmt: skip
    hours = Estimate(low=18, likely=20, high=25)
    one, two = (spot_run(offer, num_instances=n, hours=hours, checkpoint_hours=2) for n in (1, 2))
    expected = interrupted(
        work_hours=20, segment_hours=2, every_hours=5, restart_hours=0.25, wait_hours=0.5
    )
    assert two.paid_hours.likely == pytest.approx(expected.paid_hours)
    assert two.clock_hours.likely == pytest.approx(expected.clock_hours)
    assert one.paid_hours.likely < two.paid_hours.likely
    assert one.paid_hours.low >= hours.low
    many = likely_paid_hours(offer, np.array([20.0, 7.0]), np.array([2.0, 3.0]), num_instances=2)
    seven = interrupted(work_hours=7, segment_hours=3, every_hours=5, restart_hours=0.25)
    assert many == pytest.approx([two.paid_hours.likely, seven.paid_hours])
