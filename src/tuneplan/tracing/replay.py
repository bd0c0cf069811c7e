"""A recorded job played through the model of PyTorch's allocator: what it reserves, what fits.

The stream of births and deaths does not depend on the length of the sequences, only their sizes
do. So a job that was recorded at two lengths can be played at any other: a longest batch after
shorter ones finds a cache that suits it badly.

Of equal free blocks the allocator takes the one at the lowest address. New segments lie below the
earlier ones here: so, and not the other way round, eight runs with eager attention reserved on a
Tesla T4 what they did, to the megabyte (docs/internals/trace_accuracy.md). No document says where a
driver puts them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Final

from tuneplan.estimation import blocks as cached
from tuneplan.estimation.allocator import CachingAllocator, OutOfMemory
from tuneplan.frozen import dataclass
from tuneplan.tracing.recording import Recording

HISTORY = (0.6, 0.7, 0.8, 0.9)
"""Lengths of the batches before the longest, as shares of its own: each a little too long for
what is cached."""

SHORT = 0.3
"""The last batch of a bucket that runs from long to short, as a share of the longest of all: no
longer than the mean, which is about a third of the longest where samples are as they come."""

Watch = Callable[[int, CachingAllocator], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the allocator did.

    Attributes:
        peak_at: Index of the event after which most was allocated.
        fragmentation_bytes: At that moment: free, but inside segments that are in use.
        out_of_memory: The request that found no room, and the event that made it.
    """

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    fragmentation_bytes: int
    peak_at: int
    out_of_memory: OutOfMemory | None = None
    failed_at: int | None = None

    @property
    def fits(self) -> bool:
        """Whether every request was served."""
        return self.out_of_memory is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A recording and how to play it.

    Attributes:
        shorter: The same job at another length, whose stream of events is the same; else None.
        warm_up_bytes: One block that the loader asks for and frees before anything else.
        empties_cache: Whether cached memory is given back after k-bit preparation.
        resident_bytes: Blocks that come after loading and stay (buckets of DDP).
        longest_first: Batches run from long to short: no batch as long as the recorded one comes
            upon a cache that another one left.
        empties_cache_steps: After every so many steps the loop empties the cache, while the
            gradients are still there; 0 = never.
        reads_ahead: Threads put weights on the card before the loader can quantise them.
    """

    recording: Recording
    shorter: Recording | None = None
    warm_up_bytes: int = 0
    empties_cache: bool = True
    resident_bytes: tuple[int, ...] = ()
    longest_first: bool = False
    empties_cache_steps: int = 0
    reads_ahead: bool = False
    _sizes: dict[float, list[int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def varies(self) -> bool:
        """Whether it can be played at other lengths."""
        return self.shorter is not None

    def sizes_at(self, share: float) -> list[int]:
        """Bytes of every block where sequences are ``share`` as long as recorded."""
        known = self._sizes.get(share)
        if known is None:
            known = self._sizes[share] = list(_sizes(self.recording, self.shorter, share))
        return known


def aligned(recording: Recording, other: Recording) -> bool:
    """Whether both are the same stream of events at different lengths."""
    end = recording.end
    return (
        end == other.end
        and recording.events[:end] == other.events[:end]
        and recording.marks == other.marks
    )


def length_share(recording: Recording, other: Recording) -> float:
    """Length of ``other`` as a share of that of ``recording``: from the first batch's ids."""
    first = next((at for at, phase, _ in recording.marks if phase == "forward"), 0)
    block = recording.events[first]
    return other.blocks[block].size / recording.blocks[block].size


def _sizes(recording: Recording, other: Recording | None, share: float) -> Iterator[int]:
    """Each dimension lies on the line through the two lengths, so areas grow with the square."""
    if other is None or share == 1.0:
        yield from (block.size for block in recording.blocks)
        return
    short = length_share(recording, other)
    position = (share - short) / (1 - short)
    for block, same in zip(recording.blocks, other.blocks, strict=False):
        low, high = same.size, block.size
        if low == high:
            yield high
            continue
        elements, fewer = math.prod(block.shape), math.prod(same.shape)
        if len(block.shape) == len(same.shape) and elements * low == fewer * high and elements:
            dims = (a + position * (b - a) for a, b in zip(same.shape, block.shape, strict=True))
            yield round(math.prod(dims) * high / elements)
        else:
            yield max(round(low + position * (high - low)), 1)


