"""The caching allocator's default rules on a card without end, as fast as Python plays them.

``allocator`` models every rule; a replay of a whole job asks for tens of thousands of blocks and
wants three figures. Here a block is one number, its size above its address, both in units of 512
bytes: sorted numbers are blocks by size and then address. A stretch of a script plays in one loop,
and groups of requests that leave no trace are left out (``stretches``).

What the figures are is ``allocator``'s word; the tests play the same jobs on both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import islice
from typing import Final

from tuneplan.estimation.blocks import BLOCK_BYTES, segment_bytes
from tuneplan.estimation.stretches import ADDRESS_WIDTH, MOST_REST, PoolSteps, Step, Stretch

_ADDRESS: Final = (1 << ADDRESS_WIDTH) - 1
_SMALL: Final = 1 << (ADDRESS_WIDTH - 1)  # a bit of every address of the small pool
QUIET_TIMES: Final = 4  # plays of a stretch after which it is taken to go on as it did
_ONE_DEATH: Final = ((0, 0),)


class _Arena:
    """The free blocks of one pool.

    Attributes:
        keys: Free blocks, sorted.
        begins, ends: The same by their first address and by the one behind their last.
        segments: Blocks of each segment by its first address; none touches another.
        num_taken: How often something was taken that stays; ``quiet`` says of stretches that took
            no segment when (by that count) and how often in a row.
        least_rest: From which rest on (above the address) a block is split.
        address: Of the next segment.
    """

    __slots__ = (
        "address", "begins", "ends", "keys", "least_rest", "num_taken", "quiet", "segments",
    )  # fmt: skip

    def __init__(self, *, small: bool) -> None:
        self.keys: list[int] = []
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.segments: dict[int, int] = {}
        self.least_rest = (1 if small else MOST_REST + 1) << ADDRESS_WIDTH
        self.address = _SMALL if small else 1
        self.num_taken = 0
        self.quiet: dict[int, tuple[int, int]] = {}

    def copy(self) -> _Arena:
        """Another in the same state."""
        other = _Arena(small=bool(self.address & _SMALL))
        other.keys, other.address = list(self.keys), self.address
        other.begins, other.ends = dict(self.begins), dict(self.ends)
        other.segments = dict(self.segments)
        return other

    @property
    def free_blocks(self) -> int:
        """How much is free."""
        return (sum(self.keys) - sum(self.begins)) >> ADDRESS_WIDTH

    @property
    def whole_blocks(self) -> int:
        """How much of it is in segments of which nothing is in use."""
        segments = self.segments
        return sum(
            key >> ADDRESS_WIDTH
            for key in self.keys
            if segments.get(key & _ADDRESS) == key >> ADDRESS_WIDTH
        )


class Arenas:
    """An allocator for ``replay``; a handle is the number of a block in use.

    Attributes:
        tracks: Whether the peak of what is in use is followed; without, only the reserved one is.
    """

    __slots__ = (
        "_fragmentation", "_in_use", "_large", "_peak", "_peak_reserved", "_reserved", "_rose",
        "_small", "tracks",
    )  # fmt: skip

    def __init__(self, *, tracks: bool) -> None:
        self._large, self._small = _Arena(small=False), _Arena(small=True)
        self._reserved = self._peak_reserved = 0
        self.tracks = tracks
        self._peak = self._fragmentation = 0
        self._in_use: int | None = 0  # None where it is to be counted
        self._rose = False  # to a new peak, of which the fragmentation is not known yet

    @property
    def peak_reserved_bytes(self) -> int:
        """Most that the card gave."""
        return self._peak_reserved * BLOCK_BYTES

    @property
    def peak_allocated_bytes(self) -> int:
        """Most that was in use."""
        return self._peak * BLOCK_BYTES

    @property
    def fragmentation_bytes(self) -> int:
        """At that peak: free, but in segments that are in use."""
        self._settle()
        return self._fragmentation * BLOCK_BYTES

    def untracked(self) -> Arenas:
        """Another in the same state, which follows no peak of what is in use."""
        other = Arenas(tracks=False)
        other._large, other._small = self._large.copy(), self._small.copy()
        other._reserved, other._peak_reserved = self._reserved, self._peak_reserved
        return other

    def take(self, size_bytes: int) -> int:
        """A block of so many bytes."""
        return self.take_all((size_bytes,))[0]

    def take_all(self, sizes_bytes: Sequence[int]) -> list[int]:
        """A block for each of these sizes."""
        slots = [0] * len(sizes_bytes)
        pools: tuple[list[Step], list[Step]] = ([], [])
        for slot, size_bytes in enumerate(sizes_bytes):
            size = -(-size_bytes // BLOCK_BYTES) or 1
            pools[size <= MOST_REST].append((slot, size << ADDRESS_WIDTH))
        if self.tracks:
            self._counted()
        for arena, steps in zip((self._large, self._small), pools, strict=True):
            if steps:
                arena.num_taken += 1
                self._play(arena, steps, slots)
        if self.tracks:
            self._rise(sum(block >> ADDRESS_WIDTH for block in slots))
        return slots

    def give(self, block: int) -> None:
        """Take a block back."""
        if self.tracks:
            self._fall(block >> ADDRESS_WIDTH)
        self._play(self._small if block & _SMALL else self._large, _ONE_DEATH, [block])

    def give_all(self, blocks: list[int]) -> None:
        """Take blocks back."""
        if self.tracks:
            self._fall(sum(block >> ADDRESS_WIDTH for block in blocks))
        pools: tuple[list[Step], list[Step]] = ([], [])
        for slot, block in enumerate(blocks):
            pools[bool(block & _SMALL)].append((slot, 0))
        self._play(self._large, pools[False], blocks)
        self._play(self._small, pools[True], blocks)

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the card."""
        self._settle()
        for arena in (self._large, self._small):
            for key in list(arena.keys):
                start, size = key & _ADDRESS, key >> ADDRESS_WIDTH
                if arena.segments.get(start) == size:
                    arena.keys.remove(key)
                    del arena.begins[start], arena.ends[start + size], arena.segments[start]
                    self._reserved -= size

    def play(self, stretch: Stretch, slots: list[int]) -> None:
        """Play a stretch; blocks in use stand in ``slots``."""
        if self.tracks and self._counted() + stretch.rise > self._peak:
            self._follow(stretch.steps, slots)
            return
        self._settle()
        self._in_use = None
        self._pass(self._large, stretch.large, slots)
        self._pass(self._small, stretch.small, slots)

    def _pass(self, arena: _Arena, steps: PoolSteps, slots: list[int]) -> None:
        """Play a stretch in one pool.

        What gives all back and took no segment ``QUIET_TIMES`` in a row is not played again for as
        long as nothing is taken in between that stays: what it was served from is still free then,
        and more. That is no proof, since more free blocks can be split in worse ways: after one
        quiet play 2 of 180 random jobs came out up to 2 % apart in what they reserve, after two
        1 of 280, after four none of 80.
        """
        if not steps.gives_all_back:
            arena.num_taken += 1
            self._play(arena, steps.steps, slots)
            return
        since, times = arena.quiet.get(id(steps), (-1, 0))
        if since == arena.num_taken and times >= QUIET_TIMES:
            return
        reserved = self._reserved
        self._play(arena, steps.steps, slots)
        times = times + 1 if since == arena.num_taken else 1
        arena.quiet[id(steps)] = (arena.num_taken, times if self._reserved == reserved else 0)

    def _pool_of(self, size: int) -> _Arena:
        return self._small if size <= MOST_REST else self._large

    def _counted(self) -> int:
        if self._in_use is None:
            self._in_use = self._reserved - self._large.free_blocks - self._small.free_blocks
        return self._in_use

    def _rise(self, size: int) -> None:
        """Count blocks that were taken; what was in use before must be known already."""
        self._in_use = (self._in_use or 0) + size
        if self._in_use > self._peak:
            self._peak, self._rose = self._in_use, True

    def _fall(self, size: int) -> None:
        self._settle()
        self._in_use = self._counted() - size

    def _settle(self) -> None:
        """Count what is free at a new peak, while it lasts."""
        if self._rose:
            whole = self._large.whole_blocks + self._small.whole_blocks
            self._fragmentation = self._reserved - self._peak - whole
            self._rose = False

    def _follow(self, steps: Sequence[Step], slots: list[int]) -> None:
        """Play steps one by one and watch the peak."""
        for step in steps:
            slot, size = step
            if size > 0:
                arena = self._pool_of(size >> ADDRESS_WIDTH)
                arena.num_taken += 1
                self._play(arena, (step,), slots)
                self._rise(slots[slot] >> ADDRESS_WIDTH)
            else:
                block = slots[slot]
                self._fall(block >> ADDRESS_WIDTH)
                self._play(self._small if block & _SMALL else self._large, (step,), slots)

    def _segment(self, arena: _Arena, size: int) -> int:
        """A new segment for a request, as a free block that is not among the keys."""
        blocks = segment_bytes(size * BLOCK_BYTES) // BLOCK_BYTES
        start = arena.address
        key = (blocks << ADDRESS_WIDTH) + start
        arena.address = start + blocks + 1
        arena.segments[start] = blocks
        arena.begins[start] = arena.ends[start + blocks] = key
        self._reserved += blocks
        self._peak_reserved = max(self._peak_reserved, self._reserved)
        return key

    def _play(
        self,
        arena: _Arena,
        steps: Sequence[Step],
        slots: list[int],
    ) -> None:
        """Births from the smallest free block that serves; deaths join their free neighbours."""
        keys, begins, ends, least = arena.keys, arena.begins, arena.ends, arena.least_rest
        small = arena is self._small
        coming = iter(steps)
        for slot, size in coming:
            if size > 0:
                if slot < 0:
                    if keys and keys[-1] >= size:
                        next(islice(coming, -slot, -slot), None)
                    continue
                at = bisect_left(keys, size)
                if at < len(keys):
                    key = keys.pop(at)
                else:
                    key = self._segment(arena, size >> ADDRESS_WIDTH)
                start = key & _ADDRESS
                del begins[start]
                rest = key - size
                if rest >= least:
                    rest += size >> ADDRESS_WIDTH
                    insort(keys, rest)
                    begins[rest & _ADDRESS] = ends[start + (key >> ADDRESS_WIDTH)] = rest
                    slots[slot] = size + start
                else:
                    del ends[start + (key >> ADDRESS_WIDTH)]
                    slots[slot] = key
                continue
            key = slots[slot]
            if size < 0 and bool(key & _SMALL) is not small:
                continue
            start = key & _ADDRESS
            stop = start + (key >> ADDRESS_WIDTH)
            other = ends.pop(start, 0)
            if other:
                del keys[bisect_left(keys, other)]
                key += other - start
                start = other & _ADDRESS
                del begins[start]
            other = begins.pop(stop, 0)
            if other:
                del keys[bisect_left(keys, other)]
                key += other - stop
                stop += other >> ADDRESS_WIDTH
            insort(keys, key)
            begins[start] = ends[stop] = key
