"""A job with its blanks filled, as files that do what was planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tuneplan.contract.reading import load_job
from tuneplan.errors import CannotExport, InvalidRequest
from tuneplan.formats.exports import LAUNCHERS, WRITERS
from tuneplan.planner.export import export_job, refuse_existing
from tuneplan.planner.sources import Sources

SOURCES = Sources()


def exported(to: str, *, launchers=(), folder=None, **tree):
    job = load_job({"model": "Qwen/Qwen2.5-7B-Instruct", "method": "lora", **tree})
    return export_job(job, SOURCES, to=to, launchers=launchers, folder=folder)


PURE = {"precision": "none", "dtype": "bfloat16"}  # all that torchtune trains in


def file_of(export, name: str) -> str:
    return next(one.text for one in export.files if one.name == name)


EIGHT = {"accelerator": "H100 SXM", "accelerators_per_node": 8}


@pytest.mark.parametrize("to", list(WRITERS))
def test_the_exported_job_has_the_memory_of_the_planned_one(to: str) -> None:
    export = exported(to, hardware=EIGHT)
    assert export.exported_peak_bytes is not None
    assert export.exported_peak_bytes.likely == pytest.approx(export.peak_bytes.likely, rel=0.005)


def test_blanks_are_written_as_the_framework_of_the_job_has_them() -> None:
    written = yaml.safe_load(file_of(exported("trl", hardware=EIGHT), "train.yaml"))
    assert written["max_length"] == 1024  # SFTConfig's default
    assert written["dtype"] == "float32"  # TRL loads a model by name so
    assert written["lora_target_modules"] == ["q_proj", "v_proj"]  # PEFT's default for Qwen2


def test_a_plan_for_another_framework_keeps_its_settings_and_tells_what_differs() -> None:
    export = exported("axolotl", framework="llamafactory", training={"loss": "full"})
    written = yaml.safe_load(file_of(export, "train.yaml"))
    assert written["sequence_len"] == 2048  # LLaMA-Factory's default, not Axolotl's 512
    assert written["lora_r"] == 8


def test_a_blank_that_the_framework_has_no_key_for_is_told_and_a_stated_one_is_refused() -> None:
    export = exported("torchtune", framework="trl", training=PURE)
    told = [notice.path for notice in export.notices if notice.message.code == "blank_left_out"]
    assert told == ["training.save_steps"]
    with pytest.raises(CannotExport) as refused:
        exported("torchtune", training={"save_steps": 100})
    assert [one.path for one in refused.value.mistakes] == ["training.save_steps"]


def test_a_length_that_nobody_states_stays_blank_where_the_framework_cuts_nothing() -> None:
    """Stated, the model's own limit would fill every row: the files would be another job."""
    export = exported("torchtune", hardware=EIGHT)
    assert yaml.safe_load(file_of(export, "train.yaml"))["tokenizer"]["max_seq_len"] is None
    assert "no_data_no_length" in {notice.message.code for notice in export.notices}
    assert (export.job.recipe.training.max_length, export.job.data.mean_tokens) == (None, None)
    packed = exported("torchtune", training={"packing": True}, hardware=EIGHT)
    assert packed.job.recipe.training.max_length == 131_072


def test_a_framework_that_cuts_is_told_to_cut_at_the_limit_alone_and_rows_stay_as_planned() -> None:
    plan = {"framework": "torchtune", "training": {"save_strategy": "epoch"}}
    export = exported("axolotl", **plan, hardware=EIGHT)
    assert yaml.safe_load(file_of(export, "train.yaml"))["sequence_len"] == 131_072
    assert export.exported_peak_bytes is not None
    assert export.exported_peak_bytes.likely < 2 * export.peak_bytes.likely


def test_data_that_the_job_names_are_not_told_to_be_missing() -> None:
    export = exported("torchtune", data={"num_samples": 1000, "mean_tokens": 500}, hardware=EIGHT)
    assert "no_data_no_length" not in {notice.message.code for notice in export.notices}
    assert "ordinary_length" not in {one.reason.code for one in export.assumptions}
    assert export.job.data.mean_tokens == 500


