"""The profile as text: 80 columns, every figure, bad rows with their lines."""

import json

import pytest
from rich.cells import cell_len

from tuneplan.planner.profile_data import profile_data
from tuneplan.report.profile import bar, render_profile


@pytest.fixture
def text(tmp_path):
    """The report of a small set with a long name and a bad row."""
    path = tmp_path / ("a_rather_long_name_of_a_data_set_" * 3 + ".jsonl")
    rows = [
        json.dumps({"text": "詞 word " * number}, ensure_ascii=False) for number in range(1, 60)
    ]
    path.write_text("\n".join([*rows, "{"]), encoding="utf-8")
    return render_profile(
        profile_data([path], model="Qwen/Qwen2.5-7B", max_length=[64, 1024], skip_bad_rows=True)
    )


def test_no_line_is_wider_than_80_columns(text):
    assert max(map(cell_len, text.splitlines())) <= 80


def test_it_shows_totals_lengths_and_what_each_length_does(text):
    for piece in ("59 rows, 1 bad", "Tokens learned", "P95", "█", "1,024", "Recommended"):
        assert piece in text


def test_a_bad_row_stands_with_its_line_and_reason(text):
    assert "Bad rows: 1, left out of every figure" in text
    assert "jsonl:60" in text


def test_a_bar_is_exact_to_an_eighth_and_never_empty_above_zero():
    assert bar(0.5, 10) == "█████"
    assert bar(0.0, 10) == ""
    assert bar(1e-9, 10) == "▏"
    assert bar(1 / 16, 4) == "▎"


def test_a_terminal_gets_its_headings_in_bold(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")  # a dumb one gets none
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "one"}\n', encoding="utf-8")
    profile = profile_data([path], tokenizer="approximate")
    assert "\x1b[1m" in render_profile(profile, colors=True)
    assert "\x1b" not in render_profile(profile)
