"""Every figure of an estimate says where it comes from."""

import json
import re
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tuneplan.cli.main import run
from tuneplan.contract.reading import load_job
from tuneplan.contract.schema import json_schema
from tuneplan.errors import InputError
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import sources_for
from tuneplan.report.estimate_answer import estimate_answer
from tuneplan.report.explain import explain_text
from tuneplan.report.explain_answer import FIGURES, explain_answer
from tuneplan.report.page import Page

DAY = "2026-11-30"
SMALL = ("--model", "Qwen2.5-0.5B", "--method", "lora", "--accelerator", "NVIDIA A100 SXM 80GB")
DATA = ("--set", "data.num_samples=1000", "--set", "data.mean_tokens=500")
JOBS = {
    "lora on one card": {"method": "lora", "hardware": {"accelerator": "NVIDIA A100 SXM 80GB"}},
    "full on eight cards": {
        "method": "full",
        "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 8},
        "parallelism": {"strategy": "zero3"},
    },
    "qlora": {
        "method": "qlora",
        "training": {"precision": "fp16", "dtype": "float16"},
        "hardware": {"accelerator": "NVIDIA T4"},
    },
    "freeze": {
        "method": "freeze",
        "training": {"trained_layers": 2},
        "hardware": {"accelerator": "NVIDIA A10G"},
    },
}


@cache
def estimate(name: str) -> JobEstimate:
    data = {"num_samples": 1000, "mean_tokens": 500.0, "eval_fraction": 0.1}
    job = load_job({"model": "Qwen2.5-0.5B", "data": data, **JOBS[name]})
    return estimate_job(job, sources_for(job, today=date.fromisoformat(DAY)))


def paths(value: Any, start: str = "") -> list[str]:
    """Every path of an answer that ends in a number, a range or a verdict."""
    if not isinstance(value, dict) or "likely" in value:
        return [start]
    return [
        path for name, one in value.items() for path in paths(one, f"{start}.{name}".strip("."))
    ]


@pytest.mark.parametrize("name", JOBS)
def test_every_computed_figure_can_be_explained(name: str) -> None:
    answer = estimate_answer(estimate(name), as_of=DAY).model_dump(mode="json")
    told = {"job", "software", "assumptions", "warnings", "hardware", "lint", "timeline"}
    head = {"schema_version", "tuneplan_version", "command", "as_of", "language"}
    figures = paths({key: value for key, value in answer.items() if key not in told | head})
    no_figure = {
        *("memory.peak_phase", "memory.worst_rank", "memory.terms", "memory.by_phase"),
        *("fit.deciding_quantity", "time.terms", "cost.items"),
    }
    wanted = {one for one in figures if one not in no_figure and not one.startswith("cost.offer")}
    assert wanted == set(FIGURES)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_says_what_the_estimate_says(name: str, figure: str) -> None:
    answer: Any = estimate_answer(estimate(name), as_of=DAY).model_dump(mode="json")
    for key in figure.split("."):
        answer = answer[key]
    if answer is None:
        with pytest.raises(InputError, match="is unknown here"):
            explain_answer(estimate(name), figure, as_of=DAY)
        return
    explained = explain_answer(estimate(name), figure, as_of=DAY)
    assert explained.value == answer
    assert explained.tree[0].formula
    text = explain_text(explained, Page())
    assert text.startswith(f"{figure} = ")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", JOBS)
def test_the_terms_of_a_sum_are_its_children(name: str) -> None:
    peak = explain_answer(estimate(name), "memory.peak_bytes", as_of=DAY).tree[0]
    assert sum(child.value for child in peak.children) == peak.value["likely"]  # type: ignore[index,misc]
    step = explain_answer(estimate(name), "time.step_s", as_of=DAY).tree[0]
    total = sum(child.value for child in step.children)  # type: ignore[misc]
    assert total == pytest.approx(step.value["likely"], rel=1e-12)  # type: ignore[index]
    count = explain_answer(estimate(name), "model.total_parameters", as_of=DAY).tree[0]
    assert sum(child.value for child in count.children) == count.value  # type: ignore[misc]


def test_trained_parameters_are_the_sum_over_the_adapted_modules() -> None:
    node = explain_answer(estimate("lora on one card"), "model.trainable_parameters", as_of=DAY)
    # Qwen2.5-0.5B: 24 layers, hidden 896, values 128 wide; r 16 on q_proj and v_proj
    by_name = {child.name.rpartition(".")[2]: child.value for child in node.tree[0].children}
    assert by_name == {"q_proj": 24 * 16 * (896 + 896), "v_proj": 24 * 16 * (896 + 128)}
    assert sum(by_name.values()) == node.value  # type: ignore[arg-type]


