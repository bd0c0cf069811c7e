from dataclasses import replace

import pytest

from diagnosis import oom_samples as samples
from tuneplan.diagnosis.oom_cause import Cause, FoundCause, JobNeeds, cause_of, unusable_bytes
from tuneplan.diagnosis.oom_stage import Confidence
from tuneplan.diagnosis.oom_text import Failure, read_log
from tuneplan.units import GIB

SMALL = JobNeeds(needed_bytes=15 * GIB, needed_low_bytes=14 * GIB, capacity_bytes=24 * GIB)


def failure_of(text: str) -> Failure:
    failure = read_log(text).failure
    assert failure is not None
    return failure


def cause(text: str, needs: JobNeeds | None = None) -> FoundCause:
    return cause_of(failure_of(text), needs)


def test_large_pieces_that_hold_no_request_are_fragmentation() -> None:
    # 21.25 - 17.00 = 4.25 GiB unused, 18 % of 23.69 GiB; 1.5 GiB were asked for.
    assert unusable_bytes(failure_of(samples.BEFORE_2_1)) == round(4.25 * GIB)
    assert cause(samples.BEFORE_2_1).cause is Cause.FRAGMENTATION
    assert cause(samples.BEFORE_2_1, SMALL).cause is Cause.FRAGMENTATION


def test_a_job_that_cannot_fit_is_short_whatever_the_pieces() -> None:
    large = replace(SMALL, needed_bytes=40.0 * GIB, needed_low_bytes=38.0 * GIB)
    found = cause(samples.BEFORE_2_1, large)
    assert found.cause is Cause.SHORTAGE
    assert len(found.evidence) == 2


def test_less_left_than_asked_for_is_a_shortage_for_certain() -> None:
    # 0.70 GiB unused + 0.68 GiB free < 2.00 GiB.
    found = cause(samples.FROM_2_1)
    assert (found.cause, found.confidence) == (Cause.SHORTAGE, Confidence.HIGH)


def test_small_pieces_are_a_shortage_too() -> None:
    text = samples.BEFORE_2_1.replace("21.25 GiB reserved", "17.90 GiB reserved")
    found = cause(text)  # 0.90 + 1.19 GiB would do for 1.50, but 0.90 is 4 % of the card
    assert (found.cause, found.confidence) == (Cause.SHORTAGE, Confidence.MEDIUM)


@pytest.mark.parametrize("line", samples.HOST)
def test_the_host_s_words_mean_the_host(line: str) -> None:
    assert cause(line).cause is Cause.HOST


def test_managed_memory_that_runs_out_is_a_paged_spill() -> None:
    assert cause(samples.OTHERS["paged"][0]).cause is Cause.PAGED_SPILL


def test_a_message_without_figures_is_taken_for_a_shortage() -> None:
    found = cause(samples.OTHERS["library"][0])
    assert (found.cause, found.confidence) == (Cause.SHORTAGE, Confidence.MEDIUM)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (SMALL, None),
        (replace(SMALL, needed_bytes=25.0 * GIB), Cause.SHORTAGE),
        (replace(SMALL, host_low_bytes=70.0 * GIB, host_capacity_bytes=64 * GIB), Cause.HOST),
        (replace(SMALL, paged_bytes=10.0 * GIB), Cause.PAGED_SPILL),
    ],
)
def test_without_a_log_the_estimate_tells(needs: JobNeeds, expected: Cause | None) -> None:
    found = cause_of(None, needs)
    assert found.cause is expected
    assert (found.confidence is Confidence.LOW) == (expected is not None)


def test_without_anything_nothing_is_said() -> None:
    assert cause_of(None, None).cause is None


@pytest.mark.parametrize(
    ("line", "sure"),
    [
        ("exitcode  : -9 (pid: 4242)", Confidence.MEDIUM),
        ("command terminated with exit code 137", Confidence.MEDIUM),
        ("    Reason:       OOMKilled", Confidence.HIGH),
        ("Out of memory: Killed process 4711 (python) total-vm:1kB", Confidence.HIGH),
    ],
)
def test_a_kill_alone_does_not_prove_that_main_memory_ran_out(line: str, sure: Confidence) -> None:
    assert cause(line).confidence is sure


def test_words_that_name_memory_go_before_a_bare_exit_status() -> None:
    assert failure_of("exited with exit code 137\n  Reason: OOMKilled\n").line == 2
