"""Scripts of others: each is what npm publishes, and nothing else lies beside them."""

import hashlib
import tomllib
from pathlib import Path

import pytest

import tuneplan

FOLDER = Path(tuneplan.__file__).parent / "web" / "static" / "vendor"
FILES = tomllib.loads((FOLDER / "ORIGIN.toml").read_text(encoding="utf-8"))["file"]


@pytest.mark.parametrize("one", FILES, ids=lambda one: one["file"])
def test_a_script_is_the_one_that_was_published(one: dict[str, str]) -> None:
    content = (FOLDER / one["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == one["sha256"]
    assert one["version"] in one["file"]
    assert one["licence"] in ("0BSD", "BSD-3-Clause", "MIT")
    assert (FOLDER / one["licence_file"]).stat().st_size > 100


def test_nothing_lies_there_that_is_not_listed() -> None:
    listed = {one["file"] for one in FILES} | {one["licence_file"] for one in FILES}
    assert {path.name for path in FOLDER.iterdir()} == listed | {"ORIGIN.toml"}
