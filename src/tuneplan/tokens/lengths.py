"""Facts that follow from the lengths alone: quantiles, histogram, what a ``max_length`` does."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.packing import (
    Padding,
    best_fit_decreasing_efficiency,
    padding_fraction,
    wrapped_efficiency,
)

# Pairs of a length and how many sequences have it, ascending.
LengthCounts = Sequence[tuple[int, int]]

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Share of the samples that the recommended length holds whole.
COVERED_FRACTION: Final = 0.95
_SHORTEST: Final = 128
_LONGEST: Final = 2**20
# Batches of one epoch are drawn for real up to this many sequences, of an even selection beyond.
_MAX_SIMULATED: Final = 1_000_000
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


def packed_efficiencies(counts: LengthCounts, max_length: int) -> dict[str, float]:
    """Share of positions that hold a token, by way of packing."""
    return {
        "best_fit_decreasing": best_fit_decreasing_efficiency(dict(counts), max_length),
        "wrapped": wrapped_efficiency(dict(counts), max_length),
    }


def padding_fractions(
    counts: LengthCounts, max_length: int, sequences_per_batch: int
) -> dict[str, float]:
    """Share of computed positions that are padding, by policy; batches drawn with a fixed seed."""
    lengths = expanded(counts)
    if len(lengths) > _MAX_SIMULATED:
        places = np.linspace(0, len(lengths) - 1, _MAX_SIMULATED).astype(np.int64)
        lengths = lengths[places]
    return {
        policy.value: padding_fraction(
            lengths, sequences_per_batch, policy, _SEED, max_length=max_length
        )
        for policy in Padding
    }


def expanded(counts: LengthCounts) -> NDArray[np.int64]:
    """Every length, ascending."""
    table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
    return np.repeat(table[:, 0], table[:, 1])
