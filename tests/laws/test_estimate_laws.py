"""Laws of a whole estimate, over jobs nobody prepared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from random_jobs import jobs
from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.report.estimate_answer import estimate_answer

SOURCES = Sources(today=date(2026, 11, 30))


def estimated(job: Mapping[str, Any], *, replays: bool = False) -> JobEstimate:
    """The estimate; jobs that are refused are not what a law speaks of."""
    try:
        return estimate_job(load_job(job), SOURCES, replays=replays)
    except InputError:
        assume(False)
        raise


def ranges(value: Any, where: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Every ``{low, likely, high}`` of an answer's JSON."""
    if isinstance(value, dict):
        if {"low", "likely", "high"} <= set(value):
            low, likely, high = (value[key] for key in ("low", "likely", "high"))
            if isinstance(low, dict):  # money
                low, likely, high = (one["amount"] for one in (low, likely, high))
            yield where, float(low), float(likely), float(high)
        for key, one in value.items():
            yield from ranges(one, f"{where}.{key}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from ranges(one, f"{where}[{number}]")


def check_ranges(estimate: JobEstimate) -> list[str]:
    answer = estimate_answer(estimate, as_of="2026-11-30").model_dump(mode="json")
    found = list(ranges(answer))
    for where, low, likely, high in found:
        assert 0 <= low <= likely <= high, where
    return [where for where, *_ in found]


@given(jobs())
@settings(max_examples=40)
def test_low_is_never_above_likely_nor_likely_above_high(job):
    found = check_ranges(estimated(job))
    assert any(where.startswith(".memory") for where in found)


@given(jobs())
@settings(max_examples=8)
def test_low_is_never_above_likely_where_the_allocator_is_replayed(job):
    job = {**job, "model": "Qwen/Qwen2.5-0.5B-Instruct"}
    check_ranges(estimated(job, replays=True))


@given(jobs())
@settings(max_examples=40)
def test_terms_add_up_to_what_they_are_terms_of(job):
    estimate = estimated(job)
    memory, time = estimate.memory, estimate.time
    peak = memory.ranges.peak_bytes.likely
    assert sum(term.value for term in memory.terms) == pytest.approx(peak, rel=1e-9)
    assert max(size for _, size in memory.by_phase) == pytest.approx(peak, rel=1e-9)
    assert dict(memory.by_phase)[memory.phase] == pytest.approx(peak, rel=1e-9)
    if time is None:
        return
    step = sum(term.value for term in time.step.terms)
    assert step == pytest.approx(time.step.step_s.likely, rel=1e-9)
    if time.run is not None:
        total = sum(term.value for term in time.run.terms)
        assert total == pytest.approx(time.run.total_s.likely, rel=1e-9)


@given(jobs())
@settings(max_examples=40)
def test_no_card_does_more_than_its_peak(job):
    time = estimated(job).time
    if time is not None and time.hfu_fraction is not None:
        assert 0 < time.mfu_fraction <= time.hfu_fraction <= 1


def _kernels(estimate: JobEstimate) -> tuple[Any, ...]:
    recipe = estimate.resolved.recipe
    return recipe.attention, recipe.expand_key_value, recipe.loss


@given(jobs(), st.sampled_from(["batch", "length", "rank"]))
@settings(max_examples=40)
def test_memory_never_falls_with_micro_batch_length_or_rank(job, what):
    training, more = job["training"], dict(job)
    if what == "rank":
        assume("adapter" in job)
        more["adapter"] = {**job["adapter"], "r": 4 * job["adapter"]["r"]}
    else:
        key = {"batch": "per_device_train_batch_size", "length": "max_length"}[what]
        more["training"] = {**training, key: 2 * training[key]}
    here, there = estimated(job), estimated(more)
    # One row has no padding and no mask, which may choose another kernel; that is another recipe.
    assume(_kernels(here) == _kernels(there))
    assert there.memory.ranges.peak_bytes.likely >= here.memory.ranges.peak_bytes.likely * (
        1 - 1e-12
    )


@given(jobs(), st.sampled_from(["zero1", "zero2", "zero3", "fsdp", "fsdp2"]))
@settings(max_examples=25)
def test_sharding_never_raises_what_a_rank_holds_for_the_whole_run(job, strategy):
    def held(cards: int) -> float:
        hardware = {**job["hardware"], "accelerators_per_node": cards, "num_nodes": 1}
        found = estimated({**job, "hardware": hardware, "parallelism": strategy})
        kinds = ("weights", "optimizer", "gradients", "master", "quantization", "adapters")
        return sum(term.value for term in found.memory.terms if term.kind.startswith(kinds))

    assert held(8) <= held(2) * (1 + 1e-9)
