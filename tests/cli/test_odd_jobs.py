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


def test_litgpt_refuses_residual_streams_that_it_has_no_layer_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = ("--model", "DeepSeek-V4-Pro", "--method", "lora", "--framework", "litgpt")
    (error,) = refused(capsys, *job)
    assert error["code"] == "litgpt_streams"


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


@pytest.mark.parametrize(
    ("setting", "code", "software"),
    [
        ("framework=trl==99", "version_beyond", {"trl": "99"}),
        ("framework=trl==0.0.1", "version_beyond", {"trl": "0.0.1", "torch": "1.13.1"}),
        ("framework=trl==99999999999", "version_unread", {"trl": "1.16.0"}),
        ("software.torch=99", "version_beyond", {"torch": "99"}),
        ("software.nonesuch=1", "library_unknown", {"nonesuch": "1"}),
        ("date=1990-01", "date_beyond", {"transformers": "4.18.0"}),
        ("date=2090-01", "date_beyond", {"trl": "1.16.0"}),
    ],
)
def test_software_of_which_nothing_is_known_is_told(
    setting: str, code: str, software: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answered(capsys, *SMALL, "--set", setting)
    assert code in warned(answer)
    assert answer["software"].items() >= software.items()


def test_a_version_without_a_dot_is_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    # torch 2 is 2.0 of March 2023; until it was read, the newest of everything stood beside it.
    software = answered(capsys, *SMALL, "--set", "software.torch=2")["software"]
    assert software["transformers"].startswith("4.")


def test_the_refusal_of_a_framework_names_those_that_a_job_may_ask_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (error,) = refused(capsys, *SMALL, "--framework", "xtuner")
    for name in error["message"].partition("supported now: ")[2].split(", "):
        answered(capsys, *SMALL, "--framework", name)


def test_a_step_that_takes_more_samples_than_there_are_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setting = ("--set", "training.gradient_accumulation_steps={steps}")
    fits = answered(capsys, *SMALL, *(part.format(steps=100) for part in setting))
    assert "step_beyond_data" not in warned(fits)  # 100 x 8 of 1000
    beyond = answered(capsys, *SMALL, *(part.format(steps=200) for part in setting))
    assert "step_beyond_data" in warned(beyond)


@pytest.mark.parametrize(("memory", "short"), [("1 GiB", True), ("256 GiB", False)])
def test_main_memory_that_cannot_hold_the_job_is_told(
    memory: str, short: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answered(capsys, *SMALL, "--set", f"hardware.host_memory={memory}")
    assert ("short_main_memory" in warned(answer)) == short


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("data.eval_fraction=0.999999", "data.eval_fraction"),
        ("data.quantiles={min: 5, max: 5}", "data.quantiles"),
        ("data.quantiles={min: 600}", "data.quantiles"),
        ("training.max_length=" + "9" * 30, "training.max_length"),
    ],
)
def test_numbers_that_cannot_be_true_are_refused(
    setting: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (error,) = refused(capsys, *SMALL, "--set", setting)
    assert error["path"] == path


@pytest.mark.parametrize("bits", [2, 3])
def test_gptq_bases_without_a_formula_are_not_counted_as_4_bits(
    bits: int, capsys: pytest.CaptureFixture[str]
) -> None:
    job = (*ON_H100, "--method", "gptq-lora", "--set", f"quantization.bits={bits}")
    (error,) = refused(capsys, *job)
    assert error["code"] == "gptq_bits"


def test_a_number_of_a_measured_run_beyond_all_bounds_is_a_fault_of_its_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    runs = tmp_path / "runs.csv"
    rows = (f"{name},gpt2,full,{length}" for name, length in (("a", "9" * 400), ("b", "1e300")))
    runs.write_text("id,model,method,seq_len\n" + "\n".join(rows) + "\n")
    answered(capsys, str(runs), command="validate")


@pytest.mark.parametrize("flag", ["--model", "--accelerator", "--method", "--count", "--data"])
@pytest.mark.parametrize("value", ["", " ", ","])
def test_a_flag_with_nothing_behind_it_is_no_blank(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (error,) = refused(capsys, *SMALL, flag, value)
    assert error["message"] == f"nothing stands behind {flag}"


@pytest.mark.parametrize("flag", ["--model", "--tokenizer"])
def test_a_blank_tokenizer_is_not_that_of_the_folder(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "profile", "rows.jsonl", flag, ""]) == 2
    assert f"nothing stands behind {flag}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x" * 300, "x" * 4000])
def test_a_model_name_longer_than_a_file_name_is_unknown(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (error,) = refused(capsys, "--model", name)
    assert error["code"] == "unknown_model"


def test_litgpt_refuses_queries_that_are_scaled_without_a_weight(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = ("--model", "Llama-4-Scout-17B-16E", "--method", "qlora", "--framework", "litgpt")
    (error,) = refused(capsys, *job)
    assert error["code"] == "litgpt_norms"


def test_layers_before_the_first_adapter_that_no_gradient_reaches_are_no_defect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The first layer of this model is a Mamba mixer; torchtune adapts attention alone.
    job = ("--model", "Nemotron-3-Ultra-550B-A55B", "--method", "lora", "--framework", "torchtune")
    kept = (*job, "--set", "training.gradient_checkpointing=false")
    answered(capsys, *kept, "--set", "training.max_length=128")
