"""Facts that follow from the lengths alone: quantiles, histogram, what a ``max_length`` does."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.packing import Padding, padding_fraction
from tuneplan.tokens.packings import MAPPED_AT_ONCE, Packing, packings_of, packings_of_counts

# Pairs of a length and how many sequences have it, ascending.
LengthCounts = Sequence[tuple[int, int]]

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Share of the samples that the recommended length holds whole.
COVERED_FRACTION: Final = 0.95
_SHORTEST: Final = 128
_LONGEST: Final = 2**20
# Batches of one epoch are drawn for real up to this many sequences, of an even selection beyond.
_MAX_SIMULATED: Final = 1_000_000
# Lengths handed on to an estimate.
MAX_KEPT: Final = 1_000_000
# Rows are packed for real up to this many sequences.
MAX_PACKED: Final = 100_000
_SEED: Final = 0


def num_sequences(counts: LengthCounts) -> int:
    """How many sequences there are."""
    return sum(count for _, count in counts)


def num_tokens(counts: LengthCounts) -> int:
    """How many tokens they have."""
    return sum(length * count for length, count in counts)


def quantiles_of(counts: LengthCounts, quantiles: Iterable[float]) -> dict[float, float]:
    """Length at each quantile: the smallest length that this share of the sequences does not pass.

    The inverse of the empirical distribution, so every quantile is the length of a real sequence.
    """
    ends = list(accumulate(count for _, count in counts))
    if not ends:
        return dict.fromkeys(quantiles, 0.0)
    last = len(ends) - 1
    return {
        quantile: float(counts[min(last, bisect_left(ends, quantile * ends[-1] - 1e-9))][0])
        for quantile in quantiles
    }


def histogram_of(counts: LengthCounts) -> tuple[tuple[int, int, int], ...]:
    """``(low, high, number)`` with ``low <= length < high``; each bar twice as wide as the last."""
    bars: dict[int, int] = {}
    for length, count in counts:
        power = max(length.bit_length() - 1, 3)  # all below 16 in one bar
        bars[power] = bars.get(power, 0) + count
    if not bars:
        return ()
    first, last = min(bars), max(bars)
    return tuple(
        (0 if power == 3 else 2**power, 2 ** (power + 1), bars.get(power, 0))
        for power in range(first, last + 1)
    )


def covering_length(counts: LengthCounts, fraction: float) -> int:
    """The smallest power of two (from 128) that holds this share of the sequences whole."""
    needed = quantiles_of(counts, (fraction,))[fraction]
    length = _SHORTEST
    while length < needed and length < _LONGEST:
        length *= 2
    return length


def usual_lengths(counts: LengthCounts) -> tuple[int, ...]:
    """The lengths worth a look: powers of two around what the samples need, four to six of them."""
    whole = covering_length(counts, 1.0)
    middle = covering_length(counts, 0.5)
    lengths = []
    length = middle
    while length <= whole:
        lengths.append(length)
        length *= 2
    return tuple(lengths[-6:])


def truncated_fractions(counts: LengthCounts, max_length: int) -> tuple[float, float]:
    """Share of sequences longer than ``max_length``, and share of tokens beyond it."""
    longer = [(length, count) for length, count in counts if length > max_length]
    sequences, tokens = num_sequences(counts), num_tokens(counts)
    cut = sum((length - max_length) * count for length, count in longer)
    return (
        num_sequences(longer) / sequences if sequences else 0.0,
        cut / tokens if tokens else 0.0,
    )


def in_order(counts: LengthCounts, ordered: Sequence[int]) -> NDArray[np.int64]:
    """Lengths in the order of the rows, where all are kept, else drawn from the counts.

    Of more than a million an even selection stands for all, in a random order of a fixed seed.
    """
    if len(ordered) == num_sequences(counts):
        return np.asarray(ordered, dtype=np.int64)
    return np.random.default_rng(_SEED).permutation(evenly_selected(counts, _MAX_SIMULATED))


def evenly_selected(counts: LengthCounts, most: int) -> NDArray[np.int64]:
    """Every length, ascending; of more than ``most``, that many at even steps."""
    total = num_sequences(counts)
    if total <= most:
        return expanded(counts)
    table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
    places = (np.arange(most) * 2 + 1) * total // (2 * most)
    rows = np.searchsorted(np.cumsum(table[:, 1]), places, side="right")
    return np.asarray(table[rows, 0], dtype=np.int64)


def packings(
    counts: LengthCounts, lengths: NDArray[np.int64], max_length: int, batch_size: int
) -> dict[str, Packing]:
    """What each way of packing makes of the set; of a large set, of a hundred parts of it.

    Args:
        counts: How many sequences have each length.
        lengths: In the order of the rows, from ``in_order``.
        max_length: Tokens of a row.
        batch_size: Rows of a batch.
    """
    found = packings_of(_blocks(lengths), max_length, batch_size)
    # These need no order, so they are of the whole set.
    table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
    return {**found, **packings_of_counts(table[:, 0], table[:, 1], max_length)}


def _blocks(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """A hundred stretches of a thousand, evenly apart, so that neighbours stay neighbours."""
    number = MAX_PACKED // MAPPED_AT_ONCE
    if len(lengths) <= MAX_PACKED:
        return lengths
    starts = np.linspace(0, len(lengths) - MAPPED_AT_ONCE, number).astype(np.int64)
    return np.concatenate([lengths[start : start + MAPPED_AT_ONCE] for start in starts])


def padding_fractions(
    lengths: NDArray[np.int64],
    max_length: int,
    samples_per_batch: int,
    sequences_per_sample: int = 1,
) -> dict[str, float]:
    """Share of computed positions that are padding, by policy; batches drawn with a fixed seed."""
    return {
        policy.value: padding_fraction(
            lengths,
            samples_per_batch,
            policy,
            _SEED,
            max_length=max_length,
            sequences_per_sample=sequences_per_sample,
        )
        for policy in Padding
    }


def expanded(counts: LengthCounts) -> NDArray[np.int64]:
    """Every length, ascending."""
    table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
    return np.repeat(table[:, 0], table[:, 1])


def without_evenly(counts: LengthCounts, taken: int) -> tuple[tuple[int, int], ...]:
    """The counts with ``taken`` sequences less, evenly over the lengths."""
    if not taken:
        return tuple(counts)
    table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
    ends = np.cumsum(table[:, 1])
    step = int(ends[-1]) / taken
    places = ((np.arange(taken) + 0.5) * step).astype(np.int64)
    away = np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(table))
    left = table[:, 1] - away
    return tuple(
        (length, count)
        for length, count in zip(table[:, 0].tolist(), left.tolist(), strict=True)
        if count
    )
