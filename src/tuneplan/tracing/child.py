"""Runs a trace in a process of its own, and makes sentences of what goes wrong there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import NotSupported, TraceStopped
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.tracing.environment import Interpreter
from tuneplan.tracing.wire import Traced, TraceRequest, read_traced, request_document
from tuneplan.tracing.worker import MARK

Progress = Callable[[str, float], None]

# The package is loaded from its folder, without that folder's neighbours: another interpreter has
# libraries of its own.
_BOOTSTRAP: Final = """
import importlib.util, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "tuneplan", folder + "/__init__.py", submodule_search_locations=[folder]
)
package = sys.modules["tuneplan"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from tuneplan.tracing.worker import main
main()
"""
_LAST_LINES: Final = 12
# What transformers 5 says where it runs PyTorch code in place of a kernel that is not installed.
_SLOW_PATH: Final = "falling back to its reference"


def trace_in_child(
    request: TraceRequest, python: Interpreter, progress: Progress = lambda _phase, _share: None
) -> Traced:
    """Trace a job.

    Args:
        request: What to trace.
        python: The interpreter that does it.
        progress: Told the phase, and the share of the work that is done.

    Raises:
        NotSupported: The job cannot be traced; the message names what stands in the way.
        TraceStopped: The process ended without an answer.
    """
    folder = str(Path(__file__).resolve().parents[1])
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as answered:
        json.dump(request_document(request), asked)
        asked.seek(0)
        process = subprocess.Popen(  # noqa: S603 - our own code, in an interpreter of the user's
            [python.path, "-P", "-c", _BOOTSTRAP, folder],
            stdin=asked,
            stdout=answered,
            stderr=subprocess.PIPE,
            env=_environment(python),
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            said = _follow(process, progress)
            status = process.wait()
        finally:  # also where the user interrupts
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        answered.seek(0)
        try:
            document = json.load(answered)
        except ValueError:
            raise TraceStopped(_stopped(status, said)) from None
    if "refused" in document:
        raise NotSupported(Message(**document["refused"]))
    if "failed" in document:
        raise NotSupported(_failed(document["failed"]))
    return replace(read_traced(document), slow_paths=tuple(dict.fromkeys(said.slow_paths)))


def _environment(python: Interpreter) -> dict[str, str]:
    """Ours; another interpreter is not told where our libraries are."""
    found = dict(os.environ)
    if not python.own:
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            found.pop(name, None)
    return {**found, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUTF8": "1"}


@dataclass(slots=True)
class _Said:
    """What the child said: the last phase that began, its last words, kernels that it lacks."""

    phase: str = ""
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    slow_paths: list[str] = field(default_factory=list)


def _follow(process: subprocess.Popen[str], progress: Progress) -> _Said:
    """Read stderr to its end."""
    said = _Said()
    for line in process.stderr or ():
        printed, mark, ours = line.partition(MARK)
        if printed.strip():
            said.last.append(printed.strip())
        if _SLOW_PATH in printed:
            said.slow_paths.append(printed.strip().removeprefix("[transformers] "))
        if mark:
            told = json.loads(ours)
            said.phase = told["phase"]
            progress(told["phase"], told["share"])
    return said


def _failed(found: Mapping[str, Any]) -> Message:
    """What a library raised, with the module and the operation."""
    params = {
        "module": found["module"] or "the model",
        "kind": found["class"] or "?",
        "operation": found["operation"] or "Python code",
        "error": found["error"],
        "text": found["text"],
    }
    if found["class"]:
        return message(
            "trace_failed",
            "this model cannot be traced: {module} ({kind}) fails at {operation}: {error}: {text}",
            **params,
        )
    return message(
        "trace_failed_outside",
        "this job cannot be traced: outside the model's modules, at {operation}: {error}: {text}",
        **params,
    )


def _stopped(status: int, said: _Said) -> Message:
    reason = f"exit status {status}"
    if status < 0:
        try:
            reason = signal.Signals(-status).name
        except ValueError:
            reason = f"signal {-status}"
    return message(
        "trace_stopped",
        "the process that traces ended without an answer ({reason}) in the phase {phase!r}; its "
        "last words: {said}",
        reason=reason,
        phase=said.phase or "start",
        said=said.last[-1][:300] if said.last else "-",
    )
