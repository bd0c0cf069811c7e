"""What the user's own measurements do to a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuneplan.language import message
from tuneplan.planner.estimate import JobEstimate, estimate_resolved
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Notice
from tuneplan.spec.stated import StatedJob

if TYPE_CHECKING:
    from tuneplan.planner.plan import Entry


def before_own(entries: Sequence[Entry], sources: Sources) -> tuple[JobEstimate, ...]:
    """Each entry as it would be estimated without the measurements; none where there are none."""
    if sources.own is None:
        return ()
    plain = replace(sources, own=None)
    return tuple(estimate_resolved(one.estimate.resolved, plain, replays=True) for one in entries)


def reordered(job: StatedJob, entries: Sequence[Entry], sources: Sources) -> Iterator[Notice]:
    """That another plan than the first is best by the goal, now that own measurements count.

    The search ranks all candidates without them: they speak of a few settings, not of all.
    """
    if sources.own is None or job.goal not in ("cheapest", "fastest"):
        return
    figures = [_figure(one.estimate, job.goal) for one in entries]
    known = [(figure, one.rank) for figure, one in zip(figures, entries, strict=True) if figure]
    if not known:
        return
    best = min(known)[1]
    if best != entries[0].rank:
        yield Notice(
            message=message(
                "own_reorder",
                "with your own measurements plan {rank} comes before plan 1 by the goal "
                "{goal}; the search ranks without them",
                rank=best,
                goal=job.goal,
            )
        )


def _figure(estimate: JobEstimate, goal: str) -> float | None:
    if goal == "cheapest":
        return float(estimate.cost.total.likely.amount) if estimate.cost else None
    run = estimate.time.run if estimate.time else None
    return run.total_s.likely if run else None
