"""Tables of spaces that were searched before, for as long as nothing that they hang on changes.

Limits, goals and prices choose among candidates and change none of them, so that a page that moves
a budget does not search again. A key is what the search reads, compared as a whole.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from tuneplan.planner.candidates import Table
from tuneplan.planner.searching import Search

if TYPE_CHECKING:
    from tuneplan.planner.dataset import Dataset
    from tuneplan.planner.helping import Helper
    from tuneplan.planner.sources import Sources
    from tuneplan.planner.space import Space
    from tuneplan.spec.architecture import ModelArchitecture
    from tuneplan.spec.stated import StatedHardware, StatedJob, StatedRecipe

MOST_KEPT: Final = 4  # 2 to 6 MB each
_Read = tuple["StatedRecipe", "StatedHardware", "Space", "ModelArchitecture", "Dataset"]


class Tables:
    """The last few tables of one set of catalogues; threads may share it."""

    def __init__(self) -> None:
        self._kept: list[tuple[_Read, Table]] = []
        self._lock = Lock()

    def table(
        self,
        job: StatedJob,
        space: Space,
        model: ModelArchitecture,
        dataset: Dataset,
        sources: Sources,
        processes: int = 1,
        helper: Helper | None = None,
    ) -> Table:
        """The table of a space: that of an earlier search of the same, or a new one.

        ``sources`` are those that hold this object; ``processes`` and ``helper`` as for
        ``Search.table``.
        """
        read: _Read = (job.recipe, job.hardware, space, model, dataset)
        with self._lock:
            known = next((table for key, table in self._kept if key == read), None)
        if known is not None:
            return known
        made = Search(job, space, model, dataset, sources).table(processes, helper)
        with self._lock:
            self._kept = [*self._kept[-(MOST_KEPT - 1) :], (read, made)]
        return made
