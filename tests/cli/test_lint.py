"""The lint by its commands: silenced by flag and by file, told by estimate and plan."""

import json
from pathlib import Path
from typing import Any

import pytest

from tuneplan.cli.main import run

JOB: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "method": "lora",
    "data": {"num_samples": 20000, "mean_tokens": 300},
    "training": {"max_length": 2048, "packing": False},
    "hardware": {"accelerator": "NVIDIA L40S", "accelerators_per_node": 1},
    "limits": {"deadline": "12 min"},
}


def answered(capsys: pytest.CaptureFixture, *arguments: str) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def write(folder: Path, **changes: Any) -> str:
    path = folder / "job.json"
    path.write_text(json.dumps(JOB | changes), encoding="utf-8")
    return str(path)


def rules(answer: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in answer["lint"]}


def test_a_rule_is_silenced_by_flag_and_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    loud = answered(capsys, "check", write(tmp_path))
    assert "no_packing" in rules(loud)
    assert loud["silenced"] == []
    quiet = answered(capsys, "check", write(tmp_path, lint={"ignore": ["no_packing"]}))
    assert rules(quiet) == rules(loud) - {"no_packing"}
    assert quiet["silenced"] == ["no_packing"]
    assert quiet["job"]["lint"] == {"ignore": ["no_packing"]}
    assert run(["check", "--ignore", "no_packing,more_cards", write(tmp_path)]) == 0
    assert "Silenced, though they had something: no_packing." in capsys.readouterr().out


def test_a_name_that_is_no_rule_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["check", write(tmp_path, lint={"ignore": ["no_pakcing"]})]) == 2
    said = capsys.readouterr().err
    assert "lint.ignore: no rule is called 'no_pakcing'" in said
    assert "nearest: no_packing" in said


def test_estimate_and_plan_say_what_needs_no_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    few = {"num_samples": 1200, "mean_tokens": 300}
    job = write(tmp_path, model="Llama-2-70B", data=few, method="qlora", hardware={}, limits={})
    estimate = answered(capsys, "estimate", "--accelerator", "H100", "--count", "1", job)
    assert rules(estimate) >= {"better_data_first"}
    assert run(["plan", "--accelerator", "H100", "--count", "1", job]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "better data does more than a bigger model" in told
