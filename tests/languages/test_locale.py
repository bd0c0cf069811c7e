"""Which language is spoken, and how its days, numbers, lines and columns look."""

from __future__ import annotations

import re
import shlex
from datetime import date
from pathlib import Path

import pytest
from babel.numbers import format_currency, format_decimal, format_percent

from tuneplan.cli.click_texts import cells, wrapped
from tuneplan.cli.main import run
from tuneplan.language import (
    LANGUAGES,
    Message,
    language_of_environment,
    message,
    nearest_language,
    phrase,
    say,
    sentence,
    speaking,
)
from tuneplan.report.dates import date_text, moment_text
from tuneplan.report.tables import grouped
from tuneplan.report.tensor_labels import tensor_label
from tuneplan.units import format_count

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("zh-TW", "zh-TW"),
        ("zh_TW.UTF-8", "zh-TW"),
        ("zh-Hant-HK", "zh-TW"),
        ("zh-HK", "zh-TW"),
        ("zh", "zh-CN"),
        ("zh-Hans-SG", "zh-CN"),
        ("zh_CN.GB18030", "zh-CN"),
        ("en_GB.UTF-8@euro", "en"),
        ("de-AT", None),
        ("zhuang", None),
        ("", None),
    ],
)
def test_a_tag_finds_the_language_whose_characters_its_reader_reads(
    tag: str, found: str | None
) -> None:
    assert nearest_language(tag) == found


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_TW.UTF-8"}, "zh-TW"),
        ({"LANG": "zh_TW.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "de:zh_TW:en"}, "zh-TW"),
        ({"LANG": "C", "LANGUAGE": "zh_TW"}, "en"),
        ({"LANG": "zh_TW.UTF-8", "TUNEPLAN_LANG": "zh-CN"}, "zh-CN"),
        ({"LANG": "zh_TW.UTF-8", "TUNEPLAN_LANG": "klingon"}, "zh-TW"),
    ],
)
def test_the_environment_says_the_language_as_gettext_reads_it(
    environment: dict[str, str], language: str
) -> None:
    assert language_of_environment(environment) == language


@pytest.mark.parametrize("language", LANGUAGES)
def test_english_and_chinese_write_numbers_and_shares_alike(language: str) -> None:
    locale = {"en": "en", "zh-TW": "zh_Hant_TW", "zh-CN": "zh_Hans_CN"}[language]
    assert format_decimal(1234567, locale=locale) == format_count(1234567)
    assert format_decimal("1234.50", format="#,##0.00", locale=locale) == grouped("1234.50")
    assert format_percent(0.123, format="0.0%", locale=locale) == f"{0.123:.1%}"
    money = format_currency(1234.5, "TWD", format="#,##0.00 ¤¤", locale=locale)
    assert money == f"{grouped('1234.50')} TWD"


def test_a_day_is_written_as_its_reader_writes_it() -> None:
    assert date_text("2026-11-30") == "2026-11-30"
    for language in ("zh-TW", "zh-CN"):
        with speaking(language):
            assert date_text("2026-11-30") == "2026年11月30日"
            assert date_text("2026-11") == "2026年11月"
            assert date_text("today") == "today"
            assert moment_text("2026-11-30T14:05:00") == "2026年11月30日 14:05"


def test_a_phrase_is_translated_within_its_sentence_and_english_elsewhere() -> None:
    template = sentence("expects {wanted}, got {kind}")
    said = message("wrong_kind", template, wanted=phrase("a number"), kind=phrase("text"))
    assert str(said) == "expects a number, got text"
    with speaking("zh-TW"):
        assert re.search("[a-z]", str(said)) is None
    assert said.params["wanted"] == "a number"


def test_a_message_within_a_message_speaks_the_language_of_the_moment() -> None:
    inner = message("list_of", "a list of {length} entries", length=3)
    outer = Message("x", "expects {wanted}, got {kind}", {"wanted": inner, "kind": "4"})
    with speaking("zh-CN"):
        chinese = str(outer)
    assert "3" in chinese
    assert str(outer) == "expects a list of 3 entries, got 4"


def test_a_text_of_no_catalogue_stays_as_it_is() -> None:
    with speaking("zh-TW"):
        assert say("no catalogue has this sentence") == "no catalogue has this sentence"
        assert say("") == ""


def test_a_tensor_keeps_the_name_of_its_module() -> None:
    name = "gradient of q_proj adapter input as float32"
    assert tensor_label(name) == name
    with speaking("zh-TW"):
        assert tensor_label(name) == "q_proj 的適配器輸入（float32）的梯度"
        assert tensor_label("rotary cosine") == "rotary cosine"


def test_lines_break_between_chinese_characters_and_no_line_begins_with_a_stop() -> None:
    text = "放得下。需要 35.3 GiB（已配置峰值），每張卡容量為 79.2 GiB：空餘。"
    for width in range(10, 60):
        lines = list(wrapped(text, width))
        assert all(cells(line) <= width + 2 for line in lines)
        assert not any(line[0] in "，。：）" for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("language", ["zh-TW", "zh-CN"])
@pytest.mark.parametrize(
    "line",
    [
        "estimate --model 7B --accelerator A100 --set data.num_samples=9 --set data.mean_tokens=40",
        "plan examples/support_chat.yaml --accelerator H100 --count 1",
        "oom examples/out_of_memory.yaml --log examples/out_of_memory.log",
        "data profile --help",
        "--help",
    ],
    ids=lambda line: line.split()[0],
)
def test_no_line_is_wider_than_the_terminal(
    line: str,
    language: str,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["--lang", language, *shlex.split(line)]) == 0
    said = capsys.readouterr().out
    assert re.search("[\u4e00-\u9fff]", said)
    assert [shown for shown in said.splitlines() if cells(shown) > columns] == []


def test_columns_of_numbers_stand_one_under_the_other_in_chinese(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = "estimate --model 7B --method lora --accelerator A100"
    assert run(["--lang", "zh-TW", *command.split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    ends = {
        cells(line[: line.index(" GiB ") + 4]) for line in lines if re.search(" GiB +\\d+%", line)
    }
    assert len(ends) == 1


def test_today_in_a_report_is_the_day_of_the_answer() -> None:
    with speaking("zh-CN"):
        assert date_text(date(2026, 1, 2).isoformat()) == "2026年1月2日"
