"""The answer about runs: what the store keeps, what it moves, a live run."""

from __future__ import annotations

from tuneplan.contract.learned import StoredMeasurement
from tuneplan.contract.parts import Header, Notice
from tuneplan.contract.piloted import PilotMoved
from tuneplan.contract.watched import WatchAnswer


class RunsAnswer(Header):
    """Measurements of the user's own, oldest first.

    ``moved``: figures of the job's estimate before and after the measurements; empty without a
    job, or where none is near it. ``run`` and ``watch``: the live run that was asked for.
    """

    store: str
    measurements: list[StoredMeasurement]
    moved: list[PilotMoved]
    run: str | None = None
    watch: WatchAnswer | None = None
    warnings: list[Notice]
