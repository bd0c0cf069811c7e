"""PyTorch's CUDA caching allocator as a pure model: what it reserves for a stream of requests.

Requests are rounded to 512 bytes and served from the smallest cached block that is large enough
(ties: the lowest address). Where none is, a segment is taken from the card: 2 MiB for requests up
to 1 MiB (the small pool), 20 MiB for those under 10 MiB, else the request rounded up to 2 MiB. A
block is split where the rest is worth keeping: 512 bytes in the small pool, more than 1 MiB in the
large one. Freed blocks join their free neighbours and stay cached; only segments without any used
part can go back to the card, which happens when it is full or on ``empty_cache``.

Source: PyTorch ``c10/cuda/CUDACachingAllocator.cpp`` (2.1 to 2.13: ``round_size``, ``get_pool``,
``get_allocation_size``, ``get_free_block``, ``should_split``, ``try_merge_blocks``,
``release_cached_blocks``, ``release_available_cached_blocks``; expandable segments:
``find_expandable_block``, ``map_block``, ``unmap_block``).

``garbage_collection_threshold`` is ``collecting``'s. Not modelled: private pools of CUDA
graphs, ``roundup_power2_divisions``, blocks that wait for another stream's event. Addresses are our
own: a new segment lies above all earlier ones.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from tuneplan.estimation.blocks import (
    ADDRESS_BITS,
    ADDRESS_SPACE_BYTES,
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    SMALL_REQUEST_BYTES,
    Block,
    Pool,
    address_of,
    join,
    reaches,
    room_of,
    segment_bytes,
    splice,
    start_of,
)
from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """Why a request failed, after everything that could be given back was.

    Attributes:
        requested_bytes: As asked for.
        segment_bytes: What the card would have had to give.
        limit_bytes, reserved_bytes, allocated_bytes: The card's, the allocator's, the program's.
        largest_free_bytes: Largest cached block of the pool that was asked.
    """

    requested_bytes: int
    segment_bytes: int
    limit_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int

    @property
    def card_free_bytes(self) -> int:
        """What the card still had."""
        return self.limit_bytes - self.reserved_bytes

    @property
    def cached_bytes(self) -> int:
        """Free inside segments that are partly in use: fragmentation."""
        return self.reserved_bytes - self.allocated_bytes


class CachingAllocator:
    """The allocator of one device.

    ``malloc`` answers with a handle, or with None where the limit leaves no room; what was missing
    then stands in ``out_of_memory``.

    Attributes:
        allocated_bytes, reserved_bytes: Now; ``peak_*`` at most so far.
        split_free_bytes: Free now inside segments that are partly in use, so that they cannot go
            back to the card ("inactive split"); 0 for expandable segments, whose free pages can.
        fragmentation_bytes: ``split_free_bytes`` when the allocated peak was reached.
        num_retries: How often the cache was emptied because the card was full.
    """

    __slots__ = (
        "_expandable",
        "_limit",
        "_max_split",
        "_next_address",
        "_pools",
        "allocated_bytes",
        "fragmentation_bytes",
        "num_retries",
        "out_of_memory",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "reserved_bytes",
        "split_free_bytes",
    )

    def __init__(
        self,
        *,
        limit_bytes: int | None = None,
        expandable: bool = False,
        max_split_bytes: int | None = None,
    ) -> None:
        """A fresh allocator.

        Args:
            limit_bytes: What the card can give (its memory less context and other users).
            expandable: ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``.
            max_split_bytes: ``max_split_size_mb``, in bytes.
        """
        self._limit = limit_bytes
        self._expandable = expandable
        self._max_split = max_split_bytes
        self._next_address = 0
        self._pools: dict[int, tuple[Pool, Pool]] = {}
        self._pools_of(0)
        self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.split_free_bytes = self.fragmentation_bytes = 0
        self.num_retries = 0
        self.out_of_memory: OutOfMemory | None = None

    def _pools_of(self, stream: int) -> tuple[Pool, Pool]:
        pools = self._pools.get(stream)
        if pools is None:
            pools = (
                Pool(small=False, expandable=self._expandable),
                Pool(small=True, expandable=self._expandable),
            )
            self._pools[stream] = pools
        return pools

    def malloc(self, size: int, stream: int = 0) -> Block | None:
        """Serve a request of ``size`` bytes; None where it does not fit (``out_of_memory``)."""
        size = -(-size // BLOCK_BYTES) * BLOCK_BYTES or BLOCK_BYTES
        pool = (self._pools.get(stream) or self._pools_of(stream))[size <= SMALL_REQUEST_BYTES]
        keys = pool.keys
        at = bisect_left(keys, size << ADDRESS_BITS)
        if at == len(keys) or self._expandable or self._max_split is not None:
            block = self._chosen(pool, at, size) or self._from_card(pool, size)
            if block is None:
                return None
        else:
            block = pool.free.pop(keys.pop(at))
        rest_size = block.size - size
        was_split = block.previous is not None or block.following is not None
        if was_split:
            self.split_free_bytes -= block.size
        if rest_size > pool.largest_rest and (self._max_split is None or size < self._max_split):
            rest = Block(block.address + size, rest_size, pool)
            following = block.following
            rest.previous = block
            rest.following = following
            if following is not None:
                following.previous = rest
            block.following = rest
            block.size = size
            key = (rest_size << ADDRESS_BITS) | rest.address
            insort(keys, key)
            pool.free[key] = rest
            rest.is_free = True
            self.split_free_bytes += rest_size
        block.is_free = False
        allocated = self.allocated_bytes = self.allocated_bytes + block.size
        if allocated > self.peak_allocated_bytes:
            self.peak_allocated_bytes = allocated
            self.fragmentation_bytes = 0 if self._expandable else self.split_free_bytes
        return block

    def free(self, block: Block) -> None:
        """Take a block back; it joins its free neighbours.

        Raises:
            ValueError: The block was freed before.
        """
        if block.is_free:
            raise ValueError("the block is free already")
        self.allocated_bytes -= block.size
        pool = block.pool
        keys, free = pool.keys, pool.free
        previous, following = block.previous, block.following
        if previous is not None and previous.is_free:
            key = (previous.size << ADDRESS_BITS) | previous.address
            del keys[bisect_left(keys, key)], free[key]
            self.split_free_bytes -= previous.size
            block.address = previous.address
            block.size += previous.size
            block.previous = previous = previous.previous
            if previous is not None:
                previous.following = block
        if following is not None and following.is_free:
            key = (following.size << ADDRESS_BITS) | following.address
            del keys[bisect_left(keys, key)], free[key]
            self.split_free_bytes -= following.size
            block.size += following.size
            block.following = following = following.following
            if following is not None:
                following.previous = block
        if previous is not None or following is not None:
            self.split_free_bytes += block.size
        block.is_free = True
        key = (block.size << ADDRESS_BITS) | block.address
        insort(keys, key)
        free[key] = block

    def empty_cache(self) -> None:
        """Give every segment that is wholly free (expandable: every free page) back to the card."""
        for pools in self._pools.values():
            for pool in pools:
                for block in list(pool.free.values()):
                    if self._expandable:
                        self._unmap(pool, block)
                    elif not block.is_split:
                        self._release(pool, block)

    def blocks(self) -> list[Block]:
        """Every free block, by address."""
        free = [block for pools in self._pools.values() for p in pools for block in p.free.values()]
        return sorted(free, key=lambda block: block.address)

    def _chosen(self, pool: Pool, at: int, size: int) -> Block | None:
        """The cached block for a request, under the rules that are not the default's."""
        keys = pool.keys
        if at == len(keys):
            return None
        if self._expandable:
            # The space that the last block could still grow into counts as its own.
            while at + 1 < len(keys) and room_of(pool.free[keys[at + 1]]) < room_of(
                pool.free[keys[at]]
            ):
                at += 1
        block, limit = pool.free[keys[at]], self._max_split
        if limit is not None and (
            (size < limit <= block.size)
            or (size >= limit and block.size >= size + LARGE_SEGMENT_BYTES)
        ):
            return None
        pool.remove(block)
        return block

    def _from_card(self, pool: Pool, size: int) -> Block | None:
        """A new segment; where the card is full, after giving back what can be."""
        needed = segment_bytes(size)
        if self._expandable:
            needed = -(-size // pool.granule) * pool.granule
        block = self._taken(pool, size, needed)
        if block is None and self._max_split is not None and self._release_oversize(pool, size):
            block = self._taken(pool, size, needed)
        if block is None:
            self.num_retries += 1
            self.empty_cache()
            block = self._taken(pool, size, needed)
        if block is None:
            self.out_of_memory = OutOfMemory(
                requested_bytes=size,
                segment_bytes=needed,
                limit_bytes=self._limit or 0,
                reserved_bytes=self.reserved_bytes,
                allocated_bytes=self.allocated_bytes,
                largest_free_bytes=(pool.keys[-1] >> ADDRESS_BITS) if pool.keys else 0,
            )
        return block

    def _taken(self, pool: Pool, size: int, needed: int) -> Block | None:
        if self._expandable:
            return self._extended(pool, size)
        if not self._reserve(needed):
            return None
        block = Block(self._next_address, needed, pool)
        self._next_address += needed
        return block

    def _reserve(self, size: int) -> bool:
        reserved = self.reserved_bytes + size
        if self._limit is not None and reserved > self._limit:
            return False
        self.reserved_bytes = reserved
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, reserved)
        return True

    def _release(self, pool: Pool, block: Block) -> None:
        pool.remove(block)
        self.reserved_bytes -= block.size

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """``max_split_size_mb``: give back one large enough unsplit block, or the largest ones."""
        wanted = max(size, self._max_split or 0)
        at = bisect_left(pool.keys, wanted << ADDRESS_BITS)
        if at < len(pool.keys):
            self._release(pool, pool.free[pool.keys[at]])
            return True
        released = 0
        while released < wanted and pool.keys:
            block = pool.free[pool.keys[-1]]
            if block.size < (self._max_split or 0):
                break
            self._release(pool, block)
            released += block.size
        return released >= wanted

    def _extended(self, pool: Pool, size: int) -> Block | None:
        """Map pages at the lowest address where the request fits."""
        candidate = next((b for b in map(start_of, pool.unmapped) if reaches(b, size)), None)
        if candidate is None:
            start = -(-self._next_address // LARGE_SEGMENT_BYTES) * LARGE_SEGMENT_BYTES
            candidate = Block(start, ADDRESS_SPACE_BYTES, pool)
            self._next_address = start + candidate.size
            candidate.is_mapped = False
            pool.unmapped.append(candidate)
        if not candidate.is_mapped and not self._map(pool, candidate, size):
            return None
        while candidate.size < size:
            unmapped = candidate.following
            if unmapped is None or not self._map(pool, unmapped, size - candidate.size):
                return None
            candidate = unmapped
        pool.remove(candidate)
        return candidate

    def _map(self, pool: Pool, block: Block, size: int) -> bool:
        """Put memory behind the start of an unmapped block, in whole pages."""
        mapped = min(-(-size // pool.granule) * pool.granule, block.size)
        if not self._reserve(mapped):
            return False
        pool.unmapped.remove(block)
        block.is_mapped = True
        if mapped < block.size:
            rest = Block(block.address + mapped, block.size - mapped, pool)
            rest.is_mapped = False
            splice(rest, block, block.following)
            insort(pool.unmapped, rest, key=address_of)
            block.size = mapped
        self._merge(pool, block)
        pool.insert(block)
        self.split_free_bytes += block.size
        return True

    def _merge(self, pool: Pool, block: Block) -> None:
        """Join free neighbours into ``block``."""
        for other in (block.previous, block.following):
            if other is None or not other.is_free:
                continue
            pool.remove(other)
            self.split_free_bytes -= other.size
            join(block, other)

    def _unmap(self, pool: Pool, block: Block) -> None:
        """Take the memory away from the whole pages inside a free block."""
        granule = pool.granule
        begin = -(-block.address // granule) * granule
        end = (block.address + block.size) // granule * granule
        if begin >= end:
            return
        pool.remove(block)
        self.split_free_bytes -= block.size
        if begin > block.address:
            before = Block(block.address, begin - block.address, pool)
            splice(before, block.previous, block)
            pool.insert(before)
            self.split_free_bytes += before.size
        if block.address + block.size > end:
            after = Block(end, block.address + block.size - end, pool)
            splice(after, block, block.following)
            pool.insert(after)
            self.split_free_bytes += after.size
        block.address, block.size, block.is_mapped = begin, end - begin, False
        self.reserved_bytes -= block.size
        for other in (block.previous, block.following):
            if other is not None and not other.is_mapped:
                pool.unmapped.remove(other)
                join(block, other)
        insort(pool.unmapped, block, key=address_of)
