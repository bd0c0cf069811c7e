"""How many rows repeat an earlier one, from a hash of each row's text, in bounded memory.

Exact up to four million different texts. Beyond that only the hashes that end in ``thinned`` zero
bits are kept, an even selection of the texts, and the count is scaled up: unbiased, and zero
exactly where nothing repeats.
Source: adaptive sampling, P. Flajolet, "On adaptive sampling", Computing 43 (1990).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LIMIT: Final = 4_000_000


@dataclass(slots=True, kw_only=True)
class Repeats:
    """Counts repeated hashes; two of them merge into that of both sets.

    Attributes:
        thinned: Only hashes that end in this many zero bits are kept.
    """

    limit: int = LIMIT
    thinned: int = 0
    _new: array[int] = field(default_factory=lambda: array("Q"))
    _hashes: NDArray[np.uint64] | None = None
    _counts: NDArray[np.int64] | None = None

    def add(self, digest: int) -> None:
        """Enter the hash (64 bits) of one row."""
        if not self.thinned or digest & ((1 << self.thinned) - 1) == 0:
            self._new.append(digest)
            if len(self._new) >= self.limit:
                self._gather()

    def merge(self, other: Repeats) -> None:
        """Enter all that ``other`` has seen."""
        if other._hashes is None and not self.thinned and not other.thinned:
            self._new.extend(other._new)
            if len(self._new) >= self.limit:
                self._gather()
            return
        hashes, counts = other.gathered()
        self._gather(hashes, counts, other.thinned)

    def number(self) -> int:
        """Rows that repeat an earlier one: exact while ``thinned`` is 0, else an estimate."""
        _, counts = self.gathered()
        return int((counts - 1).sum()) << self.thinned

    def gathered(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Each kept hash once, ascending, and how often it came."""
        if self._new or self._hashes is None or self._counts is None:
            self._gather()
        assert self._hashes is not None  # noqa: S101 - `_gather` sets both
        assert self._counts is not None  # noqa: S101
        return self._hashes, self._counts

    def _gather(
        self,
        hashes: NDArray[np.uint64] | None = None,
        counts: NDArray[np.int64] | None = None,
        thinned: int = 0,
    ) -> None:
        import numpy as np

        new = np.frombuffer(self._new, dtype=np.uint64) if self._new else np.empty(0, np.uint64)
        parts = [(new, np.ones(len(new), dtype=np.int64))]
        if self._hashes is not None and self._counts is not None:
            parts.append((self._hashes, self._counts))
        if hashes is not None and counts is not None:
            parts.append((hashes, counts))
        every = np.concatenate([part for part, _ in parts])
        found, place = np.unique(every, return_inverse=True)
        number = np.zeros(len(found), dtype=np.int64)
        np.add.at(number, place, np.concatenate([part for _, part in parts]))
        self.thinned = max(self.thinned, thinned)
        while True:
            kept = found & np.uint64((1 << self.thinned) - 1) == 0
            found, number = found[kept], number[kept]
            if len(found) <= self.limit:
                break
            self.thinned += 1
        self._new = array("Q")
        self._hashes, self._counts = found, number