TOP_ADDRESS: Final = 1 << 46
"""Where segments begin to grow downwards: no job needs so much."""


class DownwardAllocator(CachingAllocator):
    """Its new segments lie below all earlier ones."""

    __slots__ = ("_lowest",)

    def __init__(self, *, limit_bytes: int | None = None) -> None:
        super().__init__(limit_bytes=limit_bytes)
        self._lowest = TOP_ADDRESS

    def _taken(self, pool: cached.Pool, size: int, needed: int) -> cached.Block | None:
        del size
        if not self._reserve(needed):
            return None
        self._lowest -= needed
        return cached.Block(self._lowest, needed, pool)


def fresh(*, limit_bytes: int | None = None, expandable: bool = False) -> CachingAllocator:
    """An allocator that nothing was asked of."""
    if expandable:
        return CachingAllocator(limit_bytes=limit_bytes, expandable=True)
    return DownwardAllocator(limit_bytes=limit_bytes)


def replay(
    played: Played,
    *,
    history: Sequence[float] = (),
    after: Sequence[float] = (),
    ahead: int = 0,
    limit_bytes: int | None = None,
    expandable: bool = False,
    watch: Watch | None = None,
    allocator: CachingAllocator | None = None,
) -> Replayed:
    """Play loading and two steps.

    Args:
        played: What to play.
        history: Lengths of the steps before the longest one, as shares of its own: the first takes
            the place of the first recorded step, the others repeat the second one.
        after: Lengths of the steps that follow it.
        ahead: Weights that are on the card before the first of them is quantised.
        limit_bytes: What the card can give to the allocator; None for a card without end.
        expandable: ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``.
        watch: Told the event and the allocator after each event.
        allocator: One to play on; a fresh one where None.
    """
    if allocator is None:
        allocator = fresh(limit_bytes=limit_bytes, expandable=expandable)
    player = _Player(played, allocator, watch)
    every = played.empties_cache_steps
    before = tuple(history) or usual_history(played)
    try:
        player.load(ahead)
        for number, share in enumerate((*before, 1.0, *after)):
            if number and played.longest_first and not every:
                allocator.empty_cache()
            # A bucket begins with its longest batch, where the cache has just been emptied.
            empties = every == 1 or (every > 1 and number == len(before) - 1)
            player.step(0 if number == 0 else 1, played.sizes_at(share), empties=empties)
    except _FullError as full:
        return _replayed(player, allocator, failed_at=full.event)
    return _replayed(player, allocator)


def usual_history(played: Played) -> tuple[float, ...]:
    """Lengths of the steps before the longest, where nothing is known of them."""
    if played.empties_cache_steps and played.varies:
        return (HISTORY[2], SHORT)
    return (1.0,)


def _replayed(
    player: _Player, allocator: CachingAllocator, failed_at: int | None = None
) -> Replayed:
    return Replayed(
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        fragmentation_bytes=allocator.fragmentation_bytes,
        peak_at=player.peak_at,
        out_of_memory=allocator.out_of_memory if failed_at is not None else None,
        failed_at=failed_at,
    )


class _FullError(Exception):
    """The allocator had no room for what this event makes."""

    def __init__(self, event: int) -> None:
        super().__init__(event)
        self.event = event


