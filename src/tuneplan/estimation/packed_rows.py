"""Which samples share a packed row: best fit decreasing, first fit, in order, largest that fits.

``packing`` counts rows from how many samples there are of each length; this module says which
sample goes where. Pure arithmetic on lengths.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from tuneplan.frozen import dataclass

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """Samples in rows.

    Attributes:
        order: Indices of the samples, row after row.
        starts: Where each row begins in ``order``, and the end of the last one.
    """

    order: Numbers
    starts: Numbers

    @property
    def num_rows(self) -> int:
        """Rows that hold a sample."""
        return len(self.starts) - 1

    def rows(self) -> list[Numbers]:
        """The indices of each row's samples."""
        return np.split(self.order, self.starts[1:-1]) if self.num_rows else []


def _gathered(row_of: Numbers, samples: Numbers) -> PackedRows:
    """Rows from the row of each sample, samples in the order in which they were placed."""
    placed = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of) if len(row_of) else np.zeros(0, dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return PackedRows(order=samples[placed], starts=starts)


def pack_best_fit_decreasing(lengths: Numbers, max_length: int) -> PackedRows:
    """Each sample, longest first, in the fullest row that still holds it.

    Samples longer than ``max_length`` count as truncated to it; empty ones are left out. Of equal
    lengths the earlier sample is placed first, of rows with equal room the one that has had it
    longest. Samples of one length are placed together: a row that took one is fuller than before
    and thus the best fit for the next, so it takes as many as it holds.

    Source: the same rows in the same order as trl 1.16 ``data_utils.py`` ``_pack_bfd`` gives.
    """
    lengths = np.minimum(np.asarray(lengths, dtype=np.int64), max_length)
    samples = np.flatnonzero(lengths > 0)
    # A stable sort of what is missing to `max_length`, so that equal lengths keep their order.
    samples = samples[np.argsort(max_length - lengths[samples], kind="stable")]
    distinct, counts = np.unique(lengths[samples], return_counts=True)
    waiting = zip(distinct[::-1].tolist(), counts[::-1].tolist(), strict=True)
    placed = _best_fit(waiting, max_length)
    row_of = np.fromiter(placed, dtype=np.int64, count=len(samples))
    return _gathered(row_of, samples)


class _OpenRows:
    """Rows by the room they have, first come first served."""

    def __init__(self) -> None:
        self.spaces: list[int] = []  # ascending
        self._rows: dict[int, list[int]] = {}
        self._taken: dict[int, int] = {}  # how many of a list's head are gone

    def add(self, space: int, rows: list[int]) -> None:
        if not rows or not space:
            return
        queue = self._rows.get(space)
        if queue is None:
            insort(self.spaces, space)
            self._rows[space] = rows
            self._taken[space] = 0
        else:
            queue.extend(rows)

    def take(self, space: int, number: int) -> list[int]:
        """At most ``number`` rows with this room."""
        queue, start = self._rows[space], self._taken[space]
        taken = queue[start : start + number]
        if start + number < len(queue):
            self._taken[space] = start + number
        else:
            del self._rows[space], self._taken[space]
            self.spaces.pop(bisect_left(self.spaces, space))
        return taken


def _best_fit(waiting: Iterable[tuple[int, int]], max_length: int) -> Iterable[int]:
    """The row of each sample, of (length, number of samples) from the longest to the shortest."""
    open_rows = _OpenRows()
    num_rows = 0
    placed: list[Iterable[int]] = []
    for length, number in waiting:
        left = number
        while left:
            position = bisect_left(open_rows.spaces, length)
            if position < len(open_rows.spaces):
                space = open_rows.spaces[position]
                per_row = space // length
                rows = open_rows.take(space, -(-left // per_row))
            else:
                space, per_row = max_length, max_length // length
                needed = -(-left // per_row)
                rows = list(range(num_rows, num_rows + needed))
                num_rows += needed
            taken = min(left, len(rows) * per_row)
            full, rest = divmod(taken, per_row)
            left -= taken
            placed.append(_repeated(rows, per_row, taken))
            open_rows.add(space - per_row * length, rows[:full])
            open_rows.add(space - rest * length, rows[full:])
    return chain.from_iterable(placed)


def _repeated(rows: list[int], per_row: int, number: int) -> Iterable[int]:
    """Each row as often as it takes a sample."""
    if per_row == 1:
        # A copy: the list itself may go on as a queue that others are appended to.
        return tuple(rows[:number])
    every = chain.from_iterable(repeat(row, per_row) for row in rows)
    return [row for row, _ in zip(every, range(number), strict=False)]


def pack_first_fit(
    lengths: Numbers, capacity: int, *, max_samples_per_row: int | None = None
) -> PackedRows:
    """Each sample, in order, in the first row that still holds it; longer ones are left out.

    A tree over the rows holds the most room under each node, so a row is found in log2 steps.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    samples = np.flatnonzero((lengths > 0) & (lengths <= capacity))
    size = 1 << max(1, len(samples) - 1).bit_length()
    room = [capacity] * (2 * size)  # unopened rows have all of it
    most = max_samples_per_row or len(samples)
    held = [0] * size
    row_of = []
    for length in lengths[samples].tolist():
        node = 1
        while node < size:
            node *= 2
            if room[node] < length:
                node += 1
        row = node - size
        row_of.append(row)
        held[row] += 1
        room[node] = room[node] - length if held[row] < most else 0
        while node > 1:
            node //= 2
            left, right = room[2 * node], room[2 * node + 1]
            larger = left if left >= right else right
            if room[node] == larger:
                break
            room[node] = larger
    return _gathered(np.asarray(row_of, dtype=np.int64), samples)


def pack_in_order(lengths: Numbers, max_length: int) -> PackedRows:
    """Samples one after the other; the one that does not fit begins the next row.

    Samples longer than ``max_length`` count as truncated to it; empty ones are left out.
    """
    lengths = np.minimum(np.asarray(lengths, dtype=np.int64), max_length)
    samples = np.flatnonzero(lengths > 0)
    row, used, row_of = 0, 0, []
    for length in lengths[samples].tolist():
        if used + length > max_length:
            row, used = row + 1, 0
        used += length
        row_of.append(row)
    return _gathered(np.asarray(row_of, dtype=np.int64), samples)


def pack_largest_that_fits(lengths: Numbers, max_length: int) -> PackedRows:
    """One row at a time, each time with the longest sample that it still holds.

    Longer samples than ``max_length`` are left out. Of equal lengths the later one goes first.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    samples = np.flatnonzero((lengths > 0) & (lengths <= max_length))
    waiting = samples[np.argsort(lengths[samples], kind="stable")]
    sizes, indices = lengths[waiting].tolist(), waiting.tolist()
    order: list[int] = []
    starts = [0]
    while sizes:
        space = max_length
        while (position := bisect_right(sizes, space) - 1) >= 0:
            space -= sizes.pop(position)
            order.append(indices.pop(position))
        starts.append(len(order))
    return PackedRows(
        order=np.asarray(order, dtype=np.int64), starts=np.asarray(starts, dtype=np.int64)
    )
