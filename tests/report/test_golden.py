"""Reports beside the files in ``tests/golden``, whose README says how to write them anew."""

import os
from pathlib import Path

import pytest

import sample_answers
import sample_money
from tuneplan.report.budget import budget_text
from tuneplan.report.check import check_text
from tuneplan.report.document import estimate_document
from tuneplan.report.estimate import estimate_text
from tuneplan.report.explain import explain_text
from tuneplan.report.imported import import_text
from tuneplan.report.markdown import markdown
from tuneplan.report.page import Page
from tuneplan.report.plan import plan_text
from tuneplan.report.rules import rules_text
from tuneplan.report.schedule import schedule_text

GOLDEN = Path(__file__).parents[1] / "golden"
REPORTS = {
    "budget": lambda: budget_text(sample_money.budget(), Page()),
    "budget-wide": lambda: budget_text(sample_money.budget(), Page(width=120), full=True),
    "check": lambda: check_text(sample_answers.check(), Page()),
    "check-wide": lambda: check_text(sample_answers.check(), Page(width=120), full=True),
    "estimate": lambda: estimate_text(sample_answers.estimate(), Page()),
    "estimate-all": lambda: estimate_text(sample_answers.estimate(), Page(), full=True),
    "explain": lambda: explain_text(sample_answers.explain(), Page()),
    "import": lambda: import_text(sample_answers.imported(), Page(), full=True),
    "schedule": lambda: schedule_text(sample_answers.scheduled(), Page()),
    "report": lambda: markdown(estimate_document(sample_answers.check())),
    "rules": lambda: rules_text(sample_money.rules(), Page()),
    "plan": lambda: plan_text(sample_answers.plan(), Page()),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_reads_as_it_did(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = REPORTS[name]() + "\n"
    if os.environ.get("TUNEPLAN_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
