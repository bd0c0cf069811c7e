import csv
import io
import json
import sys

import pytest
from rich.console import Console

from planner.test_validate import Planner, file_of
from runs.rows_for_tests import FSDP_QLORA, LITGPT
from tuneplan.planner.validate import validate
from tuneplan.report.validation import print_validation
from tuneplan.report.validation_export import rows_csv, validation_answer
from tuneplan.report.validation_html import validation_html


@pytest.fixture
def validation(tmp_path):
    skipped = {**LITGPT, "id": "odd-1", "method": "other"}
    return validate(file_of(tmp_path, LITGPT, FSDP_QLORA, skipped), predict=Planner())


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_keep_to_the_width_and_show_errors_terms_and_reasons(validation, width):
    console = Console(width=width, file=io.StringIO(), record=True)
    print_validation(validation, console, group_by=("source", "method"))
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    for words in ("litgpt-rt", "fsdpq", "qlora", "-1.0%", "+15.2%", "weights 12.1 GiB"):
        assert words in text
    assert "method_unknown" in text


def test_the_json_answer_has_the_fields_of_its_contract(validation):
    answer = json.loads(json.dumps(validation_answer(validation)))
    assert set(answer) >= {"rows", "summary", "verdicts", "skipped"}
    first, _, odd = answer["rows"]
    assert first["predicted"]["peak_bytes"]["likely"] == 14e9
    assert first["predicted"]["step_s"] is None
    assert set(first["compared"][0]) == {
        "quantity",
        "measured",
        "likely",
        "error_fraction",
        "inside_interval",
        "probability",
    }
    assert (odd["status"], odd["reason"], odd["predicted"]) == ("skipped", "method_unknown", None)
    assert set(answer["summary"][0]) >= {
        "quantity",
        "method",
        "framework",
        "accelerator",
        "source",
        "count",
        "median_abs_error_fraction",
        "p90_abs_error_fraction",
        "bias_fraction",
        "coverage_fraction",
        "median_width_fraction",
    }
    assert answer["skipped"][0]["count"] == 1
    assert answer["verdicts"]["missed_oom_rate"] is None


def test_the_spreadsheet_has_a_line_for_each_compared_figure_and_each_skipped_row(validation):
    lines = list(csv.DictReader(io.StringIO(rows_csv(validation))))
    assert [(line["id"], line["quantity"]) for line in lines] == [
        ("litgpt-rt-012", "peak_bytes"),
        ("fsdpq-002", "peak_reserved_bytes"),
        ("fsdpq-002", "tokens_per_s_per_accelerator"),
        ("odd-1", ""),
    ]
    assert lines[3]["reason"].startswith("the method 'other'")


def test_the_page_has_tables_charts_and_nothing_to_load(validation):
    page = validation_html(validation, as_of="2026-12-01")
    assert page.count("<svg ") >= 4
    assert "<table>" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "<script" not in page


def test_without_the_extra_the_page_keeps_its_tables_and_says_how_to_install(
    validation, monkeypatch
):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    page = validation_html(validation, as_of="2026-12-01")
    assert "<svg " not in page
    assert "<table>" in page
    assert "tuneplan[report]" in page


def test_no_cell_of_the_csv_becomes_a_formula(tmp_path):
    harmful = {**LITGPT, "id": "=HYPERLINK(A1)"}
    text = rows_csv(validate(file_of(tmp_path, harmful), predict=Planner()))
    (row, *_) = csv.DictReader(io.StringIO(text))
    assert row["id"] == "'=HYPERLINK(A1)"
    assert float(row["error_fraction"]) < 0  # a number keeps its sign