def test_a_setting_tells_whether_it_was_stated_and_how_to_set_it() -> None:
    peak = explain_answer(estimate("lora on one card"), "memory.peak_bytes", as_of=DAY).tree[0]
    inputs = {one.name: one for child in peak.children for one in child.inputs}
    assert inputs["method"].basis == "stated"
    assumed = inputs["training.max_length"]
    assert assumed.basis == "assumed"
    assert assumed.source
    assert assumed.how_to_set == "--set training.max_length=VALUE"


def test_the_command_answers_as_the_contract_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "time.train_s", *SMALL, *DATA, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema("explain"))
    assert [child["name"] for child in document["tree"][0]["children"]] == [
        *("time.steps", "time.step_s")
    ]


def test_job_and_figure_may_stand_in_either_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: Qwen2.5-0.5B\nmethod: lora\n")
    answers = []
    for words in ([str(job), "memory.peak_bytes"], ["memory.peak_bytes", str(job)]):
        assert run(["explain", *words]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert answers[0].startswith("memory.peak_bytes = ")
    assert run(["explain", str(job), "memory.peek"]) == 2
    assert "no figure of the estimate is called 'memory.peek'" in capsys.readouterr().err


def test_one_term_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "memory.terms.adapters", *SMALL]) == 0
    assert "adapter.r = 16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("short", "whole"),
    [("adapters", "memory.terms.adapters"), ("matmul", "time.terms.matmul")],
)
def test_a_term_can_be_named_by_its_kind_alone(
    short: str, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", short, *SMALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == whole


def test_every_hint_names_a_figure_that_can_be_explained() -> None:
    hinted = set()
    for figure in FIGURES:
        if explained(figure) is not None:
            text = " ".join(explain_text(explained(figure), Page(width=160)).split())
            hinted |= set(re.findall(r"tuneplan explain (\S+) tells more", text))
    assert any(one.startswith("memory.terms.") for one in hinted)
    assert [one for one in sorted(hinted) if explained(one) is None] == []


@cache
def explained(figure: str) -> Any:
    try:
        return explain_answer(estimate("lora on one card"), figure, as_of=DAY)
    except InputError:
        return None


def test_a_cost_is_no_surer_than_the_hours_it_is_made_with() -> None:
    bases = set()
    for name in JOBS:
        node = explain_answer(estimate(name), "cost.total", as_of=DAY).tree[0]
        assert node.basis == node.children[0].basis
        bases.add(node.basis)
    assert "assumed" in bases  # some of the chips borrow another's kernel timings


def test_a_cost_in_another_currency_says_which_rate_compared_it_and_of_which_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "prices.yaml"
    sheet.write_text(
        "rates:\n"
        "  - {from: TWD, to: USD, rate: 0.0313, as_of: 2026-11-02, source: Bank of Taiwan}\n"
        "offers:\n"
        "  - {provider: Ours, name: node, accelerator: A100 SXM 80GB, num_accelerators: 1,\n"
        "     price: 1 TWD, per: hour, as_of: 2026-11-02, source: our sheet}\n"
    )
    mine = (*DATA, "--set", f"prices=[{sheet}]", "--set", "limits.budget=500 USD")
    assert run(["explain", "cost.total", *SMALL, *mine]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.match(r"cost.total = \S+ – \S+ – \S+ TWD|cost.total = \S+ TWD", text)
    assert "rate for comparing with USD = 1 TWD = 0.0313 USD" in text
    assert "2026-11-02: Bank of Taiwan" in text


def test_an_unknown_figure_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "memory.peak", *SMALL]) == 2
    text = capsys.readouterr().err
    assert "nearest: memory.peak_bytes" in text
    assert all(figure in text for figure in FIGURES)


@pytest.mark.parametrize(
    ("figure", "job", "missing"),
    [
        ("time.step_s", ("--model", "7B"), "--accelerator"),
        ("cost.total", SMALL, "--data"),
        ("memory.terms.adapter", SMALL, "memory.terms.adapters"),
    ],
)
def test_a_figure_that_is_not_computed_says_what_is_missing(
    figure: str, job: tuple[str, ...], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", figure, *job]) == 2
    assert missing in capsys.readouterr().err
