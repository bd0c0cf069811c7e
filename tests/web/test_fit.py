"""Fit: as a page, as a fragment, as JSON."""

import json

from starlette.testclient import TestClient

import tuneplan
from tuneplan.report.estimate_answer import estimate_answer
from web.asking import DAY, JOB, Elements, client


def test_the_page_answers_and_keeps_what_was_asked() -> None:
    answered = client().get(f"/fit?{JOB}")
    assert answered.status_code == 200
    page = Elements(answered.text)
    assert page.one("input", id="model")["value"] == "Qwen/Qwen2.5-7B-Instruct"
    assert page.all("section", id="memory")
    assert page.all("p", **{"class": "fits"})


def test_without_a_model_there_is_a_form_and_no_mistake() -> None:
    answered = client().get("/fit")
    assert answered.status_code == 200
    page = Elements(answered.text)
    assert not page.all("section")
    assert page.one("form", id="form")["method"] == "get"


def test_a_script_gets_the_answer_alone() -> None:
    answered = client().get(f"/fit?{JOB}", headers={"HX-Request": "true"})
    assert answered.status_code == 200
    assert answered.headers["HX-Replace-Url"].startswith("/fit?model=Qwen")
    page = Elements(answered.text)
    assert page.all("div", id="answer")
    assert not page.all("form", id="form")


def test_the_json_is_that_of_the_command() -> None:
    answered = client().get(f"/api/fit?{JOB}")
    assert answered.status_code == 200
    job = {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "method": "lora",
        "data": {"num_samples": 1000, "mean_tokens": 500},
        "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 1},
    }
    told = estimate_answer(tuneplan.estimate(job, today=DAY), as_of=DAY.isoformat())
    assert answered.json() == told.model_dump(mode="json")


def test_a_program_may_send_the_job_itself() -> None:
    job = {"model": "7B", "method": "lora", "hardware": {"accelerator": "NVIDIA L4"}}
    asked = client().post("/api/fit", json={"job": job, "max_length": 1024})
    assert asked.status_code == 200
    assert asked.json()["job"]["training"]["max_length"] == 1024


def test_every_mistake_stands_beside_its_field() -> None:
    query = "model=7B&method=lorra&max_length=long&colour=red"
    page = client().get(f"/fit?{query}")
    assert page.status_code == 400
    elements = Elements(page.text)
    assert elements.one("select", id="method")["aria-invalid"] == "true"
    assert elements.one("input", id="max_length")["aria-invalid"] == "true"
    told = {one["path"]: one for one in _errors(client(), query)}
    assert set(told) == {"method", "training.max_length", "colour"}
    assert told["method"]["near"][0] == "lora"


def _errors(asking: TestClient, query: str) -> list[dict[str, object]]:
    answered = asking.get(f"/api/fit?{query}")
    assert answered.status_code == 400
    return json.loads(answered.text)["errors"]
