"""The changes of a configuration, each estimated in full on the same data."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.diagnosis.outcome import Outcome
from tuneplan.errors import TuneplanError
from tuneplan.estimation.uncertainty import Verdict
from tuneplan.frozen import dataclass
from tuneplan.planner.change import Change
from tuneplan.planner.changes import changes_of
from tuneplan.planner.changing import with_settings
from tuneplan.planner.estimate import JobEstimate, estimate_job, fits_on_every_card
from tuneplan.planner.layout_changes import other_card
from tuneplan.planner.outcomes import outcome_of
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import StatedJob

_CARDS_TRIED = 3
_SAME_WORK = 0.01  # steps of two configurations that see the same samples, as a share


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedChange:
    """A change and what the job comes to with it; no replay of the allocator in ``estimate``."""

    change: Change
    job: StatedJob
    outcome: Outcome
    estimate: JobEstimate


class Trying:
    """Estimates changes of one job; the data is read once.

    Attributes:
        by_formula: The job as it is, by the same count as the changes (no replay of the allocator).
        now: The likely figures of that.
    """

    def __init__(self, job: StatedJob, estimate: JobEstimate, sources: Sources) -> None:
        self.job, self.sources = job, sources
        self.dataset = estimate.resolved.dataset
        self._resolved, self._memory = estimate.resolved, estimate.memory
        self.by_formula = self._estimate(job, replays=False)
        self.now = outcome_of(self.by_formula)

    def all(self) -> tuple[TriedChange, ...]:
        """Every change that can run at all."""
        return tuple(self._tried())

    def changes(self) -> tuple[Change, ...]:
        """Every change that makes sense, and larger cards where the job does not fit."""
        return (*changes_of(self._resolved), *self._larger_cards())

    def tried(self, change: Change) -> TriedChange:
        """A change in figures.

        Raises:
            TuneplanError: The framework or the chip refuses it.
        """
        job = self._same_work(change.applied(self.job))
        estimate = self._estimate(job, replays=False)
        return TriedChange(change=change, job=job, outcome=outcome_of(estimate), estimate=estimate)

    def in_full(self, tried: TriedChange) -> JobEstimate:
        """The estimate of a change with the allocator replayed, as the job's own is."""
        return self._estimate(tried.job, replays=True)

    def _tried(self) -> Iterator[TriedChange]:
        for change in self.changes():
            try:
                yield self.tried(change)
            except TuneplanError:  # the framework or the chip refuses it
                continue

    def _larger_cards(self) -> Iterator[Change]:
        """Where the job does not fit: the smallest cards on offer that hold it as it is."""
        fit = self._memory.fit
        if fit is None or fit.verdict is Verdict.FITS:
            return
        holding = [
            (name, on.capacity_bytes)
            for name, on in fits_on_every_card(self._resolved, self._memory, self.sources)
            if on.verdict is Verdict.FITS
            and on.headroom_bytes >= self.job.limits.headroom_fraction * on.capacity_bytes
            and self.sources.offers.of(name)
        ]
        yield from (other_card(name, size) for name, size in holding[:_CARDS_TRIED])

    def _estimate(self, job: StatedJob, *, replays: bool) -> JobEstimate:
        return estimate_job(job, self.sources, dataset=self.dataset, replays=replays)

    def _same_work(self, job: StatedJob) -> StatedJob:
        """Where the steps are stated: so many that as many samples are seen as before."""
        steps = job.recipe.training.max_steps
        if not steps or self.dataset.statistics is None:
            return job
        before = _samples_per_step(self.by_formula)
        after = _samples_per_step(self._estimate(job, replays=False))
        if abs(before / after - 1) <= _SAME_WORK:
            return job
        return with_settings(job, {"training.max_steps": max(1, round(steps * before / after))})


def _samples_per_step(estimate: JobEstimate) -> float:
    resolved = estimate.resolved
    micro_batches = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
    return resolved.batch.samples * micro_batches
