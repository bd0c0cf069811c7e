"""Configurations of any kind become a job whose mistakes stand in the user's own file."""

from pathlib import Path

import pytest

from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.formats.reading import parse_foreign
from tuneplan.planner.importing import import_job, is_job_file, read_configuration


def test_a_job_file_may_be_given_too(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\ntraining: {max_length: 512}\n")
    read = read_configuration(path, overrides={"hardware.accelerator": "H100 SXM"})
    assert read.format == "tuneplan"
    assert read.imported is None
    assert read.job.hardware.accelerator == ("H100 SXM",)
    assert read.job.recipe.training.max_length == 512
    assert read.job.places["training.max_length"] == (str(path), 2)


def test_the_framework_of_the_command_line_goes_before_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\nframework: axolotl\ntraining: {max_length: 512}\n")
    read = read_configuration(path, framework="trl==0.12.0")
    assert (read.job.recipe.framework, read.job.recipe.framework_version) == ("trl", "0.12.0")


def test_every_mistake_of_a_job_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\ntraining:\n  max_length: -1\nhardware:\n  acelerator: T4\n")
    with pytest.raises(InvalidRequest) as caught:
        read_configuration(path)
    assert [(one.path, one.line) for one in caught.value.mistakes] == [
        ("training.max_length", 3),
        ("hardware.acelerator", 5),
    ]


def test_what_is_nobody_s_configuration_is_refused_with_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "shopping.yaml"
    path.write_text("apples: 3\npears: 4\n")
    with pytest.raises(UnreadableFile) as caught:
        read_configuration(path)
    assert "--framework" in str(caught.value)


def test_a_job_file_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\nlimits: {headroom: 0.1}\n")
    with pytest.raises(UnreadableFile) as caught:
        import_job(path)
    assert caught.value.message.code == "already_a_job_file"


@pytest.mark.parametrize(
    ("text", "candidates", "ours"),
    [
        ("model: 7B\n", (), True),
        ("model: 7B\nmethod: lora\ndata: x.jsonl\n", ("ms-swift",), True),
        ("model: 7B\ntrain_type: lora\ndataset: x\n", ("ms-swift",), False),
        ("model: 7B\ntrainig: {max_length: 4}\n", (), True),
        ("model: {_component_: torchtune.models.llama3.llama3_8b}\n", ("torchtune",), False),
        ("training: {steps: 3}\nname: a\norchestration: {x: 1}\n", ("torchtune",), False),
        ("model_name_or_path: x/y\nmax_length: 512\n", ("trl",), False),
        ("hardware: {accelerator: T4}\n", (), True),
    ],
)
def test_job_files_are_told_from_configurations(
    text: str, candidates: tuple[str, ...], ours: bool
) -> None:
    assert is_job_file(parse_foreign(text, name="x.yaml"), candidates) is ours
