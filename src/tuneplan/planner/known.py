"""Estimates of jobs that were asked about before, for as long as nothing that they hang on changes.

A page asks for the same job in several views, for its changes again and again, and for what a
slider has passed already. An estimate hangs on what the job says, its model and data as they were
read now, the catalogues, traces that were kept, and the language of the words in it.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from tuneplan.language import current_language

if TYPE_CHECKING:
    from tuneplan.planner.dataset import Dataset
    from tuneplan.planner.estimate import JobEstimate
    from tuneplan.planner.sources import Sources
    from tuneplan.spec.architecture import ModelArchitecture
    from tuneplan.spec.stated import StatedJob

MOST_KEPT: Final = 256


class Estimates:
    """The last estimates from one set of catalogues; threads may share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, tuple[tuple[Any, ...], JobEstimate]] = OrderedDict()
        self._lock = Lock()

    def get(self, asked: Asked) -> JobEstimate | None:
        """The estimate of exactly this, where it is known."""
        with self._lock:
            found = self._kept.get(asked.short)
            if found is None or found[0] != asked.whole:
                return None
            self._kept.move_to_end(asked.short)
            return found[1]

    def keep(self, asked: Asked, estimate: JobEstimate) -> None:
        """Remember an estimate; the one that was not asked for longest goes."""
        with self._lock:
            self._kept[asked.short] = (asked.whole, estimate)
            self._kept.move_to_end(asked.short)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class Asked:
    """Everything that an estimate hangs on but the catalogues.

    Attributes:
        short: Most of it, to look it up by; ``whole`` is compared.
    """

    __slots__ = ("short", "whole")

    def __init__(
        self,
        job: StatedJob,
        model: ModelArchitecture,
        dataset: Dataset,
        sources: Sources,
        *,
        replays: bool,
    ) -> None:
        recipe = job.recipe
        self.short = (
            *(job.model, job.data.num_samples, job.data.mean_tokens, job.hardware, job.limits),
            *(recipe.framework, recipe.objective, recipe.method, recipe.adapter),
            *(recipe.quantization, recipe.training, recipe.parallelism),
            *(replays, current_language()),
        )
        self.whole = (job, job.places, model, dataset, _traces(sources))


def _traces(sources: Sources) -> int:
    """When a trace was last kept; 0 where none was."""
    if sources.trace_folder is None or not sources.trace_folder.is_dir():
        return 0
    return sources.trace_folder.stat().st_mtime_ns
