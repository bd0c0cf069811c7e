"""Plan, levers, comparison and reasons as the page shows them, from answers of real jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

import sample_pages
from tuneplan.contract.answers import PlanAnswer
from tuneplan.contract.reading import load_job
from tuneplan.planner.compare import compare_jobs
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.lever_table import levers_job
from tuneplan.planner.plan import plan_job
from tuneplan.planner.sources import Sources
from tuneplan.report.compare_answer import compare_answer
from tuneplan.report.explain_answer import explain_answer
from tuneplan.report.levers_answer import levers_answer
from tuneplan.report.plan_answer import plan_answer
from tuneplan.report.sections.compare import PlanLinks, compare_sections
from tuneplan.report.sections.levers import levers_sections
from tuneplan.report.sections.shortlist import SORTED_BY, PlanPage, plan_sections
from tuneplan.report.sections.why import why_sections
from tuneplan.report.view import Cell, Chart, Links, PageBlock, Paragraph, Table, Tree

DAY = "2026-11-30"
SOURCES = Sources(today=date(2026, 11, 30))
JOB = {
    "model": "Qwen/Qwen2.5-0.5B",
    "method": "lora",
    "data": {"num_samples": 21_000, "mean_tokens": 850},
}
CARDS = ["NVIDIA L4", "NVIDIA L40S", "RTX 4090"]
ON_L4 = {**JOB, "hardware": {"accelerator": "NVIDIA L4"}}


def written(settings: Mapping[str, Any]) -> str:
    return "/fit?" + "&".join(f"{key}={value}" for key, value in settings.items())


def together(several: Sequence[Mapping[str, Any]]) -> str:
    return "/compare?" + "|".join(written(one) for one in several)


PAGE = PlanPage(
    opened=written,
    switched=lambda settings: written(settings).replace("fit", "levers"),
    compared=together,
    sorted_by=lambda name, order: f"/plan?sort={name}&order={order}",
)


@pytest.fixture(name="plan", scope="module")
def of_plan() -> PlanAnswer:
    job = load_job({**JOB, "hardware": {"accelerator": CARDS}})
    return plan_answer(plan_job(job, SOURCES), as_of=DAY)


def blocks(sections: Sequence[Any]) -> list[PageBlock]:
    return [block for section in sections for block in section.blocks]


def tables(sections: Sequence[Any]) -> dict[str, Table]:
    return {
        section.name: block
        for section in sections
        for block in section.blocks
        if isinstance(block, Table)
    }


def likely(row: tuple[Cell, ...], column: int) -> float:
    return row[column].amounts[len(row[column].amounts) // 2].value


@pytest.mark.parametrize(
    ("name", "column"), [("memory", 3), ("duration", 4), ("card_hours", 5), ("cost", 6)]
)
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_the_shortlist_is_sorted_by_the_column_that_is_asked_for(
    plan: PlanAnswer, name: str, column: int, order: str
) -> None:
    page = replace(PAGE, sort=name, order=order)
    shortlist = tables(plan_sections(plan, page))["shortlist"]
    values = [likely(row, column) for row in shortlist.rows]
    assert values == sorted(values, reverse=order == "descending")
    assert shortlist.columns[column].order == order


def test_a_second_click_on_a_head_turns_the_order_round(plan: PlanAnswer) -> None:
    page = replace(PAGE, sort="cost", order="ascending")
    columns = tables(plan_sections(plan, page))["shortlist"].columns
    sortable = [column for column in columns if column.link]
    assert len(sortable) == len(SORTED_BY)
    assert columns[6].link == "/plan?sort=cost&order=descending"
    assert columns[4].link == "/plan?sort=duration&order=ascending"


def test_each_row_opens_its_candidate_and_compares_it_with_the_first(plan: PlanAnswer) -> None:
    rows = tables(plan_sections(plan, PAGE))["shortlist"].rows
    for entry, row in zip(plan.entries, rows, strict=True):
        assert row[1].link == written(entry.settings)
    assert rows[0][-1].link == ""
    assert rows[1][-1].link == together([plan.entries[0].settings, plan.entries[1].settings])


def test_the_scatter_shows_the_whole_front_and_leads_to_each_point(plan: PlanAnswer) -> None:
    chart = next(one for one in blocks(plan_sections(plan, PAGE)) if isinstance(one, Chart))
    drawn = [value for layer in chart.specification["layer"] for value in layer["data"]["values"]]
    addresses = {value["address"] for value in drawn if "address" in value}
    listed = {written(one.settings) for one in (*plan.entries, *plan.front)}
    assert addresses == listed
    assert {one.id for one in plan.front} == set(plan.pareto)


def test_the_front_of_a_plan_is_told_fastest_first_with_the_figures_of_its_entries(
    plan: PlanAnswer,
) -> None:
    hours = [one.total_s for one in plan.front if one.total_s is not None]
    assert len(hours) == len(plan.front)
    assert hours == sorted(hours)
    front = {one.id: one for one in plan.front}
    for entry in plan.entries:
        if entry.pareto:
            assert entry.estimate.time is not None
            assert entry.estimate.time.total_s is not None
            told = front[entry.id].total_s
            assert told == pytest.approx(entry.estimate.time.total_s.likely, rel=1e-6)


def test_the_smallest_and_the_next_lever_can_be_opened(plan: PlanAnswer) -> None:
    better = next(one for one in plan_sections(plan, PAGE) if one.name == "better")
    smallest = next(one for one in plan.entries if "smallest" in one.labels)
    addresses = [
        link.address for one in better.blocks if isinstance(one, Links) for link in one.items
    ]
    assert written(smallest.settings) in addresses
    if plan.next_best_lever is not None:
        both = {**plan.entries[0].settings, **plan.next_best_lever.settings}
        assert written(both) in addresses


def test_every_reason_of_rejection_stands_in_the_list(plan: PlanAnswer) -> None:
    rows = tables(plan_sections(plan, PAGE))["why_not"].rows
    assert [row[1].text for row in rows] == [one.message for one in plan.rejected.by_reason]


def test_a_plan_of_nothing_says_what_to_relax() -> None:
    job = load_job({**ON_L4, "model": "Qwen/Qwen2.5-72B", "method": "full"})
    answer = plan_answer(plan_job(job, SOURCES), as_of=DAY)
    first = blocks(plan_sections(answer, PAGE))[0]
    assert isinstance(first, Paragraph)
    assert first.tone == "does_not_fit"
    second, levers = blocks(plan_sections(answer, PAGE))[1:3]
    assert isinstance(second, Paragraph)
    assert "qlora" in second.text
    assert isinstance(levers, Links)
    assert levers.items[0].address.startswith("/levers?hardware.accelerator=NVIDIA L4")


def test_each_lever_leads_to_the_job_with_its_change() -> None:
    job = load_job(ON_L4)
    answer = levers_answer(levers_job(job, SOURCES), as_of=DAY)
    found = tables(levers_sections(answer, address=written))
    helping = [one for one in answer.levers if one.cannot_help_because is None]
    assert [row[0].link for row in found["levers"].rows] == [
        written(one.settings) for one in helping
    ]
    reasons = [one.cannot_help_because for one in answer.levers if one.cannot_help_because]
    assert [row[1].text for row in found["no_help"].rows] == reasons


def test_what_is_saved_is_read_with_a_minus() -> None:
    row = tables(levers_sections(sample_pages.levered()))["levers"].rows[0]
    assert row[1].amounts[1].text == "\N{MINUS SIGN}2.00"
    assert row[1].tone == "better"
    assert row[3].text == "\N{MINUS SIGN}35%"
    assert row[1].amounts[0].value <= row[1].amounts[1].value <= row[1].amounts[2].value


def test_differences_and_the_best_of_each_row_are_marked() -> None:
    jobs = [ON_L4, {**ON_L4, "method": "qlora", "training": {"max_length": 512}}]
    answer = compare_answer(
        compare_jobs([lambda one=one: load_job(one) for one in jobs], lambda _job: SOURCES),
        as_of=DAY,
    )
    found = tables(compare_sections(answer))
    keys = {one.key for one in answer.differences}
    assert {"method", "training.max_length"} <= keys
    assert "model" not in keys
    method = next(row for row in found["differences"].rows if row[0].text == "method")
    assert [cell.tone for cell in method[1:]] == ["", "differs"]
    for figure in answer.best:
        assert figure.best in (0, 1)
    marked = [cell.tone for row in found["compare"].rows for cell in row]
    assert marked.count("better") == len(answer.best)


def test_a_plan_that_cannot_be_has_its_mistakes_beside_the_others() -> None:
    sections = compare_sections(
        sample_pages.compared(), links=[PlanLinks(opened="/fit?a"), PlanLinks(opened="/fit?b")]
    )
    texts = [item for one in blocks(sections) for item in getattr(one, "items", ())]
    assert "no model 'Nonesuch'" in texts
    row = tables(sections)["compare"].rows[0]
    assert row[2].tone == "does_not_fit"


@pytest.mark.parametrize("figure", ["cost.total", "memory.peak_bytes", "memory.terms.adapters"])
def test_a_figure_opens_into_its_formula_inputs_basis_and_source(figure: str) -> None:
    estimate = estimate_job(load_job(ON_L4), SOURCES)
    answer = explain_answer(estimate, figure, as_of=DAY, sources=SOURCES)
    sections = why_sections(answer, address=lambda name: f"/why?figure={name}")
    tree = next(one for one in blocks(sections) if isinstance(one, Tree))
    root = tree.nodes[0]
    assert root.name in (figure, figure.rpartition(".")[2])
    assert root.formula
    assert root.basis
    linked = {row[0].link for row in tables(sections)["figures"].rows}
    assert "/why?figure=time.total_s" in linked
    assert len(answer.figures) > 25


def test_every_figure_of_the_index_can_be_explained() -> None:
    estimate = estimate_job(load_job(ON_L4), SOURCES)
    index = explain_answer(estimate, "memory.peak_bytes", as_of=DAY).figures
    for one in index:
        again = explain_answer(estimate, one.name, as_of=DAY, sources=SOURCES)
        assert again.value == one.value
