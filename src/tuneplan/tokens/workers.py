"""One function over many units of work, on all cores of this machine; results in order.

Workers are Python processes of their own, started by their command line, so that a caller needs no
``if __name__ == "__main__"`` and may have threads. What waits for an earlier unit is bounded: the
memory does not grow with the number of units.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import IO, Any, Final, Protocol, TypeVar

from tuneplan.errors import TuneplanError
from tuneplan.language import message

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# Units handed out beyond the oldest that is not done, a worker: enough to ride out a slow one.
_AHEAD: Final = 4
# Workers that may die on one unit before it is given up.
_TRIES: Final = 2
_LENGTH: Final = struct.Struct("<Q")
_START: Final = (
    "import sys; sys.path[:] = {paths!r}; from tuneplan.tokens.workers import serve; serve()"
)


class WorkerDied(TuneplanError):
    """A worker process ended without an answer, twice on the same unit."""


class Engine(Protocol):
    """Where units of work are done.

    Attributes:
        reads_files: Files are better read there than here and sent.
    """

    reads_files: bool

    def run(
        self, function: Callable[[Unit], Result], units: Iterable[Unit]
    ) -> Generator[Result, None, None]:
        """What the function gives for each unit, in the order of the units."""


class InProcess:
    """In this process, one after the other; the tokenizer's own threads use the cores."""

    reads_files = False

    def run(
        self, function: Callable[[Unit], Result], units: Iterable[Unit]
    ) -> Generator[Result, None, None]:
        """What the function gives for each unit, in order."""
        for unit in units:
            yield function(unit)


class Workers:
    """Over worker processes of this machine.

    Function, units and results are pickled; the function once for each worker.
    """

    reads_files = False

    def __init__(self, number: int | None = None) -> None:
        self.number = number or usable_cores()

    def run(
        self, function: Callable[[Unit], Result], units: Iterable[Unit]
    ) -> Generator[Result, None, None]:
        """What the function gives for each unit, in order.

        Raises:
            WorkerDied: A worker was killed, and the next one on the same unit too.
        """
        idle: SimpleQueue[_Worker] = SimpleQueue()
        workers = [_Worker(function) for _ in range(self.number)]
        for worker in workers:
            idle.put(worker)
        threads = ThreadPoolExecutor(self.number, thread_name_prefix="tuneplan-worker")
        try:
            waiting: deque[Future[Any]] = deque()
            for unit in units:
                waiting.append(threads.submit(_asked, idle, unit))
                while waiting and (waiting[0].done() or len(waiting) >= _AHEAD * self.number):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for worker in workers:
                worker.stop()
            threads.shutdown(wait=True, cancel_futures=True)
            for worker in workers:
                worker.close()


def _asked(idle: SimpleQueue[_Worker], unit: Any) -> Any:
    worker = idle.get()
    try:
        for _ in range(_TRIES):
            try:
                return worker.ask(unit)
            except (EOFError, BrokenPipeError, ConnectionError):
                worker.restart()
    finally:
        idle.put(worker)
    raise WorkerDied(
        message(
            "worker_died",
            "a worker process ended without an answer (status {status}), twice on the same rows; "
            "where memory is short, fewer workers need less: --workers",
            status=worker.status,
        )
    )


class _Worker:
    """One worker process, started when it is first asked."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = Lock()
        self.status: int | None = None

    def ask(self, unit: Any) -> Any:
        """What the function gives for a unit; raises what it raised."""
        with self._lock:
            if self._process is None:
                if self._stopped:
                    raise EOFError
                self._process = self._started()
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        _write(self._process.stdin, unit)
        is_answer, value = _read(self._process.stdout)
        if is_answer:
            return value
        raise value

    def restart(self) -> None:
        """Forget a process that died; the next question starts another."""
        if self._process is not None and not self._stopped:
            self._process.kill()
            self.status = self._process.wait()
            self.close()
            self._process = None

    def stop(self) -> None:
        """End the process, whatever it does."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        for stream in (self._process.stdin, self._process.stdout) if self._process else ():
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _started(self) -> subprocess.Popen[bytes]:
        # One core each: libraries that would start threads of their own are told not to.
        one_core = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own text
            [sys.executable, "-c", _START.format(paths=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the parent, which ends its workers
            env={**os.environ, **one_core},
        )
        assert process.stdin is not None  # noqa: S101 - a pipe
        _write(process.stdin, self._function)
        return process


def serve() -> None:
    """What a worker process does: read a function, then units, and answer until its input ends."""
    import signal

    from tuneplan.tokens.encoders import use_threads

    # Whoever sends SIGINT to a worker: the parent says when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_threads(1)
    _end_with_parent()
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand among the answers
    try:
        function = _read(source)
        while True:
            unit = _read(source)
            try:
                answer = (True, function(unit))
            except Exception as error:
                answer = (False, sendable(error))
            _write(answers, answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    """Where the system can, end at once when the parent is killed; else after the unit.

    Source: Linux ``prctl(2)``, PR_SET_PDEATHSIG = 1.
    """
    if sys.platform == "linux":
        import ctypes
        import signal

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def sendable(error: Exception) -> Exception:
    """The error, or what it said where it cannot be pickled and made again."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def _write(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)  # noqa: S301 - from our own process


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container.

    Source: Linux ``Documentation/admin-guide/cgroup-v2.rst``, ``cpu.max``.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return cores
