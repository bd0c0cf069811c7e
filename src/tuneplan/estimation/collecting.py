"""The caching allocator with ``garbage_collection_threshold``: old cached segments go back early.

It acts only where a process may use a share of the card (``set_per_process_memory_fraction``).
When no cached block serves a request and more is reserved than the threshold's share of what is
allowed, whole free segments of the large pool are given back, those first that were passed over
in at least the mean number of requests, until enough is reclaimed.

Source: PyTorch ``c10/cuda/CUDACachingAllocator.cpp garbage_collect_cached_blocks``,
``get_free_block`` and ``BlockPool.insert_into_blocks`` (2.1 to 2.13).
"""

from __future__ import annotations

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.blocks import SMALL_REQUEST_BYTES, Block, Pool, rounded


class CollectingAllocator(CachingAllocator):
    """A caching allocator that collects garbage.

    Attributes:
        collected_bytes: Given back by collections so far.
    """

    __slots__ = ("_calls", "_freed_at", "_threshold", "collected_bytes")

    def __init__(self, *, limit_bytes: int, threshold_fraction: float) -> None:
        """A fresh allocator.

        Args:
            limit_bytes: What the process may use.
            threshold_fraction: ``garbage_collection_threshold``, above 0 and below 1.
        """
        super().__init__(limit_bytes=limit_bytes)
        self._threshold = int(threshold_fraction * limit_bytes)
        self._calls: dict[int, int] = {}  # requests that each pool has seen
        self._freed_at: dict[int, int] = {}  # by address: the pool's requests at that time
        self.collected_bytes = 0

    def malloc(self, size: int, stream: int = 0) -> Block | None:
        """Serve a request as the allocator does, collecting before a new segment is taken."""
        pool = self._pools_of(stream)[rounded(size) <= SMALL_REQUEST_BYTES]
        self._calls[id(pool)] = self._calls.get(id(pool), 0) + 1
        return super().malloc(size, stream)

    def free(self, block: Block) -> None:
        """Take a block back; its age begins."""
        super().free(block)
        self._freed_at[block.address] = self._calls[id(block.pool)]

    def _from_card(self, pool: Pool, size: int) -> Block | None:
        self._collect()
        return super()._from_card(pool, size)

    def _collect(self) -> None:
        wanted = self.reserved_bytes - self._threshold
        ages = {
            block: self._calls[id(block.pool)] - self._freed_at[block.address]
            for large, _ in self._pools.values()
            for block in large.free.values()
            if not block.is_split
        }
        reclaimed = 0
        while reclaimed < wanted and ages:
            mean = sum(ages.values()) / len(ages)
            for block in [block for block, age in ages.items() if age >= mean]:
                del ages[block]
                reclaimed += block.size
                self._release(block.pool, block)
        self.collected_bytes += reclaimed
