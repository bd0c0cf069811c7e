"""A model by the name of a folder that is not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreign_documents import loaded
from tuneplan.formats.model_folder import name_of_folder, named_by_folder


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("/data/models/Qwen2.5-7B-Instruct", "Qwen2.5-7B-Instruct"),
        ("~/weights/llama-7b/", "llama-7b"),
        ("./out/Qwen3-8B/checkpoint-500", "Qwen3-8B"),
        ("D:\\models\\Yi-6B", "Yi-6B"),
        ("/c/models--Qwen--Qwen2.5-7B/snapshots/0123456789abcdef0123", "Qwen/Qwen2.5-7B"),
        ("checkpoints/meta-llama/Llama-2-7b-hf", "Llama-2-7b-hf"),
        ("Qwen/Qwen2.5-7B", None),
        ("Qwen2.5-7B", None),
        ("/", None),
    ],
)
def test_the_last_folder_that_says_something_is_the_name(written, name, tmp_path) -> None:
    assert name_of_folder(written, tmp_path) == name


def test_a_folder_that_is_here_stays_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert name_of_folder("./mine", tmp_path) is None


def test_the_reader_is_told_with_the_line() -> None:
    found = named_by_folder(loaded("axolotl", "sequence_len: 5\nbase_model: /data/Yi-6B\n"))
    assert found.job["model"] == "Yi-6B"
    assert (found.notices[-1].path, found.notices[-1].line) == ("base_model", 2)
