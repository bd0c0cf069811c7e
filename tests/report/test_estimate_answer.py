"""The estimate as an answer: sums are exact, unknown is null, and the job can be run again."""

import json
from datetime import date
from typing import Any

import jsonschema
import pytest

from tuneplan.contract.reading import load_job
from tuneplan.contract.schema import json_schema
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import sources_for
from tuneplan.report.estimate import estimate_text
from tuneplan.report.estimate_answer import estimate_answer
from tuneplan.report.labels import memory_term_label, time_term_label
from tuneplan.report.page import Page

DAY = "2026-11-30"
DATA = {"num_samples": 2000, "mean_tokens": 400.0, "quantiles": {"p50": 300, "max": 3000}}
JOBS: dict[str, dict[str, Any]] = {
    "lora": {"method": "lora", "hardware": {"accelerator": "NVIDIA A100 SXM 80GB"}},
    "qlora, packed, 4090": {
        "method": "qlora",
        "training": {"packing": True, "optim": "paged_adamw_8bit", "max_length": 2048},
        "hardware": {"accelerator": "RTX 4090"},
    },
    "full, zero3, two nodes": {
        "method": "full",
        "training": {"eval_steps": 50, "save_total_limit": 2, "global_batch_size": 256},
        "data": {**DATA, "eval_fraction": 0.05},
        "hardware": {"accelerator": "H100", "accelerators_per_node": 8, "num_nodes": 2},
        "parallelism": "zero3",
    },
    "dpo with llamafactory": {
        "objective": "dpo",
        "method": "lora",
        "framework": "llamafactory",
        "hardware": {"accelerator": "NVIDIA H100 SXM"},
    },
    "freeze without data": {
        "method": "freeze",
        "data": {},
        "training": {"trained_layers": 3},
        "hardware": {"accelerator": "NVIDIA L40S"},
    },
    "no accelerator": {"method": "lora"},
    "nothing said": {"data": {}},
}


def estimated(document: dict[str, Any]) -> JobEstimate:
    job = load_job(document)
    return estimate_job(job, sources_for(job, today=date.fromisoformat(DAY)))


def answer_of(document: dict[str, Any]) -> dict[str, Any]:
    return estimate_answer(estimated(document), as_of=DAY).model_dump(mode="json")


@pytest.fixture(scope="module", params=JOBS)
def answer(request: pytest.FixtureRequest) -> dict[str, Any]:
    return answer_of({"model": "Qwen2.5-1.5B", "data": DATA, **JOBS[request.param]})


def test_an_answer_is_one_that_the_schema_describes(answer: dict[str, Any]) -> None:
    jsonschema.validate(json.loads(json.dumps(answer, allow_nan=False)), json_schema("estimate"))


def test_terms_sum_to_the_likely_peak_and_to_the_likely_step(answer: dict[str, Any]) -> None:
    memory, time = answer["memory"], answer["time"]
    assert sum(term["size_bytes"] for term in memory["terms"]) == memory["peak_bytes"]["likely"]
    for term in memory["terms"]:
        if term["parts"]:
            assert sum(part["size_bytes"] for part in term["parts"]) == term["size_bytes"]
    if time is not None:
        total = sum(term["time_s"] for term in time["terms"])
        assert total == pytest.approx(time["step_s"]["likely"], rel=1e-12)


def test_an_assumption_stands_once(answer: dict[str, Any]) -> None:
    names = [one["name"] for one in answer["assumptions"]]
    assert len(names) == len(set(names))


def test_the_answered_job_run_again_gives_the_same_answer(answer: dict[str, Any]) -> None:
    again = answer_of(answer["job"])
    for part in ("hardware", "data", "fit", "memory", "model", "time", "cost", "storage"):
        assert again[part] == answer[part], part
    assert again["job"] == answer["job"]
    before = {one["name"] for one in answer["assumptions"]}
    assert {one["name"] for one in again["assumptions"]} <= before


def test_every_term_has_a_name_for_people(answer: dict[str, Any]) -> None:
    for term in answer["memory"]["terms"]:
        assert term["kind"] == "gradients" or memory_term_label(term["kind"]) != term["kind"]
    plain = {"attention", "loss", "embedding"}  # words of their own, as gradients is
    for term in (answer["time"] or {"terms": []})["terms"]:
        assert term["kind"] in plain or time_term_label(term["kind"]) != term["kind"]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", JOBS)
def test_a_report_keeps_to_the_width(name: str, width: int, full: bool) -> None:
    estimate = estimated({"model": "Qwen2.5-1.5B", "data": DATA, **JOBS[name]})
    text = estimate_text(estimate_answer(estimate, as_of=DAY), Page(width=width), full=full)
    assert max(map(len, text.splitlines())) <= width


def test_the_cards_of_the_table_can_run_the_job_and_come_smallest_first() -> None:
    answer = answer_of({"model": "7B", "method": "lora"})
    names = [row["accelerator"] for row in answer["fit"]]
    sizes = [row["capacity_bytes"] for row in answer["fit"]]
    assert sizes == sorted(sizes)
    assert not any(name.startswith(("Apple", "Google", "AWS", "Huawei")) for name in names)
    flash = answer_of({"model": "7B", "training": {"attn_implementation": "flash_attention_2"}})
    assert "NVIDIA T4" in names
    assert "NVIDIA T4" not in {row["accelerator"] for row in flash["fit"]}


def test_a_type_that_the_card_only_emulates_leaves_time_open_and_answers_memory() -> None:
    job = {"model": "7B", "method": "qlora", "hardware": {"accelerator": "T4"}}
    answer = answer_of({**job, "training": {"precision": "bf16"}})
    assert answer["memory"]["peak_bytes"]["likely"] > 0
    assert answer["time"] is answer["cost"] is None
    assert "time_unknown" in {one["code"] for one in answer["warnings"]}


def test_the_age_of_the_price_is_told() -> None:
    estimate = estimated({"model": "Qwen2.5-1.5B", "data": DATA, **JOBS["lora"]})
    answer = estimate_answer(estimate, as_of=DAY)
    assert answer.cost is not None
    days = (date.fromisoformat(DAY) - date.fromisoformat(answer.cost.offer.as_of)).days
    assert f"{days} days old" in estimate_text(answer, Page(width=200))


def test_a_job_that_does_not_fit_is_not_given_an_end() -> None:
    job = {"model": "7B", "method": "full", "data": DATA, "hardware": {"accelerator": "RTX 4090"}}
    text = estimate_text(estimate_answer(estimated(job), as_of=DAY), Page())
    assert "DOES NOT FIT." in text
    assert "Takes" not in text
