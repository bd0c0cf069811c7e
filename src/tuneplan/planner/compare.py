"""Use-case: a few jobs estimated side by side; one that cannot be does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuneplan.errors import InputError, Mistake
from tuneplan.frozen import dataclass
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import StatedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of the jobs: its estimate, or what is wrong with it."""

    estimate: JobEstimate | None = None
    mistakes: tuple[Mistake, ...] = ()


def compare_jobs(
    jobs: Sequence[Callable[[], StatedJob]],
    sources: Callable[[StatedJob], Sources],
    *,
    replays: bool = True,
) -> tuple[Compared, ...]:
    """Estimate jobs in their order.

    Args:
        jobs: Each reads one job, and may refuse it.
        sources: The catalogues of a job.
        replays: As for ``estimate_job``.
    """
    return tuple(_compared(read, sources, replays=replays) for read in jobs)


def _compared(
    read: Callable[[], StatedJob], sources: Callable[[StatedJob], Sources], *, replays: bool
) -> Compared:
    try:
        job = read()
        return Compared(estimate=estimate_job(job, sources(job), replays=replays))
    except InputError as error:
        return Compared(mistakes=tuple(error.mistakes))
