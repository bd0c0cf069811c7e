"""``tuneplan oom`` on real files: job files, foreign configurations, logs, bad input."""

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from diagnosis import oom_samples as samples
from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema

JOB = """\
model: meta-llama/Meta-Llama-3-8B
framework: trl
method: lora
training: {dtype: bfloat16, max_length: 2048, per_device_train_batch_size: 4}
hardware: {accelerator: RTX 4090, accelerators_per_node: 1}
"""
FOREIGN = """\
base_model: Qwen/Qwen2.5-7B-Instruct
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 8192
micro_batch_size: 4
gradient_accumulation_steps: 2
datasets: [{path: somebody/some_data, type: alpaca}]
bf16: true
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(samples.traceback_of("first_forward", samples.FROM_2_1), encoding="utf-8")
    return path


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["oom", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema("oom"))
    return document


def test_a_job_and_its_log_are_answered(
    job: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_of(capsys, str(job), "--log", str(log))
    assert answer["stage"]["name"] == "first_forward"
    assert answer["stage"]["confidence"] == "high"
    assert answer["requested_bytes"] == 2 * 2**30
    assert answer["cause"] == "shortage"
    assert [fix["rank"] for fix in answer["fixes"]] == list(range(1, len(answer["fixes"]) + 1))
    assert answer["job"]["model"] == "meta-llama/Meta-Llama-3-8B"


def test_a_job_alone_is_answered_from_its_estimate(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_of(capsys, str(job))
    assert answer["message"] is None
    assert answer["requested_bytes"] is None
    assert answer["matches"] == []


def test_a_log_alone_is_answered(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, "--log", str(log))
    assert answer["job"] is None
    assert answer["card_too_small"] is None
    assert answer["needed_bytes"] is None
    assert {fix["saves_bytes"] is None for fix in answer["fixes"]} == {True, False}


def test_flags_alone_are_a_job(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "meta-llama/Meta-Llama-3-8B", "--method", "lora", "--gpu", "RTX 4090:2")
    answer = answer_of(capsys, *flags, "--log", str(log))
    assert answer["job"]["hardware"]["accelerators_per_node"] == 2


def test_a_configuration_of_a_framework_is_read(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(FOREIGN, encoding="utf-8")
    answer = answer_of(capsys, str(path), "--gpu", "A100-40GB", "--log", str(log))
    assert answer["job"]["framework"].startswith("axolotl")
    assert answer["job"]["training"]["max_length"] == 8192


def test_a_log_comes_from_standard_input_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Standard:
        buffer = io.BytesIO(samples.BEFORE_2_1.encode())

    monkeypatch.setattr("sys.stdin", Standard())
    assert answer_of(capsys, "--log", "-")["cause"] == "fragmentation"


def test_the_report_fits_eighty_columns_and_leads_with_what_to_do(
    job: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["oom", str(job), "--log", str(log), "--all"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "Out of memory",
        "in the first forward pass",
        "Fix, in the order to try",
        "Saves",
    ):
        assert words in text


def test_a_log_that_says_nothing_of_memory_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.log"
    path.write_text("ValueError: wrong shape\n", encoding="utf-8")
    answer = answer_of(capsys, "--log", str(path))
    assert answer["cause"] is None
    assert "nothing_in_log" in {warning["code"] for warning in answer["warnings"]}


def test_bytes_that_are_no_text_do_not_stop_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(b"\xff\xfe\x00\n\x80\x81" + samples.BEFORE_2_1.encode("utf-16-le"))
    assert answer_of(capsys, "--log", str(path))["command"] == "oom"
    path.write_bytes(b"\x80\x81\n" + samples.BEFORE_2_1.encode())
    assert answer_of(capsys, "--log", str(path))["message"]["line"] == 2


def test_lines_before_the_end_of_a_long_log_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.log"
    path.write_text(("y" * 999 + "\n") * 6_000 + samples.BEFORE_2_1, encoding="utf-8")
    assert answer_of(capsys, "--log", str(path))["message"]["line"] == 6_001


@pytest.mark.parametrize("arguments", [[], ["-", "--log", "-"], ["--log", ""]])
def test_nothing_to_read_is_an_error_of_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["oom", *arguments]) == 2
    assert capsys.readouterr().err


def test_an_absent_log_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["oom", "--log", "no/such.log", "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "log_unreadable"
    assert error["path"] == "no/such.log"


def test_mistakes_of_the_job_are_told_at_their_lines(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("RTX 4090", "RTX 9999"), encoding="utf-8")
    assert run(["oom", str(path), "--log", str(log), "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["path"], error["line"]) == ("hardware.accelerator", 5)


def test_a_job_without_a_formula_is_told_of_by_its_log(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB + "objective: grpo\n", encoding="utf-8")
    answer = answer_of(capsys, str(path), "--log", str(log))
    assert answer["job"] is None
    assert answer["cause"] == "shortage"
    assert answer["warnings"][0]["code"] == "job_without_formula"
    assert run(["oom", str(path)]) == 2


@pytest.mark.parametrize(
    ("says", "instead", "code"),
    [
        ("32.50 GiB is allocated", "900.00 GiB is allocated", "figures_disagree"),
        ("Including non-PyTorch memory, this process has 33.70 GiB memory in use.", "", None),
        (
            (
                "Process 4242 has 5.00 GiB memory in use. Including non-PyTorch memory, this "
                "process has 33.70 GiB memory in use. Of the allocated memory 32.50 GiB"
            ),
            "Process 4242 has 38.70 GiB memory in use. Of the allocated memory 8.00 GiB",
            "outside_pytorch",
        ),
    ],
)
def test_figures_that_do_not_support_the_verdict_are_told(
    says: str,
    instead: str,
    code: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "train.log"
    assert says in samples.FROM_2_1
    path.write_text(samples.FROM_2_1.replace(says, instead), encoding="utf-8")
    codes = {one["code"] for one in answer_of(capsys, "--log", str(path))["warnings"]}
    assert codes & {"figures_disagree", "outside_pytorch"} == ({code} if code else set())


def test_a_log_whose_beginning_was_not_read_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.log"
    path.write_text(("y" * 999 + "\n") * 6_000 + samples.BEFORE_2_1, encoding="utf-8")
    codes = [one["code"] for one in answer_of(capsys, "--log", str(path))["warnings"]]
    assert "end_of_log" in codes


def test_memory_that_other_processes_hold_is_not_laid_on_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text(samples.FROM_2_1, encoding="utf-8")
    assert run(["oom", "--log", str(path)]) == 0
    assert "Other processes leave too little of the card" in capsys.readouterr().out
