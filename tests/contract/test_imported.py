"""A job that was made from another tool's configuration tells of that configuration's keys."""

import pytest

from tuneplan.contract.documents import Origin
from tuneplan.contract.reading import load_imported
from tuneplan.errors import InvalidRequest

ORIGINS = {
    "model": Origin(path="base_model", file="train.yml", line=1),
    "method": Origin(path="adapter", file="train.yml", line=2),
    "training.max_length": Origin(path="sequence_len", file="train.yml", line=7),
    "adapter.r": Origin(path="lora_r", file="train.yml", line=9),
    "parallelism.strategy": Origin(path="zero_optimization.stage", file="zero3.json", line=4),
}


def test_a_mistake_names_the_key_and_the_line_of_the_user_s_own_file() -> None:
    job = {"model": "7B", "training": {"max_length": -4}, "parallelism": {"strategy": "zero7"}}
    with pytest.raises(InvalidRequest) as caught:
        load_imported(job, origins=ORIGINS, base_path=".")
    places = {(one.file, one.line, one.path) for one in caught.value.mistakes}
    assert places == {
        ("train.yml", 7, "sequence_len"),
        ("zero3.json", 4, "zero_optimization.stage"),
    }


def test_a_mistake_of_a_section_stands_at_its_first_key() -> None:
    job = {"model": "7B", "method": "full", "adapter": {"r": 8}}
    with pytest.raises(InvalidRequest) as caught:
        load_imported(job, origins=ORIGINS, base_path=".")
    assert [(one.path, one.line) for one in caught.value.mistakes] == [("lora_r", 9)]


def test_places_are_those_of_the_user_s_files_and_flags_have_none() -> None:
    job = {"model": "7B", "training": {"max_length": 512}, "parallelism": {"strategy": "zero3"}}
    read = load_imported(
        job, origins=ORIGINS, base_path=".", overrides={"training.max_length": 1024}
    )
    assert read.recipe.training.max_length == 1024
    assert dict(read.places) == {
        "model": ("train.yml", 1),
        "parallelism.strategy": ("zero3.json", 4),
    }


def test_a_flag_that_is_wrong_is_no_mistake_of_the_file() -> None:
    with pytest.raises(InvalidRequest) as caught:
        load_imported(
            {"model": "7B"},
            origins=ORIGINS,
            base_path=".",
            overrides={"training.max_length": "long"},
        )
    (mistake,) = caught.value.mistakes
    assert (mistake.file, mistake.line, mistake.path) == (None, None, "training.max_length")
