"""When a trace holds how much: its phases, and the moments that are worth showing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuneplan.estimation.memory import Phase
from tuneplan.frozen import dataclass
from tuneplan.tracing.recording import Recording

_MOST_POINTS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point of the timeline; ``at`` counts births and deaths of blocks."""

    at: int
    phase: str
    allocated_bytes: int
    reserved_bytes: int


def phases_of(recording: Recording, moments: Sequence[tuple[int, int, int]]) -> dict[str, int]:
    """Most allocated in each phase, in the order in which they begin."""
    found: dict[str, int] = {}
    known = {phase.value for phase in Phase}
    for (_, allocated, _), phase in zip(moments, _phase_at(recording, moments), strict=True):
        if phase in known:
            found[phase] = max(found.get(phase, 0), allocated)
    return found


def _phase_at(recording: Recording, moments: Sequence[tuple[int, int, int]]) -> list[str]:
    marks = recording.marks
    names, mark, phase = [], 0, "load"
    for at, _, _ in moments:
        while mark < len(marks) and marks[mark][0] <= at:
            phase = marks[mark][1]
            mark += 1
        names.append(phase)
    return names


def timeline_of(
    recording: Recording, moments: Sequence[tuple[int, int, int]]
) -> tuple[Moment, ...]:
    """The lowest and the highest moment of every stretch, and where each phase begins."""
    phases = _phase_at(recording, moments)
    width = max(-(-2 * len(moments) // _MOST_POINTS), 1)
    kept: set[int] = {0, len(moments) - 1} if moments else set()
    for start in range(0, len(moments), width):
        stretch = range(start, min(start + width, len(moments)))
        kept.add(min(stretch, key=lambda number: moments[number][1]))
        kept.add(max(stretch, key=lambda number: moments[number][1]))
    kept.update(n for n in range(1, len(moments)) if phases[n] != phases[n - 1])
    return tuple(
        Moment(
            at=moments[number][0], phase=phases[number],
            allocated_bytes=moments[number][1], reserved_bytes=moments[number][2],
        )
        for number in sorted(kept)
    )  # fmt: skip
