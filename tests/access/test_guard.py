"""A stretch of work opens what it may and nothing else; other work is not held to it."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest

from tuneplan.access.guard import OutsideAllowed, reading_only
from tuneplan.access.roots import own_roots


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name, encoding="utf-8")
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside" / "file")
    return tmp_path / "inside", tmp_path / "outside"


def test_files_inside_are_read_and_others_are_not(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    with reading_only([inside]):
        assert (inside / "file").read_text(encoding="utf-8") == "inside"
        assert [one.name for one in sorted(inside.iterdir())] == ["file", "link"]
        for path in (outside / "file", inside / ".." / "outside" / "file", inside / "link"):
            with pytest.raises(OutsideAllowed):
                path.read_text(encoding="utf-8")
        with pytest.raises(OutsideAllowed):
            list(outside.iterdir())
    assert (outside / "file").read_text(encoding="utf-8") == "outside"


def test_another_thread_is_not_held_to_it(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    read: list[str] = []
    with reading_only([inside]):
        thread = threading.Thread(target=lambda: read.append((outside / "file").read_text()))
        thread.start()
        thread.join()
    assert read == ["outside"]


def test_our_own_temporary_folders_may_be_used() -> None:
    with (
        reading_only(own_roots()),
        tempfile.TemporaryDirectory(prefix="tuneplan-data-") as folder,
    ):
        file = Path(folder) / "rows"
        file.write_text("a", encoding="utf-8")
        assert file.read_text(encoding="utf-8") == "a"
