"""The one change that would help a configuration most: each tried in full, none guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tuneplan.errors import TuneplanError
from tuneplan.frozen import dataclass
from tuneplan.planner.change import Change
from tuneplan.planner.changes import (
    attentions,
    checkpointings,
    fused_losses,
    half_dtypes,
    packings,
)
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.recipe_changes import lacking
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import StatedJob

# What a plan does not search by itself.
_TRIED: Final = (packings, checkpointings, attentions, fused_losses, half_dtypes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change and what it saves.

    Attributes:
        saves: ``hours_fraction``, ``cost_fraction``, ``peak_bytes``: positive = less.
    """

    change: Change
    saves: Mapping[str, float]


def next_best_lever(
    job: StatedJob, now: JobEstimate, sources: Sources, dataset: Dataset
) -> Lever | None:
    """The change that shortens the run most, or, where none does, that frees most memory.

    None where no change saves at least 3 % of the time or of the memory.
    """
    tried: list[Lever] = []
    for change in _changes(now.resolved):
        try:
            then = estimate_job(change.applied(job), sources, dataset=dataset)
        except TuneplanError:
            continue
        tried.append(Lever(change=change, saves=_saves(now, then)))
    fast = [lever for lever in tried if lever.saves.get("hours_fraction", 0.0) >= 0.03]
    if fast:
        return max(fast, key=lambda lever: (lever.saves["hours_fraction"], lever.change.name))
    peak = now.memory.ranges.peak_bytes.likely
    small = [lever for lever in tried if lever.saves["peak_bytes"] >= 0.03 * peak]
    return max(
        small, key=lambda lever: (lever.saves["peak_bytes"], lever.change.name), default=None
    )


def _changes(resolved: Resolved) -> Iterator[Change]:
    for kind in _TRIED:
        for change in kind(resolved):
            if lacking(resolved.recipe.framework, change) is None:
                yield change


def _saves(now: JobEstimate, then: JobEstimate) -> dict[str, float]:
    saves = {
        "peak_bytes": now.memory.ranges.peak_bytes.likely - then.memory.ranges.peak_bytes.likely
    }
    fit = then.memory.fit
    runs = fit is None or fit.headroom_bytes >= 0
    if now.total_s is not None and then.total_s is not None and runs:
        saves["hours_fraction"] = 1 - then.total_s.likely / now.total_s.likely
    if now.cost is not None and then.cost is not None and runs:
        before, after = now.cost.total.likely, then.cost.total.likely
        if before.currency == after.currency and before.amount:
            saves["cost_fraction"] = float(1 - after.amount / before.amount)
    return saves
