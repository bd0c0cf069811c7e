"""How full packed rows get and how much padding batches carry, from the lengths of the samples.

Pure arithmetic on lengths; nothing here knows a tokenizer or a framework's name.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

# Every length, or how many samples have each length.
Lengths = Iterable[int] | Mapping[int, int]


class Padding(StrEnum):
    """What a batch is padded to, named as the job file names it."""

    MAX_LENGTH = "max_length"  # every sample to the fixed length
    LONGEST = "longest"  # to the longest sample of a batch drawn at random
    GROUPED = "grouped"  # as LONGEST, with samples of like length drawn together


# transformers `LengthGroupedSampler`: groups of 50 batches, or a quarter of the set if smaller.
_BATCHES_PER_GROUP = 50


def _truncated_counts(lengths: Lengths, max_length: int) -> Counter[int]:
    if max_length < 1:
        msg = f"max_length must be at least 1, got {max_length}"
        raise ValueError(msg)
    counts: Counter[int] = Counter()
    for length, count in Counter(lengths).items():
        if length > 0:
            counts[min(int(length), max_length)] += count
    return counts


def best_fit_decreasing_rows(lengths: Lengths, max_length: int) -> int:
    """Packed rows that best-fit decreasing needs; longer samples are truncated to ``max_length``.

    Each sample, longest first, goes to the fullest row that still holds it, or opens a new one.
    Samples of one length are placed together, which gives the same rows as one by one: a row that
    took a sample is fuller than before, so it takes the next one too while it has room.

    Source: trl 1.10 ``data_utils.py`` ``_pack_bfd`` (strategy ``bfd``: truncate, sort, best fit);
    the trainer packs 1,000 samples at a time (``datasets.map``), this packs all of them.
    """
    counts = _truncated_counts(lengths, max_length)
    rows_by_space: Counter[int] = Counter()
    spaces: list[int] = []  # the distinct spaces, ascending

    def open_rows(space: int, number: int) -> None:
        if number and space:
            if not rows_by_space[space]:
                insort(spaces, space)
            rows_by_space[space] += number

    num_rows = 0
    for length in sorted(counts, reverse=True):
        waiting = counts[length]
        while waiting:
            position = bisect_left(spaces, length)
            if position == len(spaces):
                per_row = max_length // length
                full, rest = divmod(waiting, per_row)
                open_rows(max_length - per_row * length, full)
                open_rows(max_length - rest * length, 1 if rest else 0)
                num_rows += full + (1 if rest else 0)
                break
            space = spaces[position]
            per_row = space // length
            full = min(rows_by_space[space], waiting // per_row)
            rest = waiting - full * per_row if rows_by_space[space] > full else 0
            taken = full + (1 if rest else 0)
            rows_by_space[space] -= taken
            if not rows_by_space[space]:
                spaces.pop(position)
            open_rows(space - per_row * length, full)
            open_rows(space - rest * length, 1 if rest else 0)
            waiting -= full * per_row + rest
    return num_rows


def best_fit_decreasing_efficiency(lengths: Lengths, max_length: int) -> float:
    """Share of the positions of best-fit-decreasing rows that hold a token, in (0, 1].

    Truncated tokens are not counted: they are not in the rows. An empty set gives 1.
    """
    counts = _truncated_counts(lengths, max_length)
    num_tokens = sum(length * count for length, count in counts.items())
    rows = best_fit_decreasing_rows(counts, max_length)
    return num_tokens / (rows * max_length) if rows else 1.0


def wrapped_efficiency(lengths: Lengths, max_length: int) -> float:
    """Share of the positions that hold a token when all samples are joined and cut, in (0, 1].

    Only the last row is not full. Nothing is truncated; samples are cut in the middle.
    Source: trl 1.10 ``data_utils.py`` ``_pack_wrapped``. An empty set gives 1.
    """
    if max_length < 1:
        msg = f"max_length must be at least 1, got {max_length}"
        raise ValueError(msg)
    num_tokens = sum(length * count for length, count in Counter(lengths).items())
    return num_tokens / (-(-num_tokens // max_length) * max_length) if num_tokens else 1.0


def sampled_order(
    lengths: NDArray[np.int64], batch_size: int, policy: Padding, seed: int
) -> NDArray[np.int64]:
    """Indices of the samples in the order in which one epoch draws them.

    ``GROUPED`` draws at random, then sorts groups of 50 batches by length, longest first, and puts
    the longest sample of all at the very start, so that too large a batch fails at once. The
    trainer hands in ``per_device_train_batch_size x gradient_accumulation_steps`` as the batch.
    Source: transformers 4.40 to 5.24 ``trainer_pt_utils.py`` ``get_length_grouped_indices``.
    """
    order = np.random.default_rng(seed).permutation(len(lengths)).astype(np.int64)
    return length_grouped(lengths, order, batch_size) if policy is Padding.GROUPED else order


def length_grouped(
    lengths: NDArray[np.int64], order: NDArray[np.int64], batch_size: int
) -> NDArray[np.int64]:
    """Samples drawn in a random ``order``, as ``group_by_length`` then arranges them."""
    if not len(order):
        return order
    group = max(1, min(len(order) // (batch_size * 4), _BATCHES_PER_GROUP)) * batch_size
    starts = np.arange(0, len(order), group)
    grouped = np.concatenate(
        [
            part[np.argsort(-lengths[part], kind="stable")]
            for part in (order[start : start + group] for start in starts)
        ]
    )
    longest = starts[np.argmax(lengths[grouped[starts]])]
    grouped[[0, longest]] = grouped[[longest, 0]]
    return grouped


def batch_positions(
    lengths: Sequence[int] | NDArray[np.int64],
    batch_size: int,
    policy: Padding | str,
    seed: int = 0,
    *,
    max_length: int | None = None,
    sequences_per_sample: int = 1,
) -> NDArray[np.int64]:
    """Positions (tokens + padding) that each batch of one epoch computes; the last may be small.

    Args:
        lengths: Of every sequence; those of one sample stand side by side.
        batch_size: Samples of a batch.
        policy: What a batch is padded to.
        seed: Of the random order.
        max_length: Longer sequences are truncated to it; None for the longest there is.
        sequences_per_sample: 2 for preference pairs, which are padded together: the sequences of
            one batch come from the same samples.
    """
    policy = Padding(policy)
    if batch_size < 1:
        msg = f"batch_size must be at least 1, got {batch_size}"
        raise ValueError(msg)
    kept = np.asarray(lengths, dtype=np.int64)
    if max_length is not None:
        kept = np.minimum(kept, max_length)
    if not len(kept):
        return kept
    longest = kept.reshape(-1, sequences_per_sample).max(axis=1)
    starts = np.arange(0, len(longest), batch_size)
    sizes = np.minimum(batch_size, len(longest) - starts) * sequences_per_sample
    if policy is Padding.MAX_LENGTH:
        return np.asarray(sizes * (max_length or int(kept.max())), dtype=np.int64)
    drawn = longest[sampled_order(longest, batch_size, policy, seed)]
    return np.asarray(sizes * np.maximum.reduceat(drawn, starts), dtype=np.int64)


def padding_fraction(
    lengths: Sequence[int] | NDArray[np.int64],
    batch_size: int,
    policy: Padding | str,
    seed: int = 0,
    *,
    max_length: int | None = None,
    sequences_per_sample: int = 1,
) -> float:
    """Share of the computed positions of one epoch that are padding, in [0, 1).

    Batches are made as the trainer makes them, with the seed's random order; samples longer than
    ``max_length`` are truncated first. ``max_length`` None means the longest sample.
    """
    found = batch_positions(
        lengths,
        batch_size,
        policy,
        seed,
        max_length=max_length,
        sequences_per_sample=sequences_per_sample,
    )
    positions = int(found.sum())
    kept = np.asarray(lengths, dtype=np.int64)
    num_tokens = int((kept if max_length is None else np.minimum(kept, max_length)).sum())
    return 1.0 - num_tokens / positions if positions else 0.0
