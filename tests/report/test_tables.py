import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sample_answers
import sample_money
from tuneplan.contract.parts import Money, MoneyRange, Range
from tuneplan.report.budget import budget_text
from tuneplan.report.catalog import catalog_text
from tuneplan.report.estimate import estimate_text
from tuneplan.report.explain import explain_text
from tuneplan.report.page import Page
from tuneplan.report.plan import plan_text
from tuneplan.report.prices import break_even_text, refresh_text
from tuneplan.report.rules import rules_text
from tuneplan.report.tables import (
    Column,
    bar,
    bytes_range_text,
    money_range_text,
    number_text,
    points,
    range_text,
    render,
    table,
    time_range_text,
)
from tuneplan.spec.answer import Basis
from tuneplan.units import GIB

REPORTS = {
    "estimate": lambda page: estimate_text(sample_answers.estimate(), page),
    "plan": lambda page: plan_text(sample_answers.plan(), page),
    "budget": lambda page: budget_text(sample_money.budget(), page, full=True),
    "rules": lambda page: rules_text(sample_money.rules(), page, full=True),
    "prices refresh": lambda page: refresh_text(sample_money.refreshed(), page),
    "break-even": lambda page: break_even_text(sample_money.two_offers(), page),
    "explain": lambda page: explain_text(sample_answers.explain(), page),
    "catalog": lambda page: catalog_text(sample_answers.catalog(), page),
    "catalog entry": lambda page: catalog_text(sample_answers.catalog(1), page),
}


def a_range(low: float, likely: float, high: float) -> Range:
    return Range(low=low, likely=likely, high=high, basis=Basis.ANALYTIC)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_keeps_to_the_width_of_the_page(name: str, width: int) -> None:
    text = REPORTS[name](Page(width=width))
    assert text.strip()
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [40, 48, 60, 66])
@pytest.mark.parametrize("name", ["plan", "estimate"])
def test_on_a_narrow_page_no_word_is_cut(name: str, width: int) -> None:
    text = REPORTS[name](Page(width=width))
    assert max(len(line) for line in text.splitlines()) <= width
    whole = set(REPORTS[name](Page(width=160)).replace(",", " ").split())
    letters = {word.strip(":().;") for word in text.replace(",", " ").split()}
    for word in ("NVIDIA", "checkpointing", "training.gradient_checkpointing", "probability"):
        assert (word in letters) or word not in {one.strip(":().;") for one in whole}


@pytest.mark.parametrize("name", REPORTS)
def test_without_colours_a_report_holds_no_control_characters(name: str) -> None:
    assert all(char == "\n" or char.isprintable() for char in REPORTS[name](Page()))


@pytest.mark.parametrize("name", REPORTS)
def test_colours_change_nothing_but_the_colours(name: str) -> None:
    colored = re.sub(r"\x1b\[[0-9;]*m", "", REPORTS[name](Page(colors=True)))
    plain = REPORTS[name](Page())
    assert [line.rstrip() for line in colored.splitlines()] == plain.splitlines()


def test_an_estimate_tells_verdict_ranges_terms_and_assumptions() -> None:
    text = REPORTS["estimate"](Page(width=100))
    for piece in (
        "FITS. It needs 23.2 GiB of the 79.1 GiB of each card (allocated peak + unusable",
        "55.9 GiB (71%) stay free.",
        "23.2 GiB = 22.4 GiB allocated peak + 0.20 GiB unusable",
        "20.2 – 22.4 – 26.9 GiB",
        "1.40 – 1.56 – 1.87 USD",
        "weights",
        "training.gradient_checkpointing",
        "an offer has no region",
    ):
        assert piece in text


def test_a_plan_without_entries_says_that_nothing_fits() -> None:
    empty = sample_answers.plan().model_copy(update={"entries": []})
    assert "Nothing fits" in plan_text(empty, Page())


@given(st.floats(0, 1), st.integers(1, 60))
def test_a_bar_is_never_longer_than_its_width(fraction: float, width: int) -> None:
    assert len(bar(fraction, width=width)) <= width


def test_a_bar_is_exact_to_an_eighth() -> None:
    assert bar(0.5, width=4) == "██"
    assert bar(1 / 32, width=4) == "▏"
    assert bar(7.0, width=2) == "██"


@given(st.floats(1e-6, 1e15))
def test_a_number_reads_back_within_half_a_percent(value: float) -> None:
    text = number_text(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_ranges_read_in_the_unit_of_the_likely_value() -> None:
    assert bytes_range_text(a_range(20 * GIB, 22.4 * GIB, 25 * GIB)) == "20.0 – 22.4 – 25.0 GiB"
    assert time_range_text(a_range(5400, 7200, 9000)) == "1.50 – 2.00 – 2.50 h"
    assert time_range_text(a_range(0.1, 0.2, 0.3)) == "100 – 200 – 300 ms"
    assert time_range_text(a_range(300_000, 300_000, 300_000)) == "3.47 d"
    assert range_text(a_range(1, 2, 3), "kWh") == "1.00 – 2.00 – 3.00 kWh"


def test_what_is_unknown_is_a_dash_and_a_certain_figure_stands_once() -> None:
    assert range_text(None) == bytes_range_text(None) == time_range_text(None) == "–"
    assert money_range_text(None) == "–"
    one = Money(amount="5.00", currency="TWD")
    assert money_range_text(MoneyRange(low=one, likely=one, high=one)) == "5.00 TWD"


def test_brackets_in_names_are_no_markup() -> None:
    text = render([table([Column(name="[bold]a")], [["[red]x[/red]"]]), points(["[b]y"])], Page())
    assert "[bold]a" in text
    assert "[red]x[/red]" in text
    assert "[b]y" in text


def test_wide_characters_count_double() -> None:
    text = render(
        [table([Column(name="名稱"), Column(name="b")], [["微調" * 30, "x"]])], Page(width=40)
    )
    assert all(
        len(line) + sum(ord(char) > 0x2E80 for char in line) <= 40 for line in text.splitlines()
    )
