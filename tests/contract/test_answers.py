import json
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import sample_answers
import sample_money
import sample_pages
import sample_runs
from tuneplan.contract.answers import Errors, Fit
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import (
    Range,
    assumption_model,
    money_model,
    notice_model,
    range_model,
    term_models,
    time_term_models,
    whole_parts,
)
from tuneplan.contract.plain_json import json_value
from tuneplan.contract.reading import load_job, load_job_text
from tuneplan.contract.schema import NAMES, json_schema
from tuneplan.errors import InvalidRequest, UnknownName
from tuneplan.language import message
from tuneplan.report.errors import errors_document
from tuneplan.spec.answer import Assumption, Basis, Estimate, Notice, Term
from tuneplan.spec.offer import Money

FULL = Path(__file__).parent / "jobs" / "full.yaml"
ANSWERS: dict[str, BaseModel] = {
    "estimate": sample_answers.estimate(),
    "plan": sample_answers.plan(),
    "trace": sample_answers.trace(),
    "check": sample_answers.check(),
    "import": sample_answers.imported(),
    "oom": sample_answers.out_of_memory(),
    "export": sample_answers.exported(),
    "report": sample_answers.reported(),
    "schedule": sample_answers.scheduled(),
    "explain": sample_answers.explain(),
    "levers": sample_pages.levered(),
    "compare": sample_pages.compared(),
    "budget": sample_money.budget(),
    "rules": sample_money.rules(),
    "prices-refresh": sample_money.refreshed(),
    "break-even": sample_money.two_offers(),
    "catalog": sample_answers.catalog(),
    "data-profile": sample_answers.data_profile(),
    "data-tokenize": sample_answers.data_tokenize(),
    "validate": sample_answers.validation(),
    "learn": sample_runs.learned(),
    "store-list": sample_runs.stored(),
    "watch": sample_runs.watched(),
    "runs": sample_runs.runs(),
    "accuracy": sample_runs.accuracy(),
    "pilot": sample_runs.piloted(),
    "pilot-matrix": sample_runs.piloted_matrix(),
}


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_schema_but_those_of_job_and_errors_has_a_sample() -> None:
    assert {*ANSWERS, "job", "errors"} == set(NAMES)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_obeys_its_schema_and_survives_json(name: str) -> None:
    document = json.loads(json.dumps(ANSWERS[name].model_dump(mode="json"), allow_nan=False))
    validator(name).validate(document)
    assert type(ANSWERS[name]).model_validate(document) == ANSWERS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_starts_with_the_same_header(name: str) -> None:
    document = ANSWERS[name].model_dump(mode="json")
    assert {"schema_version", "tuneplan_version", "command", "as_of", "language"} <= set(document)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_unknown_is_null_and_never_absent(name: str) -> None:
    document = ANSWERS[name].model_dump(mode="json")
    assert set(json_schema(name)["required"]) == set(document)
    for key in document:
        broken = {other: value for other, value in document.items() if other != key}
        assert not validator(name).is_valid(broken)


def test_a_reader_accepts_fields_of_a_later_release() -> None:
    document = {**ANSWERS["estimate"].model_dump(mode="json"), "new_field": 1}
    validator("estimate").validate(document)


def test_a_misspelt_field_is_refused_when_an_answer_is_made() -> None:
    with pytest.raises(ValidationError):
        Fit(verdict="fits", capacity_bytes=1, headroom_bytes=0, deciding_quantity="x", hedroom=1)  # type: ignore[call-arg]


def test_a_range_that_is_not_ordered_is_refused() -> None:
    with pytest.raises(ValidationError):
        Range(low=2, likely=1, high=3, basis=Basis.ASSUMED)


def test_the_error_object_obeys_its_schema() -> None:
    with pytest.raises(InvalidRequest) as caught:
        load_job_text("model: 7B\ntraining: {max_length: .inf, x: {y: 1}}\n")
    document = json.loads(json.dumps(errors_document(caught.value.mistakes), allow_nan=False))
    validator("errors").validate(document)
    assert Errors.model_validate(document).errors[0].line == 2
    keys = {"code", "message", "path", "line", "value", "near", "how_to_fix"}
    assert keys <= set(document["errors"][0])


