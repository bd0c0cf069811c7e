"""``tuneplan pilot --matrix``: cases with limits of their own, rows of measured runs, resumable."""

import json
import os
import subprocess
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from small_pilots import CONFIG, JOB
from tuneplan.contract.pilot_matrix import prepared_matrices, read_matrix
from tuneplan.devices import NoDevices
from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.piloting.probe import Probe
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.evidence_row import COLUMNS
from tuneplan.planner.pilot_matrix import CaseDone, run_matrix
from tuneplan.planner.pilot_request import PilotChoices, PilotLimits, pilot_request
from tuneplan.planner.sources import sources_for
from tuneplan.runs.reading import read_records
from tuneplan.runs.rows import KNOWN_COLUMNS, measured_run
from tuneplan.runs.skips import Skip
from tuneplan.runs.to_job import to_job
from tuneplan.spec.recipe import Method

CASE: dict[str, Any] = {"device": "cpu", "job": {**JOB, "model": "config.json"}, "steps": 3}
CASES = [
    {"name": "full", **CASE},
    {"name": "out", **CASE, "memory_limit": "1 MiB"},
    {"name": "card", **CASE, "needs": "cuda", "device": "cuda"},
    {"name": "preferences", **CASE, "set": {"objective": "dpo"}},
]


def write(folder: Path, cases: list[dict[str, Any]]) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({"cases": cases}))
    return path


def run(folder: Path, path: Path) -> dict[str, CaseDone]:
    found = run_matrix(
        read_matrix(str(path)),
        partial(sources_for, today=date(2026, 12, 1)),
        rows=folder / "rows.csv",
        found=Probe(),
        devices=NoDevices(),
        append=lambda _: "an id",
    )
    return {one.case.name: one for one in found}


def test_each_case_is_a_row_and_is_not_run_again(tmp_path: Path) -> None:
    path = write(tmp_path, CASES)
    found = run(tmp_path, path)
    assert {name for name, one in found.items() if one.pilot} == {"full", "out"}
    assert "CUDA" in str(found["card"].reason)
    assert "dpo" in str(found["preferences"].reason)
    records = read_records(tmp_path / "rows.csv")
    rows = {record.text("case"): record.cells for record in records}
    assert set(rows) == {"full", "out"}
    assert rows["out"]["oom"] == "yes"
    assert rows["out"]["stage"] in {"load", "first_forward", "first_backward"}
    assert rows["full"]["oom"] == "no"
    assert float(rows["full"]["step_time_s"]) > 0
    assert rows["full"]["measurement_id"] == "an id"
    # The rows are measured runs that validate reads, and give the jobs that were run.
    assert not [one for one in map(to_job, map(measured_run, records)) if isinstance(one, Skip)]
    before = (tmp_path / "rows.csv").read_text()
    again = run(tmp_path, write(tmp_path, [*CASES[:2]]))
    assert all(one.before and one.pilot is None for one in again.values())
    assert (tmp_path / "rows.csv").read_text() == before


def test_a_file_of_other_rows_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UnreadableFile, match="other columns"):
        run(tmp_path, write(tmp_path, CASES))


def test_a_job_beside_a_matrix_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuneplan", "pilot", "7B.yaml", "--matrix", "large-gpu"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert "a matrix names its jobs" in done.stderr


def test_columns_are_those_of_measured_runs_and_what_is_kept_beside_them() -> None:
    assert set(COLUMNS[: COLUMNS.index("case")]) <= KNOWN_COLUMNS
    assert not set(COLUMNS[COLUMNS.index("case") :]) & KNOWN_COLUMNS


def test_every_mistake_of_every_case_is_told_with_its_place(tmp_path: Path) -> None:
    cases = [
        {"name": "a", "job": {"model": "7B", "trainig": {}}},
        {"name": "a", "job": {"model": "7B", "method": "lroa"}},
    ]
    with pytest.raises(InvalidRequest) as caught:
        read_matrix(str(write(tmp_path, cases)))
    assert [one.path for one in caught.value.mistakes] == [
        "cases.1.name",
        "cases.0.trainig",
        "cases.1.method",
    ]
    assert all(one.line for one in caught.value.mistakes)


def test_a_case_with_a_word_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="steps_"):
        read_matrix(str(write(tmp_path, [{"name": "a", "job": {"model": "7B"}, "steps_": 3}])))


@pytest.mark.parametrize("case", read_matrix("large-gpu").cases, ids=lambda case: case.name)
def test_a_prepared_case_fits_the_card_it_asks_for(case: Any, tmp_path: Path) -> None:
    """By our own estimate; but for the one that is to run out of memory."""
    job = case.job
    sources = sources_for(job, today=date(2026, 12, 1))
    now = estimate_job(job, sources)
    peak = now.memory.ranges.peak_device_bytes.likely
    if case.memory_bytes is not None:
        assert peak > 1.2 * case.memory_bytes
    else:
        assert 0.2 * case.needs_bytes < peak < case.needs_bytes
    request, _ = pilot_request(
        now.resolved, PilotLimits(), PilotChoices(), trainer="trl", folder=tmp_path
    )
    assert request.arguments["per_device_train_batch_size"] >= 1
    assert request.sft["max_length"] == now.resolved.recipe.max_length


def test_the_large_card_s_matrix_has_what_it_promises() -> None:
    cases = read_matrix("large-gpu").cases
    assert prepared_matrices() == ("large-gpu",)
    assert all(case.needs_cuda and case.time_s <= 60 for case in cases)
    methods = {case.job.recipe.method for case in cases}
    assert {Method.QLORA, Method.LORA, Method.FULL} <= methods
    assert any(case.images for case in cases)
    assert any("MoE" in case.job.model for case in cases)
    assert any("8bit" in (case.job.recipe.training.optim or "") for case in cases)
    assert any((case.job.recipe.training.max_length or 0) >= 32_768 for case in cases)
    assert any(case.job.recipe.training.dtype == "float32" for case in cases)
