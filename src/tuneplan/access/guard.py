"""What a call may open: the user's folders, and what Python itself needs.

``install`` is for a process that does nothing else, ``reading_only`` for a stretch of work in one
that does. A hook of Python's audit events sees every file that Python code opens and every process
and socket; it cannot be taken out again. Libraries in C or Rust open files past it, so paths that a
request names are looked at before, too. Source: docs.python.org "Audit events table" (PEP 578).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Final

from tuneplan.access.roots import inside, own_roots

_REFUSED_EVENTS: Final = frozenset(
    [
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "socket.connect",
        "socket.bind",
        "urllib.Request",
        "ctypes.dlopen",
    ]
)
_LISTING_EVENTS: Final = frozenset(["os.listdir", "os.scandir"])
_CHANGING_EVENTS: Final = frozenset(
    ["os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"]
)
OWN_TEMPORARY: Final = ("tuneplan-", "openpyxl.")  # how names of temporary files begin
# Folders, and how the paths of temporary files begin.
_may_read: ContextVar[tuple[tuple[Path, ...], tuple[str, ...]] | None] = ContextVar(
    "may_read", default=None
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class OutsideAllowed(PermissionError):
    """A path that the user has not allowed."""


def install(readable: Sequence[Path], writable: Sequence[Path]) -> None:
    """From now on this process reads there and writes there, starts nothing and connects nowhere.

    Args:
        readable: Beside what Python needs.
        writable: Temporary folders of this call.
    """
    may_read = (*own_roots(), *readable, *writable)
    may_write = (*writable, Path("/dev/null"))

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            _look_at_open(arguments, may_read, may_write)
        elif event in _LISTING_EVENTS:
            _require(arguments[0] if arguments else ".", may_read)
        elif event in _CHANGING_EVENTS:
            _require(arguments[0], may_write)
        elif event in _REFUSED_EVENTS and not _is_library(event, arguments):
            raise OutsideAllowed(f"{event} is not allowed here")

    sys.addaudithook(look)


@contextmanager
def reading_only(roots: Sequence[Path]) -> Iterator[None]:
    """Within the block (and in this thread alone) Python opens files of these folders only.

    Temporary files that work makes itself (``OWN_TEMPORARY``) may be opened too.

    Raises:
        OutsideAllowed: In the block, for any other file.
    """
    _hook_once()
    # Found before it is looked at: finding it opens files itself.
    token = _may_read.set((tuple(roots), _own_temporary()))
    try:
        yield
    finally:
        _may_read.reset(token)


@cache
def _hook_once() -> None:
    sys.addaudithook(_look_at_work)


def _look_at_work(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" and event not in _LISTING_EVENTS:
        return
    allowed = _may_read.get()
    if allowed is None:
        return
    roots, temporary = allowed
    path = arguments[0] if arguments else "."
    if isinstance(path, str):
        real = os.path.realpath(path)
        # A file without a name is opened by its folder (Linux's O_TMPFILE).
        nameless = event == "open" and temporary[0].startswith(real + os.sep + OWN_TEMPORARY[0])
        if nameless or real.startswith(temporary):
            return
    _require(path, roots)
    if event == "open" and not isinstance(path, int):
        _refuse_pipe(path)


def _refuse_pipe(path: Any) -> None:
    """Opening a named pipe waits for its other end, and nothing can end the wait from outside."""
    pipe = False
    with suppress(OSError, ValueError):
        pipe = Path(os.fsdecode(path)).is_fifo()
    if pipe:
        raise OutsideAllowed(13, "a pipe, not a file", os.fsdecode(path))


def _own_temporary() -> tuple[str, ...]:
    """How the paths of temporary files begin that work makes itself."""
    folder = os.path.realpath(tempfile.gettempdir())
    return tuple(f"{folder}{os.sep}{name}" for name in OWN_TEMPORARY)


def _look_at_open(
    arguments: tuple[Any, ...], may_read: Sequence[Path], may_write: Sequence[Path]
) -> None:
    path, mode, flags = arguments
    if isinstance(path, int):
        return
    writes = any(letter in str(mode or "") for letter in "wax+") or bool((flags or 0) & _WRITES)
    _require(path, may_write if writes else may_read)


def _require(path: Any, roots: Sequence[Path]) -> None:
    if path is None or isinstance(path, int):
        return
    name = os.fsdecode(path)
    if not inside(name, roots):
        raise OutsideAllowed(13, "not in a folder that is allowed", name)


def _is_library(event: str, arguments: tuple[Any, ...]) -> bool:
    """Libraries that are loaded from where Python itself lies."""
    return event == "ctypes.dlopen" and (not arguments or arguments[0] is None)
