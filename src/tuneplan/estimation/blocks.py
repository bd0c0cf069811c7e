"""Blocks and pools of the caching allocator (``allocator``): sizes, order, neighbours."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

BLOCK_BYTES: Final = 512
SMALL_REQUEST_BYTES: Final = 2**20  # largest request of the small pool
SMALL_SEGMENT_BYTES: Final = 2 * 2**20
LARGE_SEGMENT_BYTES: Final = 20 * 2**20
LARGE_REQUEST_BYTES: Final = 10 * 2**20  # from here on a segment of its own
SEGMENT_ROUNDING_BYTES: Final = 2 * 2**20
ADDRESS_BITS: Final = 56  # keys of free blocks: size, then address
ADDRESS_SPACE_BYTES: Final = 2**21 * LARGE_SEGMENT_BYTES  # of one expandable segment: any card


def rounded(size_bytes: float) -> int:
    """Bytes that a request takes: the next multiple of 512, at least one."""
    return max(BLOCK_BYTES, -(-int(size_bytes) // BLOCK_BYTES) * BLOCK_BYTES)


def segment_bytes(block_bytes: int) -> int:
    """Bytes taken from the card for a (rounded) request that no cached block can serve."""
    if block_bytes <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < LARGE_REQUEST_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-block_bytes // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES


class Block:
    """A stretch of memory: in use, free, or (expandable segments) address space without memory.

    The handle of an allocation: give it back to ``CachingAllocator.free``.
    """

    __slots__ = ("address", "following", "is_free", "is_mapped", "pool", "previous", "size")

    def __init__(self, address: int, size: int, pool: Pool) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.previous: Block | None = None
        self.following: Block | None = None
        self.is_free = False
        self.is_mapped = True

    @property
    def is_split(self) -> bool:
        """Whether it shares its segment with other blocks."""
        return self.previous is not None or self.following is not None


class Pool:
    """Free blocks of one stream and size class, by size and then address."""

    __slots__ = ("free", "granule", "keys", "largest_rest", "small", "unmapped")

    def __init__(self, *, small: bool, expandable: bool) -> None:
        self.small = small
        self.keys: list[int] = []
        self.free: dict[int, Block] = {}
        # A rest of at most so many bytes stays with the block.
        self.largest_rest = BLOCK_BYTES - 1 if small or expandable else SMALL_REQUEST_BYTES
        self.granule = SMALL_SEGMENT_BYTES if small else LARGE_SEGMENT_BYTES
        self.unmapped: list[Block] = []  # by address

    def insert(self, block: Block) -> None:
        """Add a free block."""
        key = (block.size << ADDRESS_BITS) | block.address
        insort(self.keys, key)
        self.free[key] = block
        block.is_free = True

    def remove(self, block: Block) -> None:
        """Take a free block out."""
        key = (block.size << ADDRESS_BITS) | block.address
        del self.keys[bisect_left(self.keys, key)]
        del self.free[key]
        block.is_free = False


def address_of(block: Block) -> int:
    """Where it starts."""
    return block.address


def room_of(block: Block) -> int:
    """Bytes of a block and of the unmapped space right behind it."""
    following = block.following
    return block.size + (following.size if following and not following.is_mapped else 0)


def start_of(unmapped: Block) -> Block:
    """The free block right before an unmapped one, or that itself."""
    previous = unmapped.previous
    return previous if previous is not None and previous.is_free else unmapped


def reaches(block: Block, size: int) -> bool:
    """Whether free and unmapped space from ``block`` on holds ``size`` bytes without a break."""
    found = 0
    at: Block | None = block
    while found < size and at is not None and (at.is_free or not at.is_mapped):
        found += at.size
        at = at.following
    return found >= size


def splice(block: Block, previous: Block | None, following: Block | None) -> None:
    """Put a block between two neighbours."""
    block.previous, block.following = previous, following
    if previous is not None:
        previous.following = block
    if following is not None:
        following.previous = block


def join(block: Block, other: Block) -> None:
    """Let ``block`` swallow its neighbour."""
    if block.previous is other:
        block.address = other.address
        splice(block, other.previous, block.following)
    else:
        splice(block, block.previous, other.following)
    block.size += other.size
