"""``tuneplan export`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuneplan.cli.main import run

JOB = ("export", "--model", "Qwen/Qwen2.5-0.5B-Instruct", "--method", "lora", "--to")


def test_without_a_folder_the_files_are_shown_and_none_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*JOB, "trl", "--launch", "torchrun"]) == 0
    shown = capsys.readouterr().out
    assert "# === train.yaml" in shown
    assert "torchrun --nproc_per_node 1 -m trl.scripts.sft --config train.yaml" in shown
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_once_and_again_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*JOB, "llamafactory", "--launch", "slurm,kubernetes", "-o", str(tmp_path / "out")]
    assert run(line) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *("train.yaml", "dataset_info.json", "requirements.txt", "job.slurm", "job.yaml"),
    }
    (tmp_path / "out" / "train.yaml").write_text("mine")
    assert run(line) == 2
    assert (tmp_path / "out" / "train.yaml").read_text() == "mine"
    assert run([*line, "--force"]) == 0
    assert (tmp_path / "out" / "train.yaml").read_text() != "mine"
    capsys.readouterr()


def test_as_json_the_answer_holds_files_and_the_job_without_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*JOB, "axolotl", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in answer["files"]] == ["train.yaml", "requirements.txt"]
    assert answer["files"][0]["path"] is None
    assert answer["job"]["training"]["max_length"] == 512  # Axolotl's default
    assert answer["peak_bytes"]["likely"] == answer["exported_peak_bytes"]["likely"]


@pytest.mark.parametrize(
    "more", [["trlx"], ["trl", "--launch", "torchrum"], ["trl", "--output", ""]]
)
def test_what_is_not_known_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*JOB, *more]) == 2
    capsys.readouterr()


def test_a_link_that_leads_nowhere_is_not_written_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.yaml").symlink_to(tmp_path / "elsewhere")
    assert run([*JOB, "trl", "-o", str(tmp_path)]) == 2
    assert "the file is there already" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
