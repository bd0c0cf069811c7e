"""``tuneplan budget`` as a person runs it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from tuneplan.cli.main import run as main_run
from tuneplan.contract.schema import json_schema

SHEET = """offers:
  - provider: Cloud X
    name: month
    accelerator: H100 SXM
    num_accelerators: 1
    price: 50000 TWD
    per: month
    minimum_term: 6 month
    as_of: 2026-11-02
"""
JOB = """model: Qwen/Qwen2.5-0.5B-Instruct
method: lora
data: {num_samples: 4000, mean_tokens: 500}
hardware: {accelerator: H100 SXM}
prices: [prices.yaml]
project:
  num_experiments: 4
  experiment_fraction: [0.1, 0.3]
  retry_factor: [1.5, 3]
  start: 2026-12-07
"""


@dataclass(frozen=True)
class Found:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*arguments: str, cwd: Path) -> Found:
        monkeypatch.chdir(cwd)
        status = main_run(list(arguments))
        return Found(status, *capsys.readouterr())

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prices.yaml").write_text(SHEET.replace("    minimum_term: 6 month\n", ""))
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_the_same_seed_prints_the_same_answer(run, folder) -> None:
    one, two, other = (
        run("budget", "job.yaml", "--json", "--seed", seed, "--draws", "500", cwd=folder)
        for seed in ("3", "3", "4")
    )
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout
    answer = json.loads(one.stdout)
    jsonschema.Draft202012Validator(json_schema("budget")).validate(answer)
    assert (answer["seed"], answer["draws"], answer["currency"]) == (3, 500, "TWD")
    assert answer["rented_hours"] != json.loads(other.stdout)["rented_hours"]
    assert answer["calendar"][0]["starts_on"] == "2026-12-07"


def test_several_jobs_are_one_budget_with_flags_for_all(run, folder) -> None:
    found = run("budget", "job.yaml", "job.yaml", "--set", "project.retry_factor=2", cwd=folder)
    assert found.returncode == 0, found.stderr
    assert "Job 2: Qwen/Qwen2.5-0.5B-Instruct" in found.stdout
    assert max(len(line) for line in found.stdout.splitlines()) <= 80


def test_a_term_longer_than_the_project_is_refused_with_the_sheet_s_line(run, folder) -> None:
    (folder / "prices.yaml").write_text(SHEET)
    found = run("budget", "job.yaml", "--set", "project.duration=2 month", "--json", cwd=folder)
    assert found.returncode == 2
    (error,) = json.loads(found.stdout)["errors"]
    assert error["code"] == "term_longer_than_project"
    assert (error["line"], error["how_to_fix"] is not None) == (2, True)
    assert "prices.yaml" in found.stderr
    assert "Traceback" not in found.stderr


def test_bad_project_keys_are_all_told_at_once(run, folder) -> None:
    (folder / "job.yaml").write_text(JOB + "  setup_time: 4\n  idle_fraction: [0.5, 0.1]\n  x: 1\n")
    found = run("budget", "job.yaml", "--json", cwd=folder)
    assert found.returncode == 2
    codes = {(e["code"], e["line"]) for e in json.loads(found.stdout)["errors"]}
    assert codes == {
        ("quantity_without_unit", 11), ("range_reversed", 12), ("unknown_key", 13),
    }  # fmt: skip


def test_the_budget_is_a_document_to_hand_on(run, folder) -> None:
    pages = ["budget.md", "budget.xlsx", "budget.html", "budget.json"]
    found = run("budget", "job.yaml", *(f"--to={page}" for page in pages), cwd=folder)
    assert found.returncode == 0, found.stderr
    assert "# Budget of Qwen/Qwen2.5-0.5B-Instruct" in (folder / "budget.md").read_text()
    document = json.loads((folder / "budget.json").read_text())
    assert document["kind"] == "budget"
    assert all((folder / page).stat().st_size > 1000 for page in pages)
    refused = run("budget", "job.yaml", "--to", "budget.docx", cwd=folder)
    assert refused.returncode == 2
    own = run("budget", "job.yaml", "--to", "job.yaml", cwd=folder)
    assert own.returncode == 2
