"""What an answer may look at: the settings, the day, catalogues that stay warm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from tuneplan.web.live_runs import LiveRuns
from tuneplan.web.settings import Settings
from tuneplan.web.shelf import Known, Shelf

if TYPE_CHECKING:
    from tuneplan.planner.helping import Helper
    from tuneplan.planner.sources import Sources
    from tuneplan.spec.stated import StatedJob

_KEPT = 8


class World:
    """Made once for a server; reads files again only where they have changed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.shelf = Shelf()
        self.known = Known(most=_KEPT)
        self.runs = LiveRuns()
        self._sources: dict[tuple[object, ...], Sources] = {}
        self.helper: Helper | None = None

    def start_helper(self) -> None:
        """A process that works on half of each search, where there are two cores."""
        from tuneplan.planner.helping import Helper
        from tuneplan.planner.sharing import processes_at_hand

        if self.helper is None and processes_at_hand() > 1:
            self.helper = Helper()

    def close(self) -> None:
        """End what was started."""
        if self.helper is not None:
            self.helper.close()

    @property
    def today(self) -> date:
        """The day of the answer."""
        return self.settings.today()

    def sources(self, job: StatedJob | None = None) -> Sources:
        """The catalogues with the files that the job names, those of an earlier answer if same.

        Raises:
            InvalidRequest: Every mistake in the user's own files.
        """
        from tuneplan.planner.sources import sources_for
        from tuneplan.spec.stated import StatedJob

        asked = job or StatedJob(model="")
        day = self.today
        key = (day, asked.base_path, *_stamps(asked))
        found = self._sources.get(key)
        if found is None:
            found = sources_for(asked, today=day)
            while len(self._sources) >= _KEPT:
                self._sources.pop(next(iter(self._sources)), None)
            self._sources[key] = found
        return found


def _stamps(job: StatedJob) -> Iterator[tuple[str, int, int]]:
    """The files that catalogues are read from, with size and time of change."""
    from tuneplan.catalog.offers import refreshed_file

    base = Path(job.base_path)
    for name in (*job.models, "", *job.accelerators, "", *job.prices, str(refreshed_file())):
        size = changed = 0
        with suppress(OSError, ValueError):
            found = (base / name).stat()
            size, changed = found.st_size, found.st_mtime_ns
        yield name, size, changed
