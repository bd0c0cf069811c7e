"""The documentation site: what its menu names, and what the built pages load and lead to."""

import importlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]


def named(nav: list[Any]) -> Iterator[str]:
    """The pages of a menu, in its order."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from named(inner if isinstance(inner, list) else [inner])


def test_every_page_is_in_the_menu_once_and_every_name_is_a_page() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(named(SETTINGS["nav"])) == sorted(pages)


def test_every_page_begins_with_one_title() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        blocks = path.read_text(encoding="utf-8").split("```")[::2]  # what stands in no code block
        titles = [line for text in blocks for line in text.splitlines() if line.startswith("# ")]
        assert len(titles) == 1, path


@pytest.fixture(scope="module")
def check_site() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("check_site")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    check_site: ModuleType, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / SETTINGS["site_dir"]
    assert len(list(site.rglob("*.html"))) >= len(list((ROOT / "docs").rglob("*.md")))
    assert list(check_site.faults(site)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<script src="https://cdn.example/x.js">', "from another host"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "from another host"),
        ('<p style="background: url(https://cdn.example/x.png)">', "from another host"),
        ('<img src="missing.svg">', "no such file"),
        ('<a href="missing.html">', "no such file"),
        ('<a href="folder/">', "no such file"),
        ('<a href="#nowhere">', "no such place"),
    ],
)
def test_a_page_that_loads_from_afar_or_leads_nowhere_is_found(
    check_site: ModuleType, tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    (found,) = check_site.faults(tmp_path)
    assert fault in found


def test_a_link_of_the_text_to_another_host_is_left_to_the_reader(
    check_site: ModuleType, tmp_path: Path
) -> None:
    text = '<p id="here"><a href="https://example.org/">there</a> <a href="#here">here</a>'
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    assert list(check_site.faults(tmp_path)) == []
