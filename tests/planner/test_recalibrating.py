"""Kept measurements move an estimate as far as they speak of it, and say so."""

import math
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tuneplan.contract.job_document import job_document
from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.recalibrating import recalibrate, with_own
from tuneplan.planner.sources import Sources
from tuneplan.spec.measurement import MeasuredPeak, MeasuredStep, Measurement, Origin, Status
from tuneplan.store.store import Store

SOURCES = Sources(today=date(2026, 12, 1))
JOB = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "method": "lora",
    "data": {"num_samples": 10_000, "mean_tokens": 700},
    "training": {"max_length": 2048, "per_device_train_batch_size": 2},
    "hardware": {"accelerator": "H100 SXM", "accelerators_per_node": 1},
}


def estimated(sources: Sources = SOURCES, **changes: object) -> JobEstimate:
    return estimate_job(load_job(JOB, overrides=changes), sources)


def measured(now: JobEstimate, slower: float, **facts: object) -> Measurement:
    assert now.time is not None
    return Measurement(
        origin=Origin.PILOT,
        job=job_document(now.resolved.job, now.assumptions),
        tokens_per_s_per_accelerator=now.time.tokens_per_s_per_accelerator.likely / slower,
        relative_error=0.01,
        **facts,
    )


def step_s(now: JobEstimate) -> float:
    assert now.time is not None
    return now.time.step.step_s.likely


def test_a_measured_job_is_estimated_as_it_was_measured() -> None:
    now = estimated()
    own = recalibrate([("m1", measured(now, 1.4))], SOURCES).own
    after = estimated(replace(SOURCES, own=own))
    assert step_s(after) == pytest.approx(1.4 * step_s(now), rel=0.02)
    assert after.time is not None
    assert now.time is not None
    width = after.time.step.step_s.high / after.time.step.step_s.low
    assert width < 1.1 < now.time.step.step_s.high / now.time.step.step_s.low
    assert sum(term.value for term in after.time.step.terms) == pytest.approx(step_s(after))
    assert "own_measurements" in [notice.message.code for notice in after.notices]


def test_measured_memory_moves_memory_and_its_terms_add_up() -> None:
    now = estimated()
    peak = now.memory.ranges.peak_bytes
    seen = MeasuredPeak(allocated_bytes=round(peak.likely * 1.06))
    own = recalibrate([("m1", measured(now, 1.0, peak=seen))], SOURCES).own
    after = estimated(replace(SOURCES, own=own))
    found = after.memory.ranges.peak_bytes
    assert found.likely == pytest.approx(1.06 * peak.likely, rel=0.01)
    assert found.high / found.low < peak.high / peak.low
    assert sum(term.value for term in after.memory.terms) == pytest.approx(found.likely)
    assert after.memory.ranges.peak_reserved_bytes == now.memory.ranges.peak_reserved_bytes
    assert now.memory.fit is not None
    assert after.memory.fit is not None
    assert after.memory.fit.headroom_bytes < now.memory.fit.headroom_bytes
    assert "own_measured_memory" in [notice.message.code for notice in after.notices]


def test_steps_of_other_lengths_are_held_against_steps_of_their_own() -> None:
    """Steps half as long as the plan's take more than half: the optimizer's part stays."""
    now = estimated(**{"method": "full", "training.max_length": 512})
    assert now.time is not None
    step, terms = now.time.step.step_s.likely, now.time.step.terms
    kinds = ("optimizer", "host", "launch")
    fixed = sum(term.value for term in terms if term.kind in kinds)
    assert 0.01 < fixed / step < 0.9
    positions = round(now.time.tokens_per_s_per_accelerator.likely * step)
    half = MeasuredStep(
        step_s=1.5 * (fixed + (step - fixed) * (positions // 2) / positions),
        padded_tokens=positions // 2,
    )
    seen = replace(measured(now, 1.0), steps=(half,) * 8, warm_up_steps=2)
    (speed,) = recalibrate([("m1", seen)], SOURCES).own.observations
    assert speed.log_ratio == pytest.approx(math.log(1.5), rel=0.02)


def test_a_pilot_of_one_step_says_nothing_of_the_speed() -> None:
    now = estimated()
    alone = replace(measured(now, 3.0), relative_error=None)
    assert recalibrate([("m1", alone)], SOURCES).own.observations == ()
    read = replace(alone, origin=Origin.LOG)  # a log's steps are many
    assert len(recalibrate([("m1", read)], SOURCES).own.observations) == 1


def test_another_length_moves_less_and_keeps_more_doubt() -> None:
    now = estimated()
    own = recalibrate([("m1", measured(now, 1.4))], SOURCES).own
    corrected = replace(SOURCES, own=own)
    longer = {"training.max_length": 8192, "training.packing": True}
    before, after = estimated(**longer), estimated(corrected, **longer)
    assert 1.2 < step_s(after) / step_s(before) < 1.4
    assert after.time is not None
    assert after.time.correction is not None
    assert 0.5 < after.time.correction.share < 1


def test_what_cannot_be_predicted_any_more_is_told_and_left_out(tmp_path: Path) -> None:
    now = estimated()
    lost = replace(measured(now, 1.1), job={"model": "a-model/that-is-gone"})
    failed = measured(now, 3.0, status=Status.OOM)
    with Store(tmp_path / "store.sqlite3") as store:
        store.append_all([lost, failed, measured(now, 1.2)])
    sources, notices = with_own(SOURCES, str(tmp_path / "store.sqlite3"))
    assert sources.own is not None
    assert len(sources.own.observations) == 1
    assert [notice.message.code for notice in notices] == ["measurement_unused"]


def test_a_close_prediction_that_was_off_does_not_throw_a_wide_one_further_off() -> None:
    """One card is predicted closely, two under ZeRO-2 are not: they move less, and keep doubt."""
    now = estimated()
    own = recalibrate([("m1", measured(now, 1.4))], SOURCES).own
    wide = {"hardware.accelerators_per_node": 2, "parallelism.strategy": "zero2"}
    before, after = estimated(**wide), estimated(replace(SOURCES, own=own), **wide)
    assert 1.05 < step_s(after) / step_s(before) < 1.4
    assert before.time is not None
    assert after.time is not None
    widths = [one.time.step.step_s.high / one.time.step.step_s.low for one in (before, after)]
    assert 0.8 * widths[0] < widths[1] <= 1.01 * widths[0]