class _Player:
    """Plays the parts of a recording on one allocator."""

    def __init__(self, played: Played, allocator: CachingAllocator, watch: Watch | None) -> None:
        self.played, self.allocator, self.watch = played, allocator, watch
        self.recording = played.recording
        self.held: dict[int, cached.Block] = {}
        self.peak_at = 0
        self.starts = _starts(self.recording)
        self.carried, self.left = _carried(self.recording, self.starts)
        self.emptied = set(self.recording.emptied) if played.empties_cache else set()

    def load(self, ahead: int) -> None:
        """Everything before the first step."""
        if self.played.warm_up_bytes:
            self.allocator.free(self._take(self.played.warm_up_bytes, 0, 0))
        sizes = self.played.sizes_at(1.0)
        staged = _staged(self.recording, self.starts[0]) if ahead > 1 else []
        begin, taken = 0, 0
        for number, block in enumerate(staged):
            born = self.recording.blocks[block].born
            self._play(begin, born, sizes)
            for early in staged[taken : number + ahead]:
                self.held[early] = self._take(sizes[early], 0, born)
            begin, taken = born, max(taken, number + ahead)
        self._play(begin, self.starts[0], sizes)
        for size in self.played.resident_bytes:
            self._take(size, 0, self.starts[0])

    def step(self, number: int, sizes: list[int], *, empties: bool = False) -> None:
        """The first or the second recorded step; the second may be played again and again.

        Args:
            number: 0 or 1.
            sizes: Of every block, at this step's length.
            empties: Empty the cache before the gradients die.
        """
        begin, end = self.starts[number], self.starts[number + 1]
        if number == 1:
            for block in self.left:
                if block in self.held:
                    self.allocator.free(self.held.pop(block))
        middle = _end_of_step(self.recording, begin, end) if empties else end
        self._play(begin, middle, sizes)
        if empties:
            self.allocator.empty_cache()
        self._play(middle, end, sizes)
        if number == 1:
            for before, after in self.carried:
                if after in self.held:
                    self.held[before] = self.held.pop(after)

    def _take(self, size: int, stream: int, event: int) -> cached.Block:
        block = self.allocator.malloc(size, stream)
        if block is None:
            raise _FullError(event)
        return block

    def _play(self, start: int, stop: int, sizes: list[int]) -> None:
        allocator, held, blocks = self.allocator, self.held, self.recording.blocks
        events, watch = self.recording.events, self.watch
        most = allocator.peak_allocated_bytes
        for index in range(start, stop):
            if index in self.emptied:
                allocator.empty_cache()
            event = events[index]
            if event >= 0:
                if event not in held:
                    held[event] = self._take(sizes[event], blocks[event].stream, index)
                    if allocator.peak_allocated_bytes > most:
                        most, self.peak_at = allocator.peak_allocated_bytes, index
            elif ~event in held:
                allocator.free(held.pop(~event))
            if watch is not None:
                watch(index, allocator)


def _starts(recording: Recording) -> tuple[int, int, int]:
    """Where the first step, the second step and the end begin."""
    first = [
        next((at for at, phase, of in recording.marks if of >= step and phase == "forward"), None)
        for step in (0, 1)
    ]
    end = recording.end
    begin = end if first[0] is None else first[0]
    return begin, end if first[1] is None else first[1], end


def _staged(recording: Recording, begin: int) -> list[int]:
    """Matrices that pass through the card while it is loaded, to be quantised there."""
    return [
        block
        for block in (event for event in recording.events[:begin] if event >= 0)
        if recording.blocks[block].operation == "empty"
        and len(recording.blocks[block].shape) == 2
        and 0 <= recording.blocks[block].died < begin
    ]


def _end_of_step(recording: Recording, begin: int, end: int) -> int:
    """Where the gradients of a step begin to die for good: after everything that it made."""
    last = max((at for at in range(begin, end) if recording.events[at] >= 0), default=begin)
    return next(
        (
            at
            for at in range(last, end)
            if recording.events[at] < 0
            and recording.blocks[~recording.events[at]].kind == "gradient"
        ),
        end,
    )


def _carried(
    recording: Recording, starts: tuple[int, int, int]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """What the second step leaves alive, if it is played again.

    Returns:
        Blocks of the step before that the second step lets die, each with its own successor; and
        what the second step makes, does not let die, and has no such predecessor: the next step
        begins by dropping it.
    """
    _, second, end = starts
    blocks = recording.blocks
    before: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for event in recording.events[second:end]:
        if event < 0 and starts[0] <= blocks[~event].born < second:
            before[_alike(recording, ~event)].append(~event)
    pairs, left = [], []
    for event in recording.events[second:end]:
        if event < 0 or 0 <= blocks[event].died < end:
            continue
        old = before[_alike(recording, event)]
        if old:
            pairs.append((old.pop(0), event))
        else:
            left.append(event)
    return tuple(pairs), tuple(left)


def _alike(recording: Recording, block: int) -> tuple[object, ...]:
    """What a block has in common with its like of another step."""
    one = recording.blocks[block]
    return one.operation, one.module, one.dtype, one.shape, one.kind
