import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.rows_for_tests import FSDP_QLORA, LITGPT, run_of
from tuneplan.runs.comparison import (
    Comparison,
    Prediction,
    Quantity,
    compare,
    judge,
    measured_throughput,
)
from tuneplan.spec.answer import Estimate

positive = st.floats(min_value=1.0, max_value=1e3)


def about(likely: float) -> Estimate:
    return Estimate(low=likely * 0.9, likely=likely, high=likely * 1.2)


EVERYTHING = Prediction(
    peak_bytes=about(14e9),
    peak_reserved_bytes=about(15e9),
    peak_device_bytes=about(16e9),
    tokens_per_s_per_accelerator=about(700.0),
    real_tokens_per_s_per_accelerator=about(600.0),
    verdict="fits",
)


@pytest.mark.parametrize(
    ("kind", "likely"), [("allocated", 14e9), ("reserved", 15e9), ("nvidia-smi", 16e9)]
)
def test_each_memory_kind_meets_its_own_prediction(kind, likely):
    (item,) = compare(run_of(mem_kind=kind), EVERYTHING)
    assert item.quantity.is_memory
    assert item.likely == likely


@pytest.mark.parametrize(
    "cells", [{"mem_kind": "unknown"}, {"mem_unit": "unknown"}, {"oom": "yes"}]
)
def test_memory_without_kind_or_unit_or_of_a_failed_run_is_compared_with_nothing(cells):
    assert compare(run_of(**cells), EVERYTHING) == ()


def test_what_does_not_count_is_not_compared():
    assert compare(run_of(), EVERYTHING, memory=False) == ()
    (item,) = compare(run_of(FSDP_QLORA), EVERYTHING, throughput=False)
    assert item.quantity is Quantity.RESERVED


def test_a_step_time_tells_tokens_where_every_length_is_known():
    # 2 sequences x 2,048 tokens / 3.05469 s / 2 cards = 670.4 tokens/s and card
    quantity, value = measured_throughput(run_of(FSDP_QLORA))
    assert quantity is Quantity.TOKENS
    assert math.isclose(value, 670.4, rel_tol=1e-3)


def test_a_step_time_over_samples_of_unknown_length_tells_nothing():
    assert measured_throughput(run_of(LITGPT, step_time_s="7.06")) is None


def test_published_tokens_of_padded_batches_are_real_tokens():
    quantity, value = measured_throughput(run_of(LITGPT, tokens_per_s_per_gpu="2,292.26"))
    assert (quantity, value) == (Quantity.REAL_TOKENS, 2292.26)


def test_samples_per_second_are_of_the_whole_job():
    run = run_of(FSDP_QLORA, step_time_s="", samples_per_s="4")
    assert measured_throughput(run) == (Quantity.TOKENS, 4 * 2048 / 2)


@given(
    positive,
    positive,
    st.floats(min_value=0.5, max_value=1),
    st.floats(min_value=1, max_value=2),
)
def test_the_error_is_predicted_over_measured_minus_one(measured, likely, low, high):
    item = Comparison(
        quantity=Quantity.ALLOCATED,
        measured=measured,
        likely=likely,
        low=likely * low,
        high=likely * high,
    )
    assert math.isclose((item.error_fraction + 1) * measured, likely, rel_tol=1e-9)
    assert item.inside_interval == (likely * low <= measured <= likely * high)
    assert math.isclose(item.width_fraction, high - low, rel_tol=1e-6, abs_tol=1e-9)


def test_verdicts_count_missed_and_false_separately():
    verdicts = judge(
        [
            (True, "fits"),
            (True, "tight"),
            (True, "does_not_fit"),
            (False, "does_not_fit"),
            (False, "fits"),
            (False, "tight"),
            (False, "fits"),
            (None, "fits"),
            (False, None),
        ]
    )
    assert (verdicts.num_out_of_memory, verdicts.num_ran) == (3, 4)
    assert verdicts.missed_oom_rate == pytest.approx(1 / 3)
    assert verdicts.false_oom_rate == pytest.approx(1 / 4)
    assert verdicts.tight_rate == pytest.approx(2 / 7)


def test_rates_of_nothing_are_unknown():
    verdicts = judge([])
    assert (verdicts.missed_oom_rate, verdicts.false_oom_rate, verdicts.tight_rate) == (
        None,
        None,
        None,
    )
