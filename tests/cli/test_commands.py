"""The real commands on real input."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema

CHAT = Path(__file__).parents[2] / "examples" / "support_chat.jsonl"
JOB = (
    *("--model", "Qwen/Qwen2.5-7B", "--method", "lora", "--accelerator", "NVIDIA A100 SXM 80GB"),
    *("--set", "data.num_samples=1000", "--set", "data.mean_tokens=500"),
)


def answer_of(
    capsys: pytest.CaptureFixture[str], schema: str, *arguments: str, status: int = 0
) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema(schema))
    return document


def test_estimate_answers_memory_time_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, "estimate", "estimate", *JOB)
    assert answer["fit"]["verdict"] == "fits"
    assert answer["model"]["total_parameters"] == 7_615_616_512
    assert answer["time"]["total_s"]["likely"] > 0
    assert answer["cost"]["total"]["likely"]["currency"] == "USD"
    memory = answer["memory"]
    total = sum(term["size_bytes"] for term in memory["terms"])
    assert abs(total - memory["peak_bytes"]["likely"]) <= len(memory["terms"])  # rounding


def test_borrowed_kernel_timings_are_among_the_assumptions_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["estimate", "--model", "Qwen2.5-0.5B", "--accelerator", "RTX 4090"]) == 0
    assert "hardware.kernels = " in capsys.readouterr().out


def test_estimate_without_an_accelerator_sets_memory_beside_every_card(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answer_of(capsys, "estimate", "estimate", "--model", "7B", "--method", "lora")
    verdicts = {row["verdict"] for row in answer["fit"]}
    assert verdicts >= {"fits", "does_not_fit"}
    assert answer["time"] is answer["cost"] is answer["hardware"] is None
    assert "no_accelerator" in {warning["code"] for warning in answer["warnings"]}


def test_estimate_as_text_keeps_to_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["estimate", *JOB]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("FITS. It needs ") for line in lines)


@pytest.mark.parametrize(("flags", "status"), [((), 0), (("--require-fit",), 3)])
def test_status_3_only_where_a_fit_is_required(
    flags: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # 70e9 parameters x 2 bytes of bf16 weights alone are 140 GB
    job = ("--model", "70B", "--method", "full", "--accelerator", "RTX 4090")
    answer = answer_of(capsys, "estimate", "estimate", *job, *flags, status=status)
    assert answer["fit"]["verdict"] == "does_not_fit"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("models", "Qwen2.5-7B"), ("models", "7B"), ("models", "Qwen/Qwen2.5-7B-Instruct")),
        *(("accelerators", "T4"), ("accelerators", "Apple M3 Max 64GB")),
        *(("prices", "T4"), ("prices", "Lambda")),
    ],
)
def test_catalog_lists_facts_and_shows_one(
    kind: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = answer_of(capsys, "catalog", "catalog", kind)
    one = answer_of(capsys, "catalog", "catalog", kind, name)
    assert len(everything["entries"]) > len(one["entries"]) > 0
    facts = one["entries"][0]["fields"].values()
    assert any(fact["source"] for fact in facts)
    assert run(["catalog", kind, name]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        ("models", "Qwen2.5-7C", "Qwen2.5-7B"),
        ("accelerators", "H900", "NVIDIA H200 SXM"),
        ("prices", "H900", "NVIDIA H200 SXM"),
    ],
)
def test_an_unknown_name_has_near_matches(
    kind: str, name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer_of(capsys, "errors", "catalog", kind, name, status=2)
    assert near in document["errors"][0]["near"]


def test_data_profile_answers_as_the_contract_says(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("data", "profile", str(CHAT), "--tokenizer", "approximate", "--max-length", "512")
    answer = answer_of(capsys, "data-profile", *arguments)
    assert answer["num_samples"] == answer["files"][0]["rows_ok"]
    assert 512 in [row["max_length"] for row in answer["at_max_length"]]
    assert run(list(arguments)) == 0
    assert "512" in capsys.readouterr().out


def test_validate_predicts_the_rows_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "id,framework,framework_version,model,gpu,num_gpus,method,lora_rank,compute_dtype,seq_len,"
        "micro_batch_per_gpu,peak_mem_gb,mem_kind,mem_unit\n"
        "one,transformers,4.46.0,Qwen/Qwen2.5-7B,A100-80GB,1,lora,16,bf16,1024,2,25.0,allocated,GB\n"
        "two,transformers,4.46.0,no-such-model,A100-80GB,1,lora,16,bf16,1024,2,25.0,allocated,GB\n"
    )
    rows = tmp_path / "rows.csv"
    answer = answer_of(capsys, "validate", "validate", str(runs), "--rows", str(rows))
    assert {row["id"]: row["status"] for row in answer["rows"]}["two"] == "skipped"
    assert len(rows.read_text().splitlines()) >= 3
    assert run(["validate", str(runs)]) == 0
    text = capsys.readouterr().out
    assert "2 runs" in text
    lines = text.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert any(line.split()[-2:] == ["inside", "width"] for line in lines)


def test_a_file_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.csv").write_text("id,model\none,7B\n")
    assert run(["validate", str(tmp_path / "runs.csv"), "--rows", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err
