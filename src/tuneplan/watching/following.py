"""Growing logs, read as they grow: what is new since the last look.

Survives what happens to logs: a file that is cut and begun again (rotation, a restarted run), one
that is replaced by another, one that vanishes for a while, a half-written line, new files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from tuneplan.errors import InputError
from tuneplan.frozen import dataclass
from tuneplan.logs.lines import LONGEST_LINE, LineScanner
from tuneplan.logs.registry import find_logs
from tuneplan.logs.tensorboard_events import is_event_file, read_event_file
from tuneplan.logs.trainer_state import read_trainer_state
from tuneplan.spec.run_log import LogPoint, Metric, RunLog

_CHUNK: Final = 4 * 2**20
_LOOK_EVERY: Final = 10  # looks between two searches for new files
# Which log tells most about steps and time, best first.
_ORDER: Final = (
    "tensorboard",
    "llamafactory",
    "megatron",
    "torchtune",
    "deepspeed",
    "trainer",
    "trainer_state",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One new point, and the format of its log."""

    format: str
    point: LogPoint
    absolute_time: bool


class _Follower(Protocol):
    def news(self) -> Iterator[News]:
        """Points that were not there at the last look."""


class Following:
    """All logs of a run: a folder, or one file."""

    def __init__(self, source: str | Path) -> None:
        self.source = Path(source)
        self._followers: dict[Path, _Follower] = {}
        self._looks = 0
        self._formats: set[str] = set()

    @property
    def exists(self) -> bool:
        """Whether the run is where it was."""
        return self.source.exists()

    def news(self) -> tuple[News, ...]:
        """What is new, of the best log alone; memory figures of all of them."""
        if self._looks % _LOOK_EVERY == 0:
            self._find()
        self._looks += 1
        new = [one for follower in self._followers.values() for one in follower.news()]
        self._formats.update(one.format for one in new if Metric.LOSS in one.point.values)
        main = next((name for name in _ORDER if name in self._formats), None)
        return tuple(one for one in new if one.format == main or not _counts_steps(one.point))

    def _find(self) -> None:
        try:
            paths = find_logs([self.source])
        except InputError:
            paths = (self.source,) if self.source.is_file() else ()
        for path in paths:
            if path not in self._followers and path.suffix not in {".pickle", ".pkl", ".csv"}:
                self._followers[path] = _follower(path)


def _counts_steps(point: LogPoint) -> bool:
    return Metric.LOSS in point.values or Metric.EVAL_LOSS in point.values


def _follower(path: Path) -> _Follower:
    if is_event_file(path):
        return _Reread(path, read=read_event_file, absolute_time=True)
    if path.name == "trainer_state.json":
        return _Reread(path, read=read_trainer_state, absolute_time=False)
    return _Tail(path)


class _Reread:
    """A file that is read again whenever it has changed; points after the last one are new."""

    def __init__(self, path: Path, *, read: Any, absolute_time: bool) -> None:
        self._path = path
        self._read = read
        self._absolute_time = absolute_time
        self._seen: tuple[int, int] | None = None
        self._count = 0
        self._last: LogPoint | None = None

    def news(self) -> Iterator[News]:
        """Points that were not there at the last look."""
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_size) == self._seen:
                return
            log = self._read(self._path)
        except (OSError, InputError):  # being written, or gone: the next look will tell
            return
        self._seen = (stat.st_mtime_ns, stat.st_size)
        if len(log.points) < self._count:
            self._count, self._last = 0, None
        for point in (*self._grown(log), *log.points[self._count :]):
            told = replace(point, values={**_whole(log), **point.values})
            yield News(format=log.format, point=told, absolute_time=self._absolute_time)
        self._count = len(log.points)
        self._last = log.points[-1] if log.points else None

    def _grown(self, log: RunLog) -> Iterator[LogPoint]:
        """What came to the last point that was seen: an evaluation, the end of training."""
        if self._last is None:
            return
        before, point = self._last.values, log.points[self._count - 1]
        new = {name: value for name, value in point.values.items() if name not in before}
        if new and point.step == self._last.step:
            yield replace(point, values=new)


def _whole(log: RunLog) -> dict[Metric, float]:
    """What a log says of the whole run, that each of its points may be seen in it."""
    total = log.totals.get(Metric.TOTAL_STEPS)
    return {} if total is None else {Metric.TOTAL_STEPS: total}


class _Tail:
    """A text file, from where it was read to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._inode: int | None = None
        self._rest = b""
        self._scanner = LineScanner()

    def news(self) -> Iterator[News]:
        """Points of the lines that are complete since the last look."""
        for line in self._new_lines():
            read = self._scanner.read(line)
            if read is not None:
                name, point = read
                absolute = name in {"megatron", "deepspeed"}
                yield News(format=name, point=point, absolute_time=absolute)

    def _new_lines(self) -> Iterator[str]:
        try:
            with self._path.open("rb") as file:
                stat = self._path.stat()
                if self._inode not in (None, stat.st_ino) or stat.st_size < self._offset:
                    self._begin()
                self._inode = stat.st_ino
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    yield from self._lines(chunk)
        except OSError:  # gone for a while
            return

    def _lines(self, chunk: bytes) -> Iterator[str]:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-LONGEST_LINE:]
        for line in lines:
            if len(line) <= LONGEST_LINE:
                yield line.decode("utf-8", errors="replace")
