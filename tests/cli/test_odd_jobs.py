"""Odd but legal jobs are answered; odd and illegal ones are refused. Neither is our defect."""

import json
from typing import Any

import jsonschema
import pytest

from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema

DATA = ("--set", "data.num_samples=1000", "--set", "data.mean_tokens=500")
ON_H100 = ("--model", "Qwen2.5-0.5B", "--accelerator", "NVIDIA H100 SXM", *DATA)
SMALL = (*ON_H100, "--method", "lora")


def answered(
    capsys: pytest.CaptureFixture[str], *arguments: str, command: str = "estimate"
) -> dict[str, Any]:
    assert run([command, *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema(command))
    return document


def refused(
    capsys: pytest.CaptureFixture[str], *arguments: str, command: str = "estimate"
) -> list[dict[str, Any]]:
    assert run([command, *arguments, "--json"]) == 2
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema("errors"))
    errors: list[dict[str, Any]] = document["errors"]
    return errors


def warned(answer: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in answer["warnings"]}


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_unsloth_whose_batches_are_free_of_padding_is_answered(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(capsys, *SMALL, "--framework", "unsloth", command=command)


def test_batches_free_of_padding_compute_tokens_alone_and_their_job_reads_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    first = answered(capsys, *SMALL, "--framework", "unsloth")
    assert first["job"]["training"]["padding"] == "none"
    assert first["data"]["padding_fraction"] == 0
    again = tmp_path / "job.json"
    again.write_text(json.dumps(first["job"]))
    assert answered(capsys, str(again))["memory"] == first["memory"]


@pytest.mark.parametrize("chip", ["Google TPU v5e", "Huawei Ascend 910B3", "Intel Gaudi 2"])
@pytest.mark.parametrize("precision", ["none", "fp32"])
def test_a_chip_without_a_rate_in_float32_leaves_the_time_open_and_says_so(
    chip: str, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("--model", "Qwen2.5-0.5B", "--method", "dora", "--accelerator", chip, *DATA)
    types = (f"training.precision={precision}", "training.dtype=float32")
    flags = [part for setting in types for part in ("--set", setting)]
    answer = answered(capsys, *job, *flags)
    assert answer["time"] is None
    assert "time_unknown" in warned(answer)


def test_litgpt_refuses_attention_that_it_has_no_layer_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = ("--model", "DeepSeek-V4-Pro", "--method", "lora", "--framework", "litgpt")
    (error,) = refused(capsys, *job)
    assert error["code"] == "litgpt_attention"


def test_batches_of_equal_lengths_have_no_padding(capsys: pytest.CaptureFixture[str]) -> None:
    # 64 rows of 7 positions are 448 only but for the last digit of a floating-point sum.
    sizes = ("training.max_length=7", "training.per_device_train_batch_size=64")
    flags = [part for setting in sizes for part in ("--set", setting)]
    job = ("--model", "pythia-160m", "--method", "full", "--accelerator", "RTX 3080", *DATA)
    answer = answered(capsys, *job, *flags)
    assert answer["data"]["padding_fraction"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("method", ["full", "lora", "qlora", "freeze"])
def test_the_terms_sum_to_the_peak_where_head_and_loss_peak_before_the_logits(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = answered(capsys, *ON_H100, "--method", method, "--framework", "litgpt")["memory"]
    total = sum(term["size_bytes"] for term in memory["terms"])
    assert abs(total - memory["peak_bytes"]["likely"]) <= len(memory["terms"])  # rounding
