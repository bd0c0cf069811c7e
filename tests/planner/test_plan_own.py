"""A plan with the user's own measurements: each figure before and after, and what moved."""

from dataclasses import replace
from datetime import date

import pytest

from tuneplan.contract.job_document import job_document
from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.plan import Plan, plan_job
from tuneplan.planner.recalibrating import recalibrate
from tuneplan.planner.sources import Sources
from tuneplan.report.page import Page
from tuneplan.report.plan import plan_text
from tuneplan.report.plan_answer import plan_answer
from tuneplan.spec.measurement import Measurement, Origin

SOURCES = Sources(today=date(2026, 12, 1))
JOB = {
    "model": "Qwen/Qwen2.5-1.5B",
    "method": "lora",
    "goal": "fastest",
    "data": {"num_samples": 10_000, "mean_tokens": 700},
    "training": {"max_length": 2048, "per_device_train_batch_size": 2, "packing": False},
    "hardware": {
        "accelerator": ["H100 SXM", "A100 SXM 80GB"],
        "num_nodes": 1,
        "accelerators_per_node": 1,
    },
}


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, Plan]:
    """Without measurements, and with one of the faster chip at a third of its speed."""
    job = load_job(JOB)
    plain = plan_job(job, SOURCES)
    first = plain.entries[0].estimate
    assert first.time is not None
    slow = Measurement(
        origin=Origin.PILOT,
        job=job_document(first.resolved.job, first.assumptions),
        tokens_per_s_per_accelerator=first.time.tokens_per_s_per_accelerator.likely / 3,
        relative_error=0.01,
    )
    own = recalibrate([("m1", slow)], SOURCES).own
    return plain, plan_job(job, replace(SOURCES, own=own))


def test_without_own_measurements_nothing_is_said_to_have_moved(plans: tuple[Plan, Plan]) -> None:
    answer = plan_answer(plans[0], as_of="2026-12-01")
    assert answer.moved == []
    assert "What your own measurements move" not in plan_text(answer, Page(width=80))


@pytest.mark.parametrize("width", [80, 120])
def test_each_plan_has_its_figures_before_and_after(plans: tuple[Plan, Plan], width: int) -> None:
    plain, own = plans
    answer = plan_answer(own, as_of="2026-12-01")
    (step,) = (one for one in answer.moved if one.rank == 1 and one.figure == "step_s")
    before = plain.entries[0].estimate.time
    assert before is not None
    assert step.before.likely == pytest.approx(before.step.step_s.likely)
    assert step.after.likely == pytest.approx(3 * step.before.likely, rel=0.05)
    text = plan_text(answer, Page(width=width))
    assert "What your own measurements move" in text
    assert step.because in text


def test_another_plan_that_comes_first_now_is_told(plans: tuple[Plan, Plan]) -> None:
    codes = {notice.message.code for notice in plans[1].notices}
    fastest = min(
        plans[1].entries,
        key=lambda one: one.estimate.time.run.total_s.likely,  # type: ignore[union-attr]
    )
    assert fastest.rank != 1
    assert "own_reorder" in codes
    assert "own_reorder" not in {notice.message.code for notice in plans[0].notices}
    assert estimate_job(plans[1].entries[0].job, SOURCES).time is not None
