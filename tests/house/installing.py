"""A built wheel in an environment that holds the base dependencies and nothing else.

No network: the environment's ``site-packages`` links to the very distributions that the tests run
with, those that the base dependencies lead to, and the wheel is unpacked beside them by pip.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def base_distributions() -> dict[str, Distribution]:
    """The base dependencies and all that they need, by name."""
    found: dict[str, Distribution] = {}
    todo = list(map(Requirement, project()["dependencies"]))
    while todo:
        one = distribution(todo.pop().name)
        if one.name in found:
            continue
        found[one.name] = one
        needed = map(Requirement, one.requires or ())
        todo += [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def size_bytes(one: Distribution) -> int:
    """Bytes of the files that a distribution has installed, compiled modules included."""
    paths = (Path(one.locate_file(file)) for file in one.files or ())
    return sum(path.stat().st_size for path in paths if path.exists())


def build(kind: str, folder: Path, *, source: Path = ROOT) -> Path:
    """Build the ``wheel`` or the ``sdist``."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def install_without_extras(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and the base dependencies; the folder of its commands."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for top in _tops():
        (site / top.name).symlink_to(top)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*command, *options, str(wheel)], check=True, capture_output=True)
    return folder / "bin"


def _tops() -> Iterator[Path]:
    """What stands in ``site-packages`` itself: packages, single modules, facts of both."""
    seen = set()
    for one in base_distributions().values():
        for file in one.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and top not in seen:
                seen.add(top)
                yield Path(one.locate_file(top))