@pytest.mark.parametrize(
    "job",
    [
        yaml.safe_load(FULL.read_text()),
        {"model": "Qwen/Qwen2.5-7B-Instruct"},
        {"model_name_or_path": "7B", "load_in_4bit": True, "lora_r": 8, "learning_rate": 1e-4},
        {"model": "7B", "data": "x.jsonl", "parallelism": "zero3", "method": ["lora", "qlora"]},
        {"model": "7B", "training": {"gradient_accumulation_steps": "auto", "bf16": True}},
    ],
)
def test_a_job_that_is_read_obeys_the_schema(job: dict[str, Any]) -> None:
    load_job(job)
    validator("job").validate(job)


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"model": "7B", "methd": "lora"},
        {"model": "7B", "training": {"max_length": -1}},
        {"model": "7B", "goal": "best"},
        {"model": "7B", "limits": {"headroom": 1.5}},
        {"model": "7B", "hardware": {"host_memory": 256}},
    ],
)
def test_a_job_that_is_refused_does_not_obey_the_schema(job: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        load_job(job)
    assert not validator("job").is_valid(job)


def test_an_unknown_schema_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName) as caught:
        json_schema("estimat")
    assert caught.value.near[0] == "estimate"


def test_core_values_become_parts() -> None:
    estimate = Estimate(low=1.4, likely=2.5, high=3.6)
    assert range_model(estimate).likely == 2.5
    whole = range_model(estimate, whole=True)
    assert (whole.low, whole.likely, whole.high) == (1, 2, 4)
    term = Term(kind="weights", value=10.0, formula="P x 2", inputs={"P": 5}, source="s")
    outer = Term(kind="all", value=10.0, formula="sum", parts=(term,))
    assert term_models([outer], total=10)[0].parts[0].size_bytes == 10
    assert time_term_models([outer])[0].parts[0].time_s == 10.0
    text = message("code", "because of {what}", what="x")
    assumption = Assumption(name="a", value=(1, 2), reason=text, source="s", how_to_set="h")
    assert assumption_model(assumption).value == [1, 2]
    assert assumption_model(assumption).reason == "because of x"
    assert notice_model(Notice(message=text, line=3)).params == {"what": "x"}


def test_money_is_exact_and_rounded_half_to_even_once() -> None:
    # 0.125 and 0.135 lie half-way; the even cent is taken, and no float is in between
    amounts = [
        money_model(Money(amount=Decimal(a), currency="USD")).amount for a in ("0.125", "0.135")
    ]
    assert amounts == ["0.12", "0.14"]
    assert money_model(Money(amount=Decimal("1E+3"), currency="JPY"), decimals=0).amount == "1000"


def test_any_value_of_ours_becomes_plain_json() -> None:
    value = MappingProxyType(
        {
            "tuple": (1, Basis.MEASURED, None, True),
            "decimal": Decimal("1.10"),
            "numpy": np.float64(1.5),
            "inf": float("inf"),
            "message": message("c", "t {x}", x=1),
            "estimate": Estimate(low=0, likely=1, high=2),
            "set": {2, 1},
        }
    )
    assert json_value(value) == {
        "tuple": [1, "measured", None, True],
        "decimal": "1.10",
        "numpy": 1.5,
        "inf": "inf",
        "message": "t 1",
        "estimate": {"low": 0, "likely": 1, "high": 2, "basis": "analytic"},
        "set": [1, 2],
    }


def test_a_job_in_an_answer_has_every_key_and_reads_back_as_the_same_job() -> None:
    job = load_job(FULL)
    document = job_document(job)
    assert document["limits"]["deadline"] == "86400.000000 s"
    assert document["hardware"]["host_memory"] == f"{256 * 2**30} B"
    assert document["training"]["loss"] is None
    again = load_job(json.loads(json.dumps(document, allow_nan=False)))
    for name in ("model", "data", "hardware", "prices", "project", "goal"):
        assert getattr(again, name) == getattr(job, name)
    assert again.recipe == job.recipe
    assert again.limits == job.limits


def test_assumptions_fill_the_blanks_of_a_job_and_nothing_else() -> None:
    job = load_job({"model": "7B", "training": {"max_length": 512}})
    text = message("code", "because")

    def assume(name: str, value: object) -> Assumption:
        return Assumption(name=name, value=value, reason=text, source="s", how_to_set="h")

    assumptions = [
        assume("framework", "trl"),
        assume("software.trl", "1.16.0"),
        assume("software.torch", "2.11.0"),
        assume("training.max_length", 1024),
        assume("training.gradient_checkpointing", "full"),
        assume("training.eval_steps", 0),
        assume("behaviour.hidden_dtype", "float32"),
    ]
    document = job_document(job, assumptions)
    assert document["framework"] == "trl==1.16.0"
    assert document["software"] == {"torch": "2.11.0"}
    assert document["training"]["max_length"] == 512
    assert document["training"]["gradient_checkpointing"] is True
    assert document["training"]["eval_strategy"] == "no"
    assert document["training"]["eval_steps"] is None
    assert "behaviour" not in document


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=40))
def test_rounded_parts_sum_to_the_rounded_whole(values: list[float]) -> None:
    total = round(sum(values))
    parts = whole_parts(values, total)
    assert sum(parts) == total
    assert all(abs(part - value) <= 1 for part, value in zip(parts, values, strict=True))
