import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tuneplan

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tuneplan"
MODULES = sorted(PACKAGE.rglob("*.py"))
DRAWERS = {"utils", "util", "common", "helpers", "helper", "misc", "tools", "manager"}
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".csv", ".cfg", ".txt", ".jsonl", ""}
# Folders of a machine; a place in a URL or in a sentence ("src/tuneplan") is none.
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:work|home|root|Users|mnt|srv)/\w")


def module_id(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_every_exported_name_is_there() -> None:
    for name in tuneplan.__all__:
        assert getattr(tuneplan, name) is not None
    assert set(tuneplan.__all__) <= set(dir(tuneplan))


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tuneplan.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = [
        *("torch", "transformers", "pydantic", "numpy", "click", "rich", "yaml"),
        *("fastapi", "starlette", "uvicorn", "jinja2"),
    ]
    code = f"import sys, tuneplan; found = set({heavy}) & set(sys.modules); assert not found, found"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(
        r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert newest is not None
    assert tuneplan.__version__ == project["version"] == newest[1]


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_no_module_is_a_drawer(path: Path) -> None:
    assert not {part.removesuffix(".py") for part in path.relative_to(PACKAGE).parts} & DRAWERS


def test_no_file_names_a_folder_of_somebody_s_machine() -> None:
    skipped = {"build", "dist", "node_modules"}
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            f for f in folders if f not in skipped and (f == ".ci" or not f.startswith((".", "__")))
        ]
        for name in names:
            path = Path(folder) / name
            if path.suffix not in TEXT or path.name == ".git" or path.stat().st_size > 5_000_000:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in MACHINE_PATH.finditer(text)]
    assert found == []
