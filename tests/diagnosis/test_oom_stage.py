import pytest

from diagnosis import oom_samples as samples
from tuneplan.diagnosis.oom_stage import Confidence, Stage, stage_of_log
from tuneplan.diagnosis.oom_text import read_log

STAGES = ["load", "first_forward", "first_backward", "optimizer_step", "eval", "save"]


def stage_of(text: str) -> Stage:
    return stage_of_log(read_log(text)).stage


@pytest.mark.parametrize("stage", STAGES)
def test_a_traceback_tells_the_stage(stage: str) -> None:
    found = stage_of_log(read_log(samples.traceback_of(stage)))
    assert found.stage == stage
    assert found.confidence is Confidence.HIGH
    assert len(found.evidence) == 1


@pytest.mark.parametrize("stage", ["first_forward", "first_backward", "optimizer_step"])
def test_in_a_step_after_others_it_is_later_and_says_where(stage: str) -> None:
    found = stage_of_log(
        read_log(f"{samples.bar(0, 90)}\r{samples.bar(7, 90)}\n{samples.traceback_of(stage)}")
    )
    assert (found.stage, found.within) == (Stage.LATER, stage)


@pytest.mark.parametrize("stage", ["eval", "save", "load"])
def test_an_evaluation_after_some_steps_is_an_evaluation(stage: str) -> None:
    assert stage_of(f"{samples.bar(7, 90)}\n{samples.traceback_of(stage)}") == stage


def test_a_bar_at_nought_is_no_step() -> None:
    text = f"{samples.bar(0, 90)}\n{samples.traceback_of('first_backward')}"
    assert stage_of(text) is Stage.FIRST_BACKWARD


def test_logged_losses_are_steps_too() -> None:
    text = "{'loss': 1.31, 'epoch': 0.1}\n" + samples.traceback_of("first_backward")
    assert stage_of(text) is Stage.LATER


def test_bars_of_other_work_are_no_steps() -> None:
    bars = "\n".join(samples.bar(50, 90, name) for name in ("Map:", "Tokenizing train dataset:"))
    assert stage_of(f"{bars}\n{samples.traceback_of('first_forward')}") is Stage.FIRST_FORWARD


def test_a_process_that_was_killed_while_shards_were_read_was_loading() -> None:
    found = stage_of_log(
        read_log(f"{samples.bar(3, 15, 'Loading checkpoint shards:')}\n{samples.HOST[1]}")
    )
    assert (found.stage, found.confidence) == (Stage.LOAD, Confidence.MEDIUM)


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("***** Running Evaluation *****", Stage.EVALUATION),
        ("Saving model checkpoint to out/checkpoint-5", Stage.SAVE),
    ],
)
def test_the_last_thing_that_was_begun_counts_where_there_is_no_traceback(
    line: str, stage: Stage
) -> None:
    assert stage_of(f"{samples.bar(5, 90)}\n{line}\n{samples.HOST[2]}") is stage


def test_a_message_alone_tells_no_stage() -> None:
    found = stage_of_log(read_log(samples.BEFORE_2_1))
    assert (found.stage, found.confidence) == (Stage.UNKNOWN, Confidence.NONE)


def test_what_follows_the_failure_does_not_count() -> None:
    text = f"{samples.traceback_of('first_forward')}\n{samples.bar(9, 90)}"
    assert stage_of(text) is Stage.FIRST_FORWARD


def test_what_follows_a_bar_on_its_line_counts() -> None:
    text = (
        f"{samples.bar(500, 900)}Saving model checkpoint to out/checkpoint-500\n{samples.HOST[2]}"
    )
    assert stage_of(text) is Stage.SAVE


def test_a_bar_that_a_traceback_follows_is_a_step() -> None:
    text = samples.bar(7, 90) + samples.traceback_of("first_forward")
    assert stage_of(text) is Stage.LATER
