"""What reserved memory depends on and no job states: earlier lengths, weights read ahead."""

from __future__ import annotations

from tuneplan.frozen import dataclass
from tuneplan.tracing.replay import HISTORY, SHORT, Played, Replayed, replay

AHEAD = (4, 16, 64, 1_000_000)
"""Weights that threads have put on the card before the first of them is quantised: from as many as
there are threads to all of them, since nothing bounds them (transformers #44576 saw 13.5 GB
reserved for a packed model of 5.5 GB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What the job does not state and reserved memory depends on; as in ``replay``."""

    history: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    ahead: int = 0


def plays(played: Played) -> tuple[Play, ...]:
    """Everything that may happen beside the usual: orders of lengths, weights read ahead."""
    found: list[Play] = []
    if played.varies and played.empties_cache_steps:
        after = () if played.empties_cache_steps == 1 else HISTORY[::-1]
        found += [Play(history=(first, SHORT), after=after) for first in (*HISTORY, 1.0)]
    elif played.varies:
        found.append(Play(history=HISTORY))
    if played.reads_ahead:
        found += [Play(ahead=ahead) for ahead in AHEAD]
    return tuple(found)


def play(
    played: Played, one: Play, *, limit_bytes: int | None = None, expandable: bool = False
) -> Replayed:
    """``replay`` of one of them."""
    return replay(
        played,
        history=one.history,
        after=one.after,
        ahead=one.ahead,
        limit_bytes=limit_bytes,
        expandable=expandable,
    )
