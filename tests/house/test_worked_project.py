"""The worked project of the docs: its job files, and what the page says in words."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuneplan.contract.reading import load_job
from tuneplan.planner.budget import budget_jobs
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import sources_for
from tuneplan.report.budget_answer import budget_answer
from tuneplan.spec.stated import StatedJob
from tuneplan.units import HOUR_S

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = date(2026, 11, 30)


def job(name: str, **overrides: Any) -> StatedJob:
    return load_job(EXAMPLES / name, overrides=overrides)


def estimated(stated: StatedJob) -> JobEstimate:
    return estimate_job(stated, sources_for(stated, today=DAY))


def hours(estimate: JobEstimate) -> tuple[float, float, float]:
    total = estimate.total_s
    assert total is not None
    return (total.low / HOUR_S, total.likely / HOUR_S, total.high / HOUR_S)


def budget(stated: StatedJob) -> Any:
    found = budget_jobs(
        [(stated, sources_for(stated, today=DAY))],
        generator=np.random.default_rng(0),
        draws=2_000,
        seed=0,
    )
    return budget_answer(found, as_of=DAY.isoformat())


def test_the_six_hours_of_the_field_report_are_within_the_range_at_1500_tokens() -> None:
    longer = job("worked_chat.yaml", **{"data.quantiles": None, "data.mean_tokens": 1500})
    low, likely, high = hours(estimated(longer))
    assert low < 6 < high
    assert likely == pytest.approx(6, rel=0.1)
    as_stated = hours(estimated(job("worked_chat.yaml")))
    assert as_stated[1] == pytest.approx(likely * 850 / 1500, rel=0.1)


def test_sixty_hours_are_about_the_median_of_the_project() -> None:
    answer = budget(job("worked_chat.yaml"))
    assert answer.rented_hours.p50 == pytest.approx(60, rel=0.1)
    # 60 h x NT$120 = NT$7,200
    assert float(answer.money.p50.amount) == pytest.approx(7_200, rel=0.1)
    assert answer.rented_hours.p80 > 60


def test_four_cards_and_eight_hold_the_large_model_and_the_clock_is_halved() -> None:
    four, eight = (
        estimated(job("worked_large.yaml", **{"hardware.accelerators_per_node": count}))
        for count in (4, 8)
    )
    for one in (four, eight):
        assert one.memory.fit is not None
        assert one.memory.fit.verdict.value == "fits"
    assert hours(four)[1] / hours(eight)[1] == pytest.approx(2, rel=0.05)
    assert eight.cost is not None
    assert four.cost is not None
    assert eight.cost.total.likely.amount >= four.cost.total.likely.amount