def test_what_saves_by_epoch_is_written_so_and_learning_rates_are_told_to_be_missing() -> None:
    export = exported("trl", framework="axolotl")
    assert yaml.safe_load(file_of(export, "train.yaml"))["save_strategy"] == "epoch"
    assert "no_learning_rate" in {notice.message.code for notice in export.notices}


def test_a_choice_and_a_bare_size_are_refused() -> None:
    with pytest.raises(CannotExport) as refused:
        exported("trl", method=["lora", "qlora"], hardware={"accelerator": ["H100", "A100"]})
    assert {one.path for one in refused.value.mistakes} == {"method", "hardware.accelerator"}
    with pytest.raises(CannotExport) as refused:
        exported("trl", model="7B")
    assert refused.value.mistakes[0].path == "model"


def test_rows_decide_how_the_data_are_described(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"instruction": "Add 2 and 2", "output": "4"}\n')
    job = {"model": "Qwen/Qwen2.5-7B-Instruct", "method": "lora", "data": "rows.jsonl"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    export = export_job(
        load_job(tmp_path / "job.yaml"), SOURCES, to="llamafactory", folder=tmp_path / "out"
    )
    info = json.loads(file_of(export, "dataset_info.json"))
    assert info == {"train": {"file_name": "../rows.jsonl", "formatting": "alpaca"}}
    with pytest.raises(CannotExport) as refused:
        export_job(load_job(tmp_path / "job.yaml"), SOURCES, to="trl", folder=tmp_path)
    assert [one.path for one in refused.value.mistakes] == ["data.path"]


def test_versions_are_fixed_only_where_the_job_states_them() -> None:
    assert file_of(exported("trl"), "requirements.txt") == "trl\npeft\n"
    stated = exported("trl", framework="trl==1.16.0", software={"torch": "2.10.0"})
    assert file_of(stated, "requirements.txt") == "trl==1.16.0\npeft\ntorch==2.10.0\n"


def test_a_file_that_is_there_is_named_and_not_written_over(tmp_path: Path) -> None:
    export = exported("trl", launchers=["torchrun"])
    (tmp_path / "launch.sh").write_text("mine")
    with pytest.raises(InvalidRequest) as refused:
        refuse_existing(export.files, tmp_path)
    assert [one.path for one in refused.value.mistakes] == [str(tmp_path / "launch.sh")]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", list(LAUNCHERS))
def test_a_launch_file_starts_every_process(kind: str, nodes: int) -> None:
    export = exported(
        "trl",
        launchers=[kind],
        hardware={**EIGHT, "num_nodes": nodes},
        parallelism="fsdp2",
        limits={"deadline": "30 h"},
    )
    text = "".join(one.text for one in export.files[2:])
    assert "trl.scripts.sft --config train.yaml" in text
    assert any(f"{mark}8" in text for mark in ("per_node ", "num_gpus ", "slots=")) or (
        f"num_processes: {8 * nodes}" in text
    )
    if kind in ("slurm", "kubernetes"):
        assert "1-06:00:00" in text or "activeDeadlineSeconds: 108000" in text


@pytest.mark.parametrize("kind", ["kubernetes", "pytorchjob"])
def test_a_manifest_says_that_its_image_is_a_placeholder(kind: str) -> None:
    export = exported("trl", launchers=[kind], hardware=EIGHT)
    assert "pytorch:latest is a placeholder" in "".join(one.text for one in export.files)


def test_torchtune_starts_under_torchrun_alone() -> None:
    with pytest.raises(CannotExport) as refused:
        exported("torchtune", launchers=["accelerate", "deepspeed", "torchrun"], hardware=EIGHT)
    assert [one.value for one in refused.value.mistakes] == ["accelerate", "deepspeed"]
    export = exported("torchtune", launchers=["torchrun"], hardware=EIGHT)
    line = "tune run --nproc_per_node 8 lora_finetune_distributed --config train.yaml"
    assert line in file_of(export, "launch.sh")


def test_a_scheduler_without_a_name_for_the_card_is_refused() -> None:
    with pytest.raises(CannotExport) as refused:
        exported("trl", launchers=["skypilot", "dstack"], hardware={"accelerator": "Intel Gaudi 3"})
    assert {one.path for one in refused.value.mistakes} == {"hardware.accelerator"}
