"""Live runs that the page looks at: each watched on from look to look, forgotten when nobody asks.

A run that vanishes is waited for: it may be on a disk that comes back.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from tuneplan.access.roots import may_name, refused
from tuneplan.errors import InvalidRequest

if TYPE_CHECKING:
    from tuneplan.contract.watched import WatchAnswer
    from tuneplan.watching.following import Following
    from tuneplan.watching.watcher import Expected, Watcher
    from tuneplan.web.form import Form

_MOST: Final = 8
_FORGOTTEN_AFTER_S: Final = 3600.0


class _Live:
    """One run."""

    def __init__(self, path: Path, expected: Expected, now_s: float) -> None:
        from tuneplan.watching.following import Following
        from tuneplan.watching.watcher import Watcher

        self.following: Following = Following(path)
        self.watcher: Watcher = Watcher(expected, began_s=now_s)
        self.expected = expected
        self.asked_s = now_s
        self.lock = Lock()


class LiveRuns:
    """The runs of a server; several requests may look at once."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._runs: OrderedDict[tuple[str, Expected], _Live] = OrderedDict()
        self._lock = Lock()

    def look(self, path: Path, expected: Expected) -> WatchAnswer:
        """What is new of a run, what it expects of the plan beside it."""
        from tuneplan.devices import devices_here
        from tuneplan.report.watched import watch_answer

        live = self._live(path, expected)
        with live.lock:
            look = live.watcher.look(
                live.following.news(),
                now_s=self._clock(),
                devices=devices_here().sample(),
                free_bytes=_free_bytes(path),
                missing=not live.following.exists,
            )
        return watch_answer(look, currency=expected.currency)

    def knows(self, path: Path, expected: Expected) -> bool:
        """Whether a run is watched already, so that it may have vanished since."""
        return (str(path), expected) in self._runs

    def _live(self, path: Path, expected: Expected) -> _Live:
        now_s, key = self._clock(), (str(path), expected)
        with self._lock:
            for name, one in tuple(self._runs.items()):
                if now_s - one.asked_s > _FORGOTTEN_AFTER_S:
                    del self._runs[name]
            live = self._runs.setdefault(key, _Live(path, expected, now_s))
            live.asked_s = now_s
            self._runs.move_to_end(key)
            while len(self._runs) > _MOST:
                self._runs.popitem(last=False)
        return live


def _free_bytes(path: Path) -> int | None:
    with suppress(OSError):
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize
    return None


def run_path(form: Form) -> Path:
    """The run that a request names.

    Raises:
        InvalidRequest: It lies outside of the folders that may be read.
    """
    said = form.text("run")
    path = Path(form.base_path) / Path(said).expanduser() if "~" not in said else Path(said)
    if "://" in said or not may_name(str(path), form.roots):
        raise InvalidRequest([refused(said, form.roots, path="run")])
    return path
