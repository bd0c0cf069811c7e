"""Which interpreter traces, and whether it has what a trace needs: asked without importing it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from tuneplan.errors import InvalidRequest, MissingExtra, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message, phrase
from tuneplan.tracing.versions import NEWEST_TORCH, OLDEST_TORCH, check_torch

NEEDED: Final = ("torch", "transformers", "peft")
# What decides what a trace sees.
DECIDING: Final = (*NEEDED, "accelerate", "bitsandbytes", "liger-kernel", "litgpt")
OLDEST_PYTHON: Final = (3, 11)
_ASK: Final = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps([list(sys.version_info[:3]), found]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can trace.

    Attributes:
        own: It is the one that runs now.
        versions: ``python`` and the libraries of ``DECIDING`` that it has.
    """

    path: str
    own: bool
    versions: Mapping[str, str]


def interpreter(python: str | None = None) -> Interpreter:
    """The interpreter at ``python`` (or of the environment in that folder), else this one.

    Raises:
        MissingExtra: This one lacks what the extra ``trace`` brings.
        InvalidRequest: The named one is none, is too old, or lacks a library.
        NotSupported: Its PyTorch is none that the trace was tested with.
    """
    if python is None:
        found = own_interpreter()
        if any(name not in found.versions for name in NEEDED):
            raise MissingExtra(extra="trace", purpose=phrase("tracing a job"))
        check_torch(found.versions["torch"])
        return found
    path = _executable(python)
    found = Interpreter(path=path, own=False, versions=_ask(path, python))
    _check_named(found, python)
    check_torch(found.versions["torch"])  # before seconds are spent on importing it
    return found


@lru_cache(maxsize=1)
def own_interpreter() -> Interpreter:
    """The interpreter that runs now, complete or not."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in DECIDING:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Interpreter(path=sys.executable, own=True, versions=versions)


def _executable(python: str) -> str:
    """The interpreter's file: as given, found on the path, or in the environment's folder."""
    given = Path(python).expanduser()
    if given.is_dir():
        for inner in ("bin/python", "bin/python3", "Scripts/python.exe"):
            if (given / inner).exists():
                return str((given / inner).absolute())
        raise _refused(
            python,
            message("no_python_in", "{path} is a folder without bin/python", path=python),
        )
    found = shutil.which(str(given))
    if found is None:
        raise _refused(python, message("no_python", "{path} is no Python to run", path=python))
    return str(Path(found).absolute())


def _ask(path: str, written: str) -> dict[str, str]:
    """Versions of an interpreter and of its libraries."""
    try:
        answer = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [path, "-I", "-c", _ASK, *DECIDING],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        numbers, found = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        text = message("no_python", "{path} is no Python to run", path=written)
        raise _refused(written, text) from None
    return {"python": ".".join(map(str, numbers)), **found}


def _check_named(found: Interpreter, written: str) -> None:
    numbers = tuple(int(part) for part in found.versions["python"].split(".")[:2])
    if numbers < OLDEST_PYTHON:
        text = message(
            "python_too_old",
            "{path} is Python {version}; the trace needs {oldest} or newer",
            path=written,
            version=found.versions["python"],
            oldest=".".join(map(str, OLDEST_PYTHON)),
        )
        raise _refused(written, text)
    missing = [name for name in NEEDED if name not in found.versions]
    if not missing:
        return
    wanted = {"torch": f"'torch>={_dotted(OLDEST_TORCH)},<{NEWEST_TORCH[0]}.{NEWEST_TORCH[1] + 1}'"}
    raise _refused(
        written,
        message(
            "python_lacks",
            "the environment of {path} lacks {missing}; the trace runs with the libraries of that "
            "environment, PyTorch included",
            path=written,
            missing=", ".join(missing),
        ),
        message(
            "install_there",
            "{python} -m pip install {packages}",
            python=found.path,
            packages=" ".join(wanted.get(name, name) for name in missing),
        ),
    )


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _refused(python: str, text: Message, fix: Message | None = None) -> InvalidRequest:
    return InvalidRequest([Mistake(message=text, path="--python", value=python, how_to_fix=fix)])
