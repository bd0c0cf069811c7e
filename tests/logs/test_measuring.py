"""From logs to one measurement: the steady step, speed and peaks, and what is honest to say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.logs.measuring import measure
from tuneplan.spec.run_log import LogPoint, Metric, RunLog
from tuneplan.units import GIB


def log(*points: LogPoint, **facts: object) -> RunLog:
    return RunLog(format="made", path="made.log", points=points, **facts)


def timed(step: int, at_s: float, **values: float) -> LogPoint:
    return LogPoint(step=step, at_s=at_s, values={Metric.LOSS: 1.0, **values})


def test_pauses_and_the_first_steps_do_not_move_the_step_time() -> None:
    """Logged every 10 steps of 2 s: 60 s of start-up before the first, an evaluation of 90 s."""
    clock = [0, 80, 100, 120, 140, 250, 270, 290, 310, 330, 350, 370]
    points = [timed(10 * number, at_s) for number, at_s in enumerate(clock)]
    measured, _ = measure([log(*points)])
    assert measured.step_s == 2.0
    assert measured.num_steps == 110


def test_the_frameworks_own_step_times_go_before_the_clock() -> None:
    points = [timed(step, 5.0 * step, **{Metric.STEP_S: 1.5}) for step in range(10)]
    measured, _ = measure([log(*points)])
    assert measured.step_s == 1.5


def test_samples_a_second_and_the_global_batch_give_a_step_time() -> None:
    values = {Metric.SAMPLES_PER_S: 32.0, Metric.GLOBAL_BATCH_SIZE: 128.0}
    measured, _ = measure([log(*(LogPoint(step=step, values=values) for step in range(5)))])
    assert measured.step_s == 4.0
    assert measured.samples_per_s == 32.0


def test_without_a_clock_the_whole_run_over_its_steps_is_told_as_such() -> None:
    """120 s over 40 steps is 3 s, with start-up and evaluation in it."""
    points = [LogPoint(step=step, values={Metric.LOSS: 1.0}) for step in (20, 40)]
    measured, notices = measure([log(*points, totals={Metric.TRAIN_S: 120.0})])
    assert measured.step_s == 3.0
    assert measured.relative_error is None
    assert [notice.message.code for notice in notices] == ["step_time_over_the_run"]


def test_tokens_of_a_step_are_the_slope_of_the_running_count() -> None:
    """4 cards, 2 s a step, 65,536 positions a step: 65,536 / 2 / 4 = 8,192 a second and card."""
    points = [timed(s, 2.0 * s, **{Metric.TOKENS_SEEN: 65_536.0 * s}) for s in range(1, 20)]
    measured, _ = measure([log(*points)], num_accelerators=4)
    assert measured.tokens_per_s_per_accelerator == pytest.approx(8192)
    unknown, _ = measure([log(*points)])
    assert unknown.tokens_per_s_per_accelerator is None


def test_tokens_that_torchtune_counts_are_said_to_be_the_trained_ones() -> None:
    values = {Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR: 2000.0}
    measured, notices = measure([log(*(LogPoint(step=s, values=values) for s in range(9)))])
    assert measured.real_tokens_per_s_per_accelerator == 2000.0
    assert [notice.message.code for notice in notices] == ["only_trained_tokens_counted"]


def test_peaks_are_the_highest_of_any_log_and_card() -> None:
    smi = log(
        *(LogPoint(device=card, values={Metric.DEVICE_BYTES: card * GIB}) for card in (3, 7)),
        accelerator="NVIDIA L4",
    )
    own = log(LogPoint(step=1, values={Metric.PEAK_ALLOCATED_BYTES: 5 * GIB}))
    measured, _ = measure([smi, own])
    assert measured.peak.device_bytes == 7 * GIB
    assert measured.peak.allocated_bytes == 5 * GIB
    assert measured.environment.accelerator == "NVIDIA L4"


def test_a_coarse_clock_makes_the_step_time_less_certain() -> None:
    points = [timed(step, 1000 + 3.0 * step) for step in range(12)]
    fine, _ = measure([log(*points)])
    coarse, _ = measure([log(*points, clock_step_s=1.0)])
    assert fine.relative_error == 0
    assert coarse.relative_error is not None
    assert 0.05 < coarse.relative_error < 0.08  # 1.28 x 1.25 x 0.41 / sqrt(10) / 3 = 0.069


@given(
    st.lists(
        st.builds(
            LogPoint,
            step=st.none() | st.integers(0, 10**6),
            at_s=st.none() | st.floats(0, 1e12),
            values=st.dictionaries(st.sampled_from(Metric), st.floats(), max_size=4),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_no_log_breaks_the_measurement(points: list[LogPoint], absolute: bool) -> None:
    measured, _ = measure([log(*points, absolute_time=absolute)], num_accelerators=2)
    for value in (measured.step_s, measured.tokens_per_s_per_accelerator):
        assert value is None or value >= 0
