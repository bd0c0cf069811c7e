"""Runs: the store, what it moves, a live run within the allowed folders."""

import json
import shutil
from pathlib import Path

import pytest

from tuneplan.contract.job_document import job_document
from tuneplan.contract.reading import load_job
from tuneplan.report.learned_answer import store_answer
from tuneplan.spec.measurement import Environment, Measurement, Origin, Status
from tuneplan.store.store import Store
from web.asking import DAY, Elements, client

JOB = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "method": "lora",
    "data": {"num_samples": 1000, "mean_tokens": 500},
    "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 1},
}
QUERY = (
    "model=Qwen/Qwen2.5-7B-Instruct&method=lora&gpu=NVIDIA+H100+SXM&count=1"
    "&samples=1000&mean_tokens=500"
)


def line(step: int) -> str:
    return f"Step {step} | loss:{step}.5 lr:0.1 tokens_per_second_per_gpu:900\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite3"
    measurement = Measurement(
        origin=Origin.PILOT,
        status=Status.OK,
        job=job_document(load_job(JOB)),
        environment=Environment(accelerator="NVIDIA H100 SXM", num_accelerators=1),
        tokens_per_s_per_accelerator=5000.0,
        relative_error=0.01,
        num_steps=20,
        source=("pilot",),
    )
    with Store(path) as kept:
        kept.append(measurement)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "allowed" / "run"
    folder.mkdir(parents=True)
    (folder / "log_1.txt").write_text("".join(map(line, range(1, 11))))
    return folder


def test_no_store_is_an_empty_one_and_none_is_made(tmp_path):
    path = tmp_path / "none.sqlite3"
    answered = client(store=str(path)).get("/api/runs")
    assert answered.status_code == 200
    assert answered.json()["measurements"] == []
    assert not path.exists()


def test_measurements_are_those_of_the_command(store):
    answered = client(store=str(store)).get("/api/runs")
    with Store(store) as kept:
        expected = store_answer(kept.find(), store=str(store), as_of=DAY.isoformat())
    assert answered.json()["measurements"] == expected.model_dump(mode="json")["measurements"]
    assert answered.json()["moved"] == []


def test_ones_own_measurements_move_the_estimate_of_the_job_they_are_near(store):
    asking = client(store=str(store))
    found = asking.get(f"/api/runs?{QUERY}").json()
    (rate,) = (one for one in found["moved"] if one["figure"].startswith("tokens_per_s"))
    assert abs(rate["after"]["likely"] - 5000) < abs(rate["before"]["likely"] - 5000)
    page = asking.get(f"/runs?{QUERY}")
    assert Elements(page.text).one("section", id="calibration")


def test_a_live_run_is_followed_from_look_to_look(run, tmp_path):
    asking = client(tmp_path / "allowed", store=str(tmp_path / "none"))
    first = asking.get("/api/runs?run=run").json()["watch"]
    assert (first["step"], first["missing"]) == (10, False)
    with (run / "log_1.txt").open("a") as file:
        file.write(line(11) + line(12))
    assert asking.get("/api/runs?run=run").json()["watch"]["step"] == 12


def test_a_run_that_vanishes_is_waited_for_and_goes_on(run, tmp_path):
    asking = client(tmp_path / "allowed", store=str(tmp_path / "none"))
    assert asking.get("/runs?run=run").status_code == 200
    away = tmp_path / "away"
    shutil.move(run, away)
    gone = asking.get("/runs?run=run")
    assert gone.status_code == 200
    assert "not there now" in gone.text
    shutil.move(away, run)
    with (run / "log_1.txt").open("a") as file:
        file.write(line(13))
    back = asking.get("/api/runs?run=run").json()["watch"]
    assert (back["step"], back["missing"]) == (13, False)


@pytest.mark.usefixtures("run")
def test_the_section_of_the_run_asks_for_itself_again(tmp_path):
    asking = client(tmp_path / "allowed", store=str(tmp_path / "none"))
    page = Elements(asking.get("/runs?run=run").text)
    live = page.one("section", id="live")
    assert live["hx-get"] == "/runs?run=run"
    assert live["hx-select"] == "#live"
    plain = Elements(asking.get("/runs").text)
    assert not [one for one in plain.all("section") if "hx-get" in one]


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("path", ["/etc", "../store.sqlite3", "/proc/self", "~", "file:///etc"])
def test_no_run_outside_the_allowed_folders_is_watched(path, tmp_path):
    answered = client(tmp_path / "allowed").get("/api/runs", params={"run": path})
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "path_not_allowed"


def test_a_link_out_of_the_allowed_folder_leads_nowhere(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "secret").mkdir()
    (allowed / "link").symlink_to(tmp_path / "secret")
    assert client(allowed).get("/api/runs?run=link").status_code == 400


def test_a_run_that_never_was_is_said_not_to_exist(tmp_path):
    answered = client(tmp_path).get("/api/runs?run=nowhere")
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "no_such_run"


def test_a_pickle_in_a_run_is_not_opened(run, tmp_path):
    mark = tmp_path / "ran"
    harmful = f"cos\nsystem\n(S'touch {mark}'\ntR.".encode()
    (run / "snapshot.pickle").write_bytes(harmful)
    asking = client(tmp_path / "allowed", store=str(tmp_path / "none"))
    assert asking.get("/api/runs?run=run").status_code == 200
    assert not mark.exists()


@pytest.mark.usefixtures("run")
def test_the_answer_is_json_of_its_schema(store, tmp_path):
    from jsonschema import Draft202012Validator

    from tuneplan.contract.schema import json_schema

    asking = client(tmp_path / "allowed", store=str(store))
    answered = json.loads(asking.get(f"/api/runs?run=run&{QUERY}").text)
    Draft202012Validator(json_schema("runs")).validate(answered)
