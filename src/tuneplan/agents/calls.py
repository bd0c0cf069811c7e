"""One call of a tool: its arguments checked, its command run within limits, its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tuneplan.access.roots import may_name, not_allowed, own_roots, texts_of
from tuneplan.agents.offered import COMMAND, Tool
from tuneplan.frozen import dataclass

_LARGEST_ANSWER: Final = 8 * 2**20
_GUARDED: Final = ("-m", "tuneplan.cli.guarded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a call may go.

    Attributes:
        roots: Folders that may be read.
        time_s: Of the whole call.
        memory_bytes: Of its process.
    """

    roots: tuple[Path, ...] = ()
    time_s: float = 120.0
    memory_bytes: int = 4 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a call gives: the answer's document, or the errors' one."""

    document: Mapping[str, Any]
    is_error: bool


def call(tool: Tool, arguments: Mapping[str, Any], limits: Limits) -> Reply:
    """Run a tool; every failure is a reply."""
    wrong = list(_invalid(tool, arguments))
    if wrong:
        return _errors("invalid_arguments", wrong)
    outside = [path for path in _named_paths(tool, arguments) if not _allowed(path, limits)]
    if outside:
        return _errors(
            "path_not_allowed", [str(not_allowed(path, limits.roots)) for path in outside]
        )
    with tempfile.TemporaryDirectory(prefix="tuneplan-call-") as name:
        folder = Path(os.path.realpath(name))
        words = [*COMMAND[tool.name], *tool.words(arguments, folder), "--json"]
        return _run(words, folder, limits)


def _run(words: Sequence[str], folder: Path, limits: Limits) -> Reply:
    settings = {
        "roots": [str(root) for root in limits.roots],
        "writable": [str(folder)],
        "memory_bytes": limits.memory_bytes,
        "cpu_s": limits.time_s,
    }
    environment = {**os.environ, "TMPDIR": str(folder), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(  # noqa: S603 - our own code, in our own interpreter
        [sys.executable, *_GUARDED, json.dumps(settings), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=limits.roots[0] if limits.roots else folder,
        env=environment,
        start_new_session=True,
    )
    try:
        output, said = process.communicate(timeout=limits.time_s)
    except subprocess.TimeoutExpired:
        return _errors("call_timed_out", [f"no answer within {limits.time_s:g} s"])
    finally:
        _end(process)
    if len(output) > _LARGEST_ANSWER:
        return _errors("answer_too_large", ["the answer is larger than 8 MiB: ask for less"])
    try:
        document = json.loads(output)
    except ValueError:
        last = said.decode("utf-8", errors="replace").strip().splitlines()[-1:]
        return _errors("call_failed", last or [f"the process ended with {process.returncode}"])
    return Reply(document=document, is_error=process.returncode not in (0, 3))


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _invalid(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[str]:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(tool.input_schema())
    for error in validator.iter_errors(dict(arguments)):
        where = "/".join(str(part) for part in error.absolute_path)
        yield f"{where}: {error.message[:300]}" if where else error.message[:300]


def _named_paths(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Every argument that names a file which is there, and those of the job itself."""
    for name in tool.paths:
        value = arguments.get(name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                yield one
    job = arguments.get("job")
    if isinstance(job, Mapping):
        yield from texts_of(job)


def _allowed(text: str, limits: Limits) -> bool:
    return may_name(text, limits.roots, also=own_roots())


def _errors(code: str, told: Sequence[str]) -> Reply:
    errors: list[dict[str, Any]] = [
        {"code": code, "message": one, "path": None, "line": None, "value": None, "near": []}
        for one in told
    ]
    return Reply(document={"schema_version": 1, "errors": errors}, is_error=True)
