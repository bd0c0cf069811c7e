"""Several configurations estimated in full, half of them by a helper where there is one."""

from __future__ import annotations

from collections.abc import Sequence

from tuneplan.planner.estimate import JobEstimate, estimate_resolved
from tuneplan.planner.helping import Helper
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources

_KEPT = 4


def estimate_all(
    resolved: Sequence[Resolved], sources: Sources, helper: Helper | None = None
) -> list[JobEstimate]:
    """The estimate of each, with the allocator replayed."""
    if helper is None or len(resolved) < 2:
        return _estimated(resolved, sources)
    mine, theirs = resolved[0::2], resolved[1::2]
    named = (sources.serial, sources.unread())
    with helper.asked(_with_known_catalogues, theirs, *named) as result:
        here = _estimated(mine, sources)
        there = result()
    if there is None:
        there = _estimated(theirs, sources)
    both = [one for pair in zip(here, there, strict=False) for one in pair]
    return [*both, *here[len(there) :]]


def _estimated(resolved: Sequence[Resolved], sources: Sources) -> list[JobEstimate]:
    return [estimate_resolved(one, sources, replays=True) for one in resolved]


_catalogues: dict[str, Sources] = {}


def _with_known_catalogues(
    resolved: Sequence[Resolved], serial: str, sources: Sources
) -> list[JobEstimate]:
    """In the process of a helper: catalogues that an earlier request read are not read again."""
    return _estimated(resolved, known_sources(serial, sources))


def known_sources(serial: str, sources: Sources) -> Sources:
    """In the process of a helper: the sources of this name as an earlier request left them."""
    if serial not in _catalogues:
        while len(_catalogues) >= _KEPT:
            del _catalogues[next(iter(_catalogues))]
        _catalogues[serial] = sources
    return _catalogues[serial]
