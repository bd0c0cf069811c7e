"""Stretches of a script made ready for ``arenas``: pools apart, groups that leave no trace marked.

Two pools do not see each other, so each has its own steps. In one pool, a group of requests that
gives back all that it took leaves free exactly what was free before, whatever it was given: free
blocks are what the used ones leave over. If the largest free block could serve the whole group one
after the other, the group also takes no segment: what is left of that block's end is free and large
enough at each of its requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from tuneplan.estimation.blocks import BLOCK_BYTES, SMALL_REQUEST_BYTES
from tuneplan.frozen import dataclass

ADDRESS_WIDTH: Final = 40  # bits of an address in blocks; a size stands above them
MOST_REST: Final = SMALL_REQUEST_BYTES // BLOCK_BYTES  # of the large pool: stays with its block
OTHERS: Final = -1

Step = tuple[int, int]
"""``(slot, blocks << ADDRESS_WIDTH)`` for a birth; ``(slot, 0)`` for the death of what was born in
the same stretch, ``(slot, OTHERS)`` for that of something else; ``(-n, blocks << ADDRESS_WIDTH)``
before a group of n steps that may be left out where so large a block is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a script as the arenas play it.

    Attributes:
        steps: Births and deaths in order.
        large, small: The same for each pool, with its groups.
        rise: Most blocks by which it can raise what is allocated.
    """

    steps: tuple[Step, ...]
    large: PoolSteps
    small: PoolSteps
    rise: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSteps:
    """The steps of a stretch in one pool, with groups.

    Attributes:
        gives_all_back: What it takes; nothing else dies in it.
    """

    steps: tuple[Step, ...]
    gives_all_back: bool


def stretch_of(steps: Sequence[tuple[int, int]]) -> Stretch:
    """Make ``(slot, bytes)`` births and ``(slot, 0)`` deaths ready; bytes are whole blocks."""
    blocks: dict[int, int] = {}
    alive = large_alive = rise = slack = 0
    both: list[Step] = []
    pools: tuple[list[Step], list[Step]] = ([], [])
    for slot, size_bytes in steps:
        if size_bytes:
            size = blocks[slot] = size_bytes // BLOCK_BYTES
            small = size_bytes <= SMALL_REQUEST_BYTES
            step = (slot, size << ADDRESS_WIDTH)
            alive += size
            rise = max(rise, alive)
            if not small:
                large_alive += 1
                slack = max(slack, large_alive)
            pools[small].append(step)
        elif slot in blocks:
            size = blocks.pop(slot)
            small = size <= MOST_REST
            step = (slot, 0)
            alive -= size
            large_alive -= not small
            pools[small].append(step)
        else:
            step = (slot, OTHERS)
            pools[False].append(step)
            pools[True].append(step)
        both.append(step)
    return Stretch(
        steps=tuple(both),
        large=_with_groups(pools[False]),
        small=_with_groups(pools[True]),
        rise=rise + slack * MOST_REST,
    )


def _with_groups(steps: list[Step]) -> PoolSteps:
    """Steps of one pool with the groups among them, outer before inner ones."""
    ordered, ends = _groups(tuple((slot, min(size, 1)) for slot, size in steps))
    sizes = {slot: size for slot, size in steps if size > 0}  # a slot is born once
    made: list[Step] = []
    sums = [0]
    for slot, kind in ordered:
        sums.append(sums[-1] + (sizes[slot] if kind > 0 else 0))
    for place, (slot, kind) in enumerate(ordered):
        group = ends.get(place)
        if group is not None:
            end, num_steps = group
            needed = sums[end] - sums[place] + ((MOST_REST + 1) << ADDRESS_WIDTH)
            made.append((-num_steps, needed))
        made.append((slot, sizes[slot] if kind > 0 else kind))
    births = {slot for slot, size in steps if size > 0}
    return PoolSteps(
        steps=tuple(made),
        gives_all_back=births == {slot for slot, size in steps if not size}
        and all(size >= 0 for _, size in steps),
    )


@lru_cache(maxsize=512)
def _groups(
    kinds: tuple[tuple[int, int], ...],
) -> tuple[tuple[tuple[int, int], ...], Mapping[int, tuple[int, int]]]:
    """Steps with deaths in the order that closes groups early, and the groups.

    Args:
        kinds: ``(slot, 1)`` for a birth, ``(slot, 0)`` and ``(slot, OTHERS)`` for deaths.

    Returns:
        The order; and by the place of each group's first step, the place behind its last one and
        how many steps (with those that stand before the groups inside) it passes over.
    """
    ordered = _youngest_first(kinds)
    open_: list[tuple[int, set[int]]] = []  # of groups: first place, what is alive
    closed: list[tuple[int, int]] = []
    for place, (slot, kind) in enumerate(ordered):
        if kind > 0:
            open_.append((place, {slot}))
            continue
        if kind == OTHERS:  # no group holds it
            open_ = [(first, alive | {OTHERS}) for first, alive in open_]
            continue
        first, alive = open_.pop()
        while slot not in alive:
            below, more = open_.pop()
            first, alive = below, alive | more
        alive.discard(slot)
        if alive:
            open_.append((first, alive))
        else:
            closed.append((first, place + 1))
    starts = dict(closed)
    inside = [0] * (len(ordered) + 1)
    for place in range(len(ordered)):
        inside[place + 1] = inside[place] + (place in starts)
    return ordered, {
        first: (end, end - first + inside[end] - inside[first] - 1) for first, end in starts.items()
    }


def _youngest_first(kinds: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Deaths that follow each other may change places: what was born last goes first."""
    ordered: list[tuple[int, int]] = []
    run: list[tuple[int, int]] = []
    births: dict[int, int] = {}
    for slot, kind in kinds:
        if kind > 0:
            ordered += sorted(run, key=lambda one: -births.get(one[0], -1))
            run = []
            births[slot] = len(births)
            ordered.append((slot, kind))
        else:
            run.append((slot, kind))
    return (*ordered, *sorted(run, key=lambda one: -births.get(one[0], -1)))
