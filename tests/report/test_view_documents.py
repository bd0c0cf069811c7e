"""Documents of the page's views: the answer's figures stand in them, and each chart is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import sample_answers
import sample_runs
from tuneplan.planner.profile_data import look_at, profile_data
from tuneplan.report.accuracy_answer import accuracy_answer
from tuneplan.report.accuracy_document import accuracy_sections, figure_labels
from tuneplan.report.check_document import check_sections, import_sections
from tuneplan.report.data_document import data_document, data_sections
from tuneplan.report.drawing import svg
from tuneplan.report.markdown import markdown
from tuneplan.report.oom_document import oom_document, oom_sections
from tuneplan.report.profile_answer import profile_answer
from tuneplan.report.runs_document import calibration_section, store_section, watch_section
from tuneplan.report.view import Chart, Document, Paragraph, Section, Table

ROOT = Path(__file__).parents[2]
CHAT = ROOT / "examples" / "support_chat.jsonl"
PROFILE = profile_data([CHAT], tokenizer="approximate")
DAY = "2026-12-01"


def profiled(max_length: int | None = None):
    return profile_answer(look_at(PROFILE, max_length=max_length), as_of=DAY)


ACCURACY = accuracy_answer(as_of=DAY)
WATCHED = sample_runs.watched()
SECTIONS = {
    "data": data_sections(profiled(700), max_length=700),
    "sample of data": data_sections(sample_answers.data_profile()),
    "oom": oom_sections(sample_answers.out_of_memory()),
    "check": check_sections(sample_answers.check()),
    "import": import_sections(sample_answers.imported()),
    "runs": (
        store_section(sample_runs.stored()),
        calibration_section(sample_runs.piloted().moved, num_measurements=1),
        watch_section(WATCHED, name="runs/one"),
    ),
    "accuracy": accuracy_sections(ACCURACY),
}
each_view = pytest.mark.parametrize("sections", SECTIONS.values(), ids=SECTIONS)


def charts(sections: tuple[Section, ...]) -> Iterator[Chart]:
    for section in sections:
        yield from (block for block in section.blocks if isinstance(block, Chart))


def text_of(sections: tuple[Section, ...]) -> str:
    return markdown(
        Document(
            kind="view",
            title="view",
            subtitle="",
            as_of=DAY,
            language="en",
            tuneplan_version="0",
            sections=sections,
        )
    )


@each_view
def test_every_row_has_a_cell_for_every_column(sections):
    for section in sections:
        assert section.blocks, section.name
        for block in section.blocks:
            if isinstance(block, Table):
                assert all(len(row) == len(block.columns) for row in block.rows), block.title
    assert text_of(sections)


@each_view
def test_every_chart_is_plain_json_has_words_and_can_be_drawn(sections):
    for chart in charts(sections):
        assert chart.caption
        for specification in (chart.specification, chart.narrow):
            assert json.loads(json.dumps(specification)) == specification
            assert svg(specification, label=chart.caption).startswith('<svg role="img"')


@each_view
def test_names_of_sections_and_of_charts_are_unique(sections):
    names = [section.name for section in sections]
    assert len(set(names)) == len(names)
    drawn = [chart.name for chart in charts(sections)]
    assert len(set(drawn)) == len(drawn)


# --- data -----------------------------------------------------------------------------------------


def line_of(answer, max_length: int) -> tuple[str, float]:
    (chart,) = (
        one for one in charts(data_sections(answer, max_length=max_length)) if one.name == "lengths"
    )
    rule = chart.specification["layer"][1]
    (value,) = rule["data"]["values"]
    return value["tokens"], value["share"]


def test_the_line_stands_where_the_length_lies_within_its_bar():
    assert line_of(profiled(1024), 1024) == ("512 - 1,023", 1.0)
    tokens, share = line_of(profiled(700), 700)
    assert tokens == "512 - 1,023"
    assert share == pytest.approx(0.4512, abs=1e-4)  # log2(700 / 512)
    assert line_of(profiled(5000), 5000) == ("1,024 - 2,047", 1.0)


def test_bars_that_a_length_cuts_off_whole_have_another_colour():
    (chart,) = (
        one for one in charts(data_sections(profiled(512), max_length=512)) if one.name == "lengths"
    )
    cut = {
        value["low"]: value["cut"] for value in chart.specification["layer"][0]["data"]["values"]
    }
    assert {low for low, is_cut in cut.items() if is_cut} == {512, 1024}


def test_looking_at_another_length_reads_no_file_and_keeps_what_was_known():
    at_700 = look_at(PROFILE, max_length=700)
    assert [one.max_length for one in at_700.at_max_length] == sorted(
        {*(one.max_length for one in PROFILE.at_max_length), 700}
    )
    kept = [one for one in at_700.at_max_length if one.max_length != 700]
    assert kept == list(PROFILE.at_max_length)
    assert look_at(PROFILE, max_length=PROFILE.at_max_length[0].max_length) is PROFILE


def test_other_batches_have_other_padding_and_the_same_truncation():
    smaller = look_at(PROFILE, max_length=None, per_device_train_batch_size=2)
    for one, other in zip(smaller.at_max_length, PROFILE.at_max_length, strict=True):
        assert one.truncated_tokens_fraction == other.truncated_tokens_fraction
        assert one.padding_fraction["longest"] < other.padding_fraction["longest"]
    assert (
        smaller.recommended.computed_tokens["longest"]
        < (PROFILE.recommended.computed_tokens["longest"])
    )


def test_a_profile_to_hand_on_names_its_file():
    document = data_document(profiled())
    assert "support_chat.jsonl" in document.title
    assert document.kind == "data"


# --- oom, check, runs -----------------------------------------------------------------------------


def test_a_diagnosis_begins_with_what_ran_out_and_lists_the_fixes_in_order():
    document = oom_document(sample_answers.out_of_memory())
    names = [section.name for section in document.sections]
    assert names == ["summary", "evidence", "fixes"]
    (table,) = (
        block
        for block in document.sections[2].blocks
        if isinstance(block, Table) and block.columns[0].name == "#"
    )
    ranks = [int(row[0].text) for row in table.rows]
    assert ranks == sorted(ranks)


def test_the_parts_of_the_card_add_up_to_its_capacity():
    answer = sample_answers.out_of_memory()
    (card,) = (one for one in charts(oom_sections(answer)) if one.name == "card")
    bars = card.specification["layer"][0]["data"]["values"]
    held = sum(bar["gib"] for bar in bars if bar["bar"] == "on the card")
    assert held == pytest.approx(answer.capacity_bytes / 2**30)


def test_a_check_says_the_verdict_what_was_read_and_what_was_not_carried():
    sections = check_sections(sample_answers.check())
    first, second = sections[0].blocks[:2]
    assert isinstance(first, Paragraph)
    assert first.text.startswith("FITS")
    assert isinstance(second, Paragraph)
    assert second.text.startswith("Read as LLaMA-Factory")
    text = text_of(sections)
    assert "warmup\\_stepz" in text
    assert "the data set is not here" in text


def test_a_run_that_is_not_there_is_waited_for():
    gone = WATCHED.model_copy(update={"missing": True, "step": None})
    text = text_of((watch_section(gone, name="runs/one"),))
    assert "runs/one is not there now; waiting for it" in text


def test_an_empty_store_says_how_to_fill_it():
    empty = sample_runs.stored().model_copy(update={"measurements": []})
    assert "tuneplan pilot JOB" in text_of((store_section(empty),))
    assert "stands here twice" in text_of((calibration_section((), num_measurements=0),))


# --- accuracy -------------------------------------------------------------------------------------


def test_the_evidence_in_the_package_is_what_the_page_of_accuracy_publishes():
    published = json.loads((ROOT / "docs" / "accuracy.json").read_text(encoding="utf-8"))
    assert [one.key for one in ACCURACY.figures] == list(published)
    for one in ACCURACY.figures:
        assert one.runs == published[one.key]["runs"]
        assert one.met == published[one.key]["met"]
        if not one.key.startswith("coverage"):  # published as the distance from the band's middle
            assert one.measured == pytest.approx(published[one.key]["measured"], abs=1e-5)


def test_every_figure_has_a_name_for_people():
    assert {one.key for one in ACCURACY.figures} <= set(figure_labels())


def test_points_say_the_same_share_inside_as_the_table_of_coverage():
    for quantity, key in (("memory", "coverage_memory_source"),):
        points = [one for one in ACCURACY.points if one.quantity.endswith("_bytes")]
        inside = sum(one.low <= one.measured <= one.high for one in points) / len(points)
        (figure,) = (one for one in ACCURACY.figures if one.key == key)
        assert inside == pytest.approx(figure.measured[0], abs=0.002), quantity
        assert len(points) == figure.runs
