"""A second process that stays and works on half of each search: for a server, which cannot fork.

It is asked through a pipe that nobody else holds, so that it ends with its parent. What it fails
at, or cannot do because it is busy or gone, is done by the one who asked.
"""

from __future__ import annotations

import copyreg
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Helper:
    """The second process; threads may share it, and one of them has it at a time."""

    def __init__(self) -> None:
        import multiprocessing

        copyreg.pickle(MappingProxyType, _as_dict)
        context = multiprocessing.get_context("spawn")
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end,), daemon=True)
        self._process.start()
        other_end.close()
        self._lock = Lock()
        self._number = 0

    @contextmanager
    def asked(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Callable[[], Any]]:
        """Within the block the helper works; what the block is given waits for the result.

        The result is None where there is no help: busy, gone, or failed.
        """
        if not self._lock.acquire(blocking=False):
            yield _nothing
            return
        try:
            self._number += 1
            sent = False
            with suppress(OSError, ValueError):
                self._pipe.send((self._number, function, arguments))
                sent = True
            yield self._result if sent else _nothing
        finally:
            self._lock.release()

    def _result(self) -> Any:
        """The result of the last request; those of requests given up before are passed over."""
        number, result = 0, None
        while number != self._number:
            try:
                number, result = self._pipe.recv()
            except (EOFError, OSError):
                return None
        return result

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        self._process.join(5)


def _nothing() -> None:
    return None


def _as_dict(mapping: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _read_only, (dict(mapping),)


def _read_only(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)


def _serve(pipe: Connection) -> None:
    """Work until the other end is closed; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000)
    copyreg.pickle(MappingProxyType, _as_dict)
    while True:
        try:
            number, function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result = function(*arguments)
        except Exception:  # who asked does it again, and meets the error there
            result = None
        try:
            pipe.send((number, result))
        except (OSError, ValueError):
            return
