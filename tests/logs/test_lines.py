"""One line of a log: what each framework writes, made here by hand from its source."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.logs.lines import (
    LINE_READERS,
    bare_line,
    deepspeed_point,
    llamafactory_point,
    megatron_point,
    seconds_of_clock,
    torchtune_point,
    trainer_point,
)
from tuneplan.spec.run_log import Metric
from tuneplan.units import GIB


def test_torchtune_tells_trained_tokens_of_a_card_and_peaks_in_gib() -> None:
    point = torchtune_point(
        "Step 12 | loss:1.625 lr:2e-05 tokens_per_second_per_gpu:1843.5 "
        "peak_memory_active:14.5 peak_memory_alloc:14.25 peak_memory_reserved:15.5 "
    )
    assert point is not None
    assert point.step == 12
    assert point.values == {
        Metric.LOSS: 1.625,
        Metric.LEARNING_RATE: 2e-05,
        Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR: 1843.5,
        Metric.PEAK_ALLOCATED_BYTES: 14.25 * GIB,
        Metric.PEAK_RESERVED_BYTES: 15.5 * GIB,
    }


def test_megatron_tells_milliseconds_and_its_own_count() -> None:
    point = megatron_point(
        " [2026-03-04 05:06:07.250000] iteration       40/    500 | consumed samples:         "
        "5120 | elapsed time per iteration (ms): 2125.0 | throughput per GPU (TFLOP/s/GPU): 410.5 "
        "| learning rate: 1.000000E-04 | global batch size:   128 | lm loss: 2.500000E+00 | "
        "grad norm: 0.750 | number of skipped iterations:   0 |"
    )
    assert point is not None
    assert point.step == 40
    assert point.values[Metric.STEP_S] == pytest.approx(2.125)
    assert point.values[Metric.FLOP_PER_S_PER_ACCELERATOR] == pytest.approx(410.5e12)
    assert point.values[Metric.GLOBAL_BATCH_SIZE] == 128
    assert point.values[Metric.LOSS] == 2.5
    assert point.values[Metric.TOTAL_STEPS] == 500
    later = megatron_point(" [2026-03-04 05:06:17] iteration 45/ 500 | lm loss: 2.4E+00 |")
    assert later is not None
    assert point.at_s is not None
    assert later.at_s == point.at_s + 10


@pytest.mark.parametrize(
    "line",
    [
        (
            " iteration        7/     100 | elapsed time per iteration (ms): 250.0 | "
            "learning rate 1.000E-04 | lm loss 2.500000E+00 | loss scale 1024.0 |"
        ),
        (
            " samples/sec: 64.000 | iteration        7/     100 | elapsed time per iteration (ms): "
            "250.0 | learning rate: 1.000E-04 | approx flops per GPU: 120.1TFLOPS | "
            "lm_loss: 2.500000E+00 | lm loss: 2.500000E+00 |"
        ),
    ],
    ids=["before 2.0", "gpt-neox"],
)
def test_older_and_related_megatrons_are_read_too(line: str) -> None:
    point = megatron_point(line)
    assert point is not None
    assert point.step == 7
    assert point.values[Metric.STEP_S] == pytest.approx(0.25)
    assert point.values[Metric.LOSS] == 2.5
    assert point.values[Metric.LEARNING_RATE] == 1e-4
    assert point.values[Metric.TOTAL_STEPS] == 100
    assert point.values.get(Metric.SAMPLES_PER_S) in (None, 64.0)


@pytest.mark.parametrize("where", ["epoch=0/micro_step=80/global_step=20", "0/20"])
def test_deepspeed_tells_samples_a_second_and_gib_that_it_calls_gb(where: str) -> None:
    point = deepspeed_point(
        f"[2026-03-04 05:06:07,250] [INFO] [timer.py:264:stop] {where}, "
        "RunningAvgSamplesPerSec=25.5, CurrSamplesPerSec=26.25, MemAllocated=4.32GB, "
        "MaxMemAllocated=38.5GB"
    )
    assert point is not None
    assert point.step == 20
    assert point.values == {
        Metric.SAMPLES_PER_S: 26.25,
        Metric.PEAK_ALLOCATED_BYTES: 38.5 * GIB,
    }


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.1}",
        "{'loss': '1.25', 'grad_norm': '0.5', 'learning_rate': '2e-05', 'epoch': '0.1'}",
        (
            "  5%|#    | 5/100 [00:10<03:10,  2.00s/it] {'loss': 1.25, 'grad_norm': 0.5, "
            "'learning_rate': 2e-05, 'epoch': 0.1}"
        ),
    ],
)
def test_the_trainer_prints_a_dictionary_with_numbers_or_their_text(line: str) -> None:
    point = trainer_point(line)
    assert point is not None
    assert point.values == {
        Metric.LOSS: 1.25,
        Metric.GRAD_NORM: 0.5,
        Metric.LEARNING_RATE: 2e-05,
        Metric.EPOCH: 0.1,
    }


def test_axolotl_and_ms_swift_print_memory_with_it() -> None:
    axolotl = trainer_point("{'loss': 1.0, 'memory/max_mem_allocated(gib)': 14.5, 'epoch': 0.5}")
    swift = trainer_point(
        "{'loss': 1.0, 'epoch': 0.5, 'global_step/max_steps': '7/90', 'memory(GiB)': 21.5}"
    )
    assert axolotl is not None
    assert axolotl.values[Metric.PEAK_ALLOCATED_BYTES] == 14.5 * GIB
    assert swift is not None
    assert swift.step == 7
    assert swift.values[Metric.PEAK_RESERVED_BYTES] == 21.5 * GIB


def test_evaluation_is_told_apart_from_training() -> None:
    point = trainer_point("{'eval_loss': 2.0, 'eval_runtime': 12.5, 'epoch': 1.0}")
    assert point is not None
    assert point.values == {Metric.EVAL_LOSS: 2.0, Metric.EVAL_S: 12.5, Metric.EPOCH: 1.0}


def test_a_loss_that_is_no_number_any_more_is_told() -> None:
    point = trainer_point("{'loss': nan, 'learning_rate': 0.0, 'epoch': 0.2}")
    assert point is not None
    assert math.isnan(point.values[Metric.LOSS])


def test_llamafactory_tells_its_clock_and_the_speed_of_the_whole_job() -> None:
    point = llamafactory_point(
        '{"current_steps": 30, "total_steps": 300, "loss": 1.5, "lr": 1e-4, "epoch": 0.3, '
        '"percentage": 10.0, "elapsed_time": "0:02:30", "remaining_time": "0:22:30", '
        '"throughput": 8200.5, "total_tokens": 1230000, "vram_allocated": 20.5}'
    )
    assert point is not None
    assert (point.step, point.at_s) == (30, 150)
    assert point.values[Metric.TOKENS_PER_S] == 8200.5
    assert point.values[Metric.TOTAL_STEPS] == 300
    assert point.values[Metric.PEAK_ALLOCATED_BYTES] == 20.5 * GIB


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00:07", 7), ("1:02:03", 3723), ("1 day, 0:00:01", 86_401), ("2 days, 1:00:00", 176_400)],
)
def test_a_clock_is_read_as_python_prints_it(text: str, seconds: int) -> None:
    assert seconds_of_clock(text) == seconds


def test_what_a_progress_bar_wrote_before_a_line_is_left_out() -> None:
    assert bare_line("\x1b[32m 1%|  |\r 2%|  | {'loss': 1}\x1b[0m\n") == "2%|  | {'loss': 1}"


@given(st.text(max_size=300))
def test_no_text_breaks_a_reader(text: str) -> None:
    for reader in LINE_READERS.values():
        reader(bare_line(text))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{'loss': __import__('os').system('echo no')}",
        "{" * 5_000,
        '{"current_steps": "many"}',
        '["current_steps"]',
        "Step 3 | nothing here",
        "iteration 1/2 | |",
    ],
)
def test_a_line_that_tells_nothing_is_no_point(line: str) -> None:
    assert all(reader(line) is None for reader in LINE_READERS.values())


def test_axolotl_tells_trained_tokens_of_a_card_and_peaks_in_gib() -> None:
    point = trainer_point(
        "{'loss': '1.25', 'grad_norm': '0.5', 'learning_rate': '2e-05', 'ppl': '3.5', "
        "'memory/max_active (GiB)': '14.5', 'memory/max_allocated (GiB)': '14.25', "
        "'memory/device_reserved (GiB)': '15.5', 'tokens/train_per_sec_per_gpu': '1843.5', "
        "'tokens/total': 4096, 'tokens/trainable': 2048, 'epoch': '0.1'}"
    )
    assert point is not None
    assert point.values[Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR] == 1843.5
    assert point.values[Metric.PEAK_ALLOCATED_BYTES] == 14.25 * GIB
    assert point.values[Metric.PEAK_RESERVED_BYTES] == 15.5 * GIB
