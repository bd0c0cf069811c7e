"""``tuneplan check`` and ``tuneplan import`` on real files."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tuneplan.cli.main import run
from tuneplan.contract.reading import load_job
from tuneplan.contract.schema import json_schema

ROOT = Path(__file__).parents[2]
AXOLOTL = ROOT / "examples" / "axolotl_chat.yml"
CHAT = ROOT / "examples" / "support_chat.jsonl"
ON = ("--gpu", "H100 SXM:2", "--set", "data.num_samples=20000", "--set", "data.mean_tokens=600")


def answer_of(
    capsys: pytest.CaptureFixture[str], schema: str, *arguments: str, status: int = 0
) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema(schema))
    return document


def test_check_answers_from_somebody_s_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, "check", "check", str(AXOLOTL), *ON)
    assert answer["format"] == "axolotl"
    assert answer["estimate"]["hardware"]["count"] == 2
    assert answer["estimate"]["time"]["total_s"]["likely"] > 0
    rules = {finding["rule"]: finding for finding in answer["lint"]}
    assert rules["context_beyond_data"]["path"] == "sequence_len"
    line = AXOLOTL.read_text().splitlines().index("sequence_len: 16384") + 1
    assert rules["context_beyond_data"]["line"] == line
    assert 0 < len(answer["best_changes"]) <= 3
    assert {"peak_bytes", "time_fraction"} & set(answer["best_changes"][0]["saves"])


def test_no_key_of_the_file_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, "check", "check", str(AXOLOTL), *ON)
    told = {
        key["key"].partition(".")[0]
        for fate in ("carried", "irrelevant", "not_carried", "not_understood")
        for key in answer[fate]
    }
    assert told == set(yaml.safe_load(AXOLOTL.read_text()))
    assert {key["key"] for key in answer["not_carried"]} >= {"datasets"}
    assert all(key["why"] for key in (*answer["irrelevant"], *answer["not_carried"]))


@pytest.mark.parametrize(("width", "longest"), [("80", 80), ("120", 120)])
def test_the_report_keeps_to_the_width_of_the_page(
    width: str,
    longest: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert run(["check", str(AXOLOTL), *ON, "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= longest
    assert "What stands out" in lines
    assert any(line.startswith("Read as Axolotl") for line in lines)


@pytest.mark.parametrize(("flags", "status"), [((), 0), (("--require-fit",), 3)])
def test_a_pipeline_can_stop_where_nothing_fits(
    flags: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_of(
        capsys, "check", "check", str(AXOLOTL), "--gpu", "T4", *flags, "--set",
        "training.attn_implementation=sdpa", status=status,
    )  # fmt: skip
    assert answer["estimate"]["fit"]["verdict"] == "does_not_fit"


def test_data_files_of_the_command_line_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--gpu", "H100 SXM", "--data", str(CHAT), "--set", "data.tokenizer=approximate")
    answer = answer_of(capsys, "check", "check", str(AXOLOTL), *flags)
    assert answer["estimate"]["data"]["num_samples"] == 294  # 300 less 2 % for evaluation


@pytest.mark.parametrize("written", ["H100:", "H100:0", "H100:8x0", "a:b:c", " "])
def test_a_number_of_cards_that_does_not_read_is_refused(
    written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(AXOLOTL), "--gpu", written]) == 2
    assert "--gpu" in capsys.readouterr().err


def test_two_machines_of_eight_cards(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, "check", "check", str(AXOLOTL), "--gpu", "H100 SXM:8x2")
    assert (answer["estimate"]["hardware"]["count"], answer["estimate"]["hardware"]["nodes"]) == (
        16,
        2,
    )


def test_mistakes_of_a_configuration_are_told_at_its_own_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.yml"
    path.write_text("base_model: Qwen/Qwen2.5-7C\nsequence_len: 2048\nlearning_rate: 1e-4\n")
    answer = answer_of(capsys, "errors", "check", str(path), status=2)
    (error,) = answer["errors"]
    assert (error["path"], error["file"], error["line"]) == ("base_model", str(path), 1)
    assert error["near"]


def test_import_writes_a_job_file_that_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "job.yaml"
    answer = answer_of(capsys, "import", "import", str(AXOLOTL), "--output", str(output))
    written = load_job(output)
    assert written.model == "Qwen/Qwen2.5-7B-Instruct"
    assert written.recipe.framework == "axolotl"
    assert written.recipe.training.max_length == 16_384
    assert load_job(answer["job"]).recipe == written.recipe
    text = output.read_text()
    assert "max_length: 16384  # sequence_len, line 13" in text
    assert "datasets" in text  # among what is not carried over


def test_an_imported_job_is_estimated_as_its_configuration_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "job.yaml"
    assert run(["import", str(AXOLOTL), "--output", str(output)]) == 0
    capsys.readouterr()
    flags = ("--set", "data.num_samples=20000", "--set", "data.mean_tokens=600")
    card = ("--accelerator", "H100 SXM")
    estimate = answer_of(capsys, "estimate", "estimate", str(output), *card, *flags)
    check = answer_of(capsys, "check", "check", str(AXOLOTL), *card, *flags)
    assert check["estimate"]["memory"] == estimate["memory"]
    assert check["estimate"]["time"] == estimate["time"]


def test_import_without_a_file_prints_the_job_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(AXOLOTL)]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["method"] == "lora"


def test_paths_of_data_fit_the_place_of_the_job_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "chats.jsonl").write_text('{"text": "a"}\n')
    text = AXOLOTL.read_text().replace("our_team/support_chat ", "chats.jsonl")
    (folder / "train.yml").write_text(text.replace("type: chat_template", "type: completion"))
    output = tmp_path / "job.yaml"
    answer = answer_of(capsys, "import", "import", str(folder / "train.yml"), "-o", str(output))
    if (answer["job"].get("data") or {}).get("path"):
        assert answer["job"]["data"]["path"] == os.path.join("configs", "chats.jsonl")  # noqa: PTH118


def test_a_job_file_on_stdout_tells_the_warnings_too_within_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # a path is not cut
    Path("train.yaml").write_text(
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: lora\n"
        "bf16: false\ndataset: somebody\ncutoff_len: 1024\n",
        encoding="utf-8",
    )
    assert run(["import", "train.yaml"]) == 0
    written = capsys.readouterr().out
    assert "# Warnings:" in written
    assert "counted with autocast" in " ".join(written.replace("#", " ").split())
    assert max(map(len, written.splitlines())) <= 80


def test_a_configuration_is_not_written_over_by_its_own_job_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.yml"
    path.write_text(AXOLOTL.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "link.yml").symlink_to(path)
    for name in ("train.yml", "link.yml"):
        assert run(["import", str(path), "-o", str(tmp_path / name)]) == 2
    assert "not written over" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == AXOLOTL.read_text(encoding="utf-8")


def test_a_launch_line_over_a_configuration_tells_both_files_and_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.yml").write_text(AXOLOTL.read_text(encoding="utf-8"), encoding="utf-8")
    line = "accelerate launch --num_processes 4 -m axolotl.cli.train train.yml"
    (tmp_path / "run.sh").write_text(f"{line}\n", encoding="utf-8")
    answer = answer_of(capsys, "import", "import", str(tmp_path / "run.sh"))
    assert answer["files"] == [str(tmp_path / "run.sh"), str(tmp_path / "train.yml")]
    assert all(key["line"] for key in answer["carried"])
    places = {key["key"]: key["file"] for key in answer["carried"]}
    assert places["base_model"] == str(tmp_path / "train.yml")
    assert places["shell.options.num_processes"] == str(tmp_path / "run.sh")


def test_how_ranges_read_is_said_only_where_ranges_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: meta-llama/Meta-Llama-3-70B\nmethod: full\ndata: {num_samples: 9, mean_tokens: 9}\n"
        "hardware: {accelerator: RTX 4090}\n"
    )
    assert run(["check", str(job)]) == 0
    shown = capsys.readouterr().out
    assert "DOES NOT FIT" in shown
    assert "Ranges read" not in shown
    assert run(["check", str(AXOLOTL), *ON]) == 0
    assert "Ranges read" in capsys.readouterr().out
