"""Scripts of others: each is what npm publishes, and nothing else lies beside them."""

import hashlib
import tomllib
from pathlib import Path

import pytest

import tuneplan

SHIPPED = Path(tuneplan.__file__).parent / "web" / "static" / "vendor"
FOR_TESTS = Path(__file__).parent / "vendor"


def listed(folder: Path) -> list[dict[str, str]]:
    return tomllib.loads((folder / "ORIGIN.toml").read_text(encoding="utf-8"))["file"]


FILES = [(folder, one) for folder in (SHIPPED, FOR_TESTS) for one in listed(folder)]


@pytest.mark.parametrize(("folder", "one"), FILES, ids=[one["file"] for _, one in FILES])
def test_a_script_is_the_one_that_was_published(folder: Path, one: dict[str, str]) -> None:
    content = (folder / one["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == one["sha256"]
    assert one["version"] in one["file"]
    free = ("0BSD", "BSD-3-Clause", "MIT") if folder == SHIPPED else ("MPL-2.0",)
    assert one["licence"] in free
    assert (folder / one["licence_file"]).stat().st_size > 100


@pytest.mark.parametrize("folder", [SHIPPED, FOR_TESTS], ids=["shipped", "for tests"])
def test_nothing_lies_there_that_is_not_listed(folder: Path) -> None:
    names = {one[name] for one in listed(folder) for name in ("file", "licence_file")}
    assert {path.name for path in folder.iterdir()} == names | {"ORIGIN.toml"}
