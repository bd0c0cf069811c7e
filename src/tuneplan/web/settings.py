"""What the one who starts the page decides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from tuneplan.frozen import dataclass


def _today() -> date:
    return datetime.now(tz=UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the page is served.

    Attributes:
        roots: Folders whose files a request may name, links followed; none by default.
        store: File of the user's own measurements; None for the usual place.
        upload_limit_bytes: Of what a form or a program may send.
        hosts: Names under which the page may be asked for; any other is somebody's trick.
        today: The day that answers state.
        time_limit_s: Of one answer; beyond it the work is given up.
        helper: Whether a second process works on half of each search, where there are two cores.
        workers: Answers that are worked on at once.
        waiting: Requests that may wait for a worker; more are sent away.
    """

    roots: tuple[Path, ...] = ()
    store: str | None = None
    upload_limit_bytes: int = 32 * 2**20
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    today: Callable[[], date] = _today
    time_limit_s: float = 30.0
    helper: bool = False
    workers: int = 2
    waiting: int = 32
