"""What a person reads of learned, watched and piloted runs."""

import pytest

import sample_runs
from tuneplan.report.learned import learn_text, store_text
from tuneplan.report.page import Page
from tuneplan.report.pilot_matrix import matrix_text
from tuneplan.report.piloted import pilot_text
from tuneplan.report.watched import watch_text

WIDTHS = pytest.mark.parametrize("width", [60, 80, 120])


@WIDTHS
def test_a_learned_run_sets_measured_beside_predicted(width: int) -> None:
    text = learn_text(sample_runs.learned(), Page(width=width))
    assert all(len(line) <= width for line in text.splitlines())
    for words in ("2.3 s", "2.5 s", "+8.7%", "20.5 GiB", "-26.8%", "612 W", "97%", "0123456789ab"):
        assert words in text
    assert "±1.4%" in text


@WIDTHS
def test_a_store_is_listed_a_line_each(width: int) -> None:
    text = store_text(sample_runs.stored(), Page(width=width))
    assert all(len(line) <= width for line in text.splitlines())
    for words in ("0123456789ab", "2026-12-01", "pilot,", "oom", "2.3 s", "20.0 GiB"):
        assert words in text


@WIDTHS
def test_a_watched_run_tells_arrival_cost_and_alerts(width: int) -> None:
    text = watch_text(sample_runs.watched(), Page(width=width), name="run")
    assert all(len(line) <= width for line in text.splitlines())
    for words in ("120 of 400 (30%)", "0.65 USD", "98%", "61 °C", "655 W", "09:58"):
        assert words in text
    assert "the plan said 1.8 to 2.2 s" in " ".join(text.split())


@WIDTHS
def test_a_pilot_tells_what_ran_and_what_moved(width: int) -> None:
    text = pilot_text(sample_runs.piloted(), Page(width=width))
    assert all(len(line) <= width for line in text.splitlines())
    for words in ("7 steps were done", "±0.4%", "torch 2.13.0", "2.25 - 3 s", "2.07 - 2.76 s"):
        assert words in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_matrix_is_a_line_a_case_and_a_reason_is_told_once(width: int) -> None:
    text = matrix_text(sample_runs.piloted_matrix(), Page(width=width))
    assert "vlm, moe: there is no card" in text
    assert text.count("there is no card") == 1
    for words in ("12 steps", "out of memory", "done before", "20.0 GiB"):
        assert words in text
