"""Reserved memory of an estimate: replayed where one card holds the job, a ratio elsewhere."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.estimation.uncertainty import FRAGMENTATION, RESERVED, Reserving, memory_ranges
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import sources_for
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.units import GIB

PEAK = Estimate(low=19 * GIB, likely=20 * GIB, high=21 * GIB, basis=Basis.ANALYTIC)
CONTEXT = 0.5 * GIB


def estimated(*, replays: bool = True, **changes: Any) -> JobEstimate:
    document = {
        "model": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "method": "lora",
        "framework": "trl",
        "data": {"num_samples": 1000, "mean_tokens": 300},
        "hardware": {"accelerator": "NVIDIA A100 SXM 80GB", "accelerators_per_node": 1},
        **changes,
    }
    job = load_job(document)
    return estimate_job(job, sources_for(job, today=date(2026, 11, 30)), replays=replays)


def test_a_job_on_one_card_is_replayed_and_its_fragments_are_needed():
    memory = estimated().memory
    ranges, reserving = memory.ranges, memory.reserving
    assert reserving is not None
    assert ranges.peak_reserved_bytes.basis is Basis.ANALYTIC  # no run of trl was measured
    assert ranges.peak_reserved_bytes.likely == reserving.reserved_bytes
    assert ranges.peak_reserved_bytes.likely > ranges.peak_bytes.likely
    context = ranges.peak_device_bytes.likely - ranges.peak_reserved_bytes.likely
    assert ranges.needed_bytes.likely == pytest.approx(
        ranges.peak_bytes.likely + reserving.fragmentation_bytes + context
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"hardware": {"accelerator": "H100", "accelerators_per_node": 4}, "parallelism": "fsdp"},
        {"hardware": {"accelerator": "H100", "accelerators_per_node": 2}, "parallelism": "zero2"},
    ],
    ids=["fsdp", "zero2"],
)
def test_a_sharded_job_takes_the_ratio(changes):
    memory = estimated(**changes).memory
    assert memory.reserving is None
    peak, reserved = memory.ranges.peak_bytes, memory.ranges.peak_reserved_bytes
    assert reserved.basis is Basis.ASSUMED
    assert reserved.likely == pytest.approx(peak.likely * RESERVED.likely)


def test_the_allocated_peak_does_not_depend_on_the_replay():
    replayed, plain = estimated(), estimated(replays=False)
    assert replayed.memory.ranges.peak_bytes == plain.memory.ranges.peak_bytes
    assert plain.memory.reserving is None


def test_lengths_that_vary_widen_the_reserved_range_upwards():
    varied = estimated().memory
    fixed = estimated(training={"padding": "max_length"}).memory
    assert varied.reserving is not None
    assert fixed.reserving is not None
    assert varied.reserving.varies
    assert not fixed.reserving.varies
    assert varied.reserving.worst_bytes > varied.reserving.reserved_bytes
    assert fixed.reserving.worst_bytes == fixed.reserving.reserved_bytes


def test_fragments_of_the_replay_take_the_place_of_the_assumed_share():
    """20 GiB, 1 GiB of it lost: 21.5 with the context; distances add in squares."""
    found = Reserving(reserved_bytes=23 * GIB, worst_bytes=25 * GIB, fragmentation_bytes=GIB)
    ranges = memory_ranges(PEAK, context_bytes=CONTEXT, capacity_bytes=None, reserving=found)
    assert ranges.needed_bytes.likely == pytest.approx(21.5 * GIB)
    # the peak's own GiB, 6 % lost in place of 5, the context's 60 %
    more = math.hypot(GIB, 20 * GIB * (FRAGMENTATION.high - 0.05), 0.6 * CONTEXT)
    assert ranges.needed_bytes.high == pytest.approx(21.5 * GIB + more)
    assert ranges.peak_reserved_bytes.likely == 23 * GIB
    assert ranges.peak_reserved_bytes.low < 23 * GIB < 25 * GIB < ranges.peak_reserved_bytes.high


def test_what_is_reserved_ends_at_the_card():
    found = Reserving(reserved_bytes=40 * GIB, worst_bytes=60 * GIB, fragmentation_bytes=GIB)
    ranges = memory_ranges(PEAK, context_bytes=CONTEXT, capacity_bytes=24 * GIB, reserving=found)
    assert ranges.peak_reserved_bytes.likely == 23.5 * GIB
    assert ranges.peak_reserved_bytes.high == 23.5 * GIB
