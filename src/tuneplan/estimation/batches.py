"""Lengths of batches: padding, packing, and the longest micro-batch of a run.

Everything works on a sorted array of sample lengths: the exact ones where they were read, else a
stand-in drawn from the stated quantiles or, where only a mean is known, from a stated shape.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.operations import Number
from tuneplan.estimation.packing import best_fit_decreasing_efficiency
from tuneplan.estimation.same import Same
from tuneplan.frozen import dataclass
from tuneplan.spec.data import TokenStatistics

Lengths = NDArray[np.float64]

_STAND_IN_SAMPLES: Final = 4096
# Spread of log-length where only a mean is known. Instruction and chat sets lie between 0.5
# (short answers) and 1.0 (mixed chat); 0.8 puts P95 at 2.7 times the mean. An assumption.
LOG_LENGTH_SPREAD: Final = 0.8
# transformers' group_by_length sorts within megabatches of 50 batches (trainer_pt_utils.py).
_MEGABATCH_BATCHES: Final = 50
# Expected largest of n standard normal draws (Harter 1961): how far the slowest of n ranks lies
# above the mean when each rank's work is a sum of many samples.
_LARGEST_NORMAL: Final = {1: 0.0, 2: 0.564, 4: 1.029, 8: 1.424, 16: 1.766, 32: 2.070, 64: 2.344}


class Padding(StrEnum):
    """How samples of one micro-batch are brought to one length."""

    LONGEST = "longest"
    MAX_LENGTH = "max_length"
    GROUPED = "grouped"
    NONE = "none"
    """Padding-free: the samples stand one behind the other in one row, nothing is filled up."""
    PACKED = "packed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """What one micro-batch of a rank looks like.

    Attributes:
        sequences: Rows of the micro-batch.
        mean_length: Positions per row on average, padding included.
        worst_length: Positions per row of the longest micro-batch to expect in the run.
        limit_length: The longest that can occur: ``max_length``.
        real_tokens: Tokens of samples in an average micro-batch, padding not counted.
        samples: Samples in an average micro-batch.
        sequence_length: Mean length of a sample after truncation (attention in packed rows).
        varies: Whether micro-batches of other lengths run before the longest one.
    """

    sequences: int
    mean_length: float
    worst_length: float
    limit_length: float
    real_tokens: float
    samples: float
    sequence_length: float
    varies: bool = False

    @property
    def positions(self) -> float:
        """Positions computed in an average micro-batch."""
        return self.sequences * self.mean_length

    @property
    def padding_fraction(self) -> float:
        """Share of computed positions that hold no token."""
        share = 1.0 - self.real_tokens / self.positions if self.positions else 0.0
        return max(0.0, share)  # sums of equal lengths differ in their last digit


def sample_lengths(statistics: TokenStatistics) -> Lengths:
    """Lengths before truncation, ascending: exact, or a stand-in with the stated facts.

    Between stated quantiles log length rises, bent so that the stand-in has the stated mean. What
    the bend cannot reach is reached by scaling all lengths (the stated quantiles and mean
    contradict each other then). The array is shared: nobody writes into it.
    """
    return _sample_lengths(Same(statistics))


@lru_cache(maxsize=16)
def _sample_lengths(statistics: Same[TokenStatistics]) -> Lengths:
    lengths = _lengths_of(statistics.value)
    lengths.flags.writeable = False
    return lengths


def _lengths_of(statistics: TokenStatistics) -> Lengths:
    if statistics.lengths:
        return np.sort(np.asarray(statistics.lengths, dtype=float))
    at = (np.arange(_STAND_IN_SAMPLES) + 0.5) / _STAND_IN_SAMPLES
    mean = statistics.mean_tokens
    if not statistics.quantiles:
        spread = _log_normal()
        return np.asarray(np.sort(np.maximum(spread * max(mean, 1.0) / spread.mean(), 1.0)))
    shares, values = _joined_quantiles(statistics)
    if not mean:
        return _bent(at, shares, values, 1.0)
    low, high = -3.0, 3.0  # logarithm of the bend; more bend, fewer long samples
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if _bent(at, shares, values, math.exp(middle)).mean() > mean
            else (low, middle)
        )
    found = _bent(at, shares, values, math.exp((low + high) / 2))
    scaled = np.minimum(found * mean / found.mean(), max(math.exp(values[-1]), mean))
    scaled[-1] = max(scaled[-1], math.exp(values[-1]))
    return np.sort(scaled)


@lru_cache(maxsize=1)
def _log_normal() -> Lengths:
    at = (np.arange(_STAND_IN_SAMPLES) + 0.5) / _STAND_IN_SAMPLES
    return np.asarray(np.exp(LOG_LENGTH_SPREAD * _normal_quantiles(at)))


def _joined_quantiles(statistics: TokenStatistics) -> tuple[list[float], list[float]]:
    """Shares from 0 to 1 and log lengths; unstated ends lie e^1.5 below and e^0.7 above."""
    known = sorted(statistics.quantiles.items())
    shares = [share for share, _ in known]
    values = [math.log(max(value, 1.0)) for _, value in known]
    if shares[0] > 0:
        shares, values = [0.0, *shares], [max(values[0] - 1.5, 0.0), *values]
    if shares[-1] < 1:
        shares, values = [*shares, 1.0], [*values, values[-1] + 0.7]
    return shares, list(np.maximum.accumulate(values))


def _bent(at: Lengths, shares: list[float], values: list[float], bend: float) -> Lengths:
    """Lengths at these shares; every stretch follows ``u ** bend`` instead of ``u``."""
    ends, heights = np.asarray(shares), np.asarray(values)
    stretch = np.clip(np.searchsorted(ends, at, side="right") - 1, 0, len(ends) - 2)
    wide = np.maximum(ends[stretch + 1] - ends[stretch], 1e-12)
    inside = np.clip((at - ends[stretch]) / wide, 0.0, 1.0)
    rise = heights[stretch + 1] - heights[stretch]
    return np.asarray(np.exp(heights[stretch] + rise * inside**bend))


def _normal_quantiles(at: Lengths) -> Lengths:
    """Inverse of the normal distribution function by a rational approximation.

    Source: Abramowitz and Stegun 26.2.23 (absolute error under 4.5e-4).
    """
    tail = np.where(at < 0.5, at, 1.0 - at)
    t = np.sqrt(-2.0 * np.log(tail))
    top = 2.515517 + t * (0.802853 + t * 0.010328)
    bottom = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    value = t - top / bottom
    return np.where(at < 0.5, -value, value)


def expected_longest(lengths: Lengths, draws: float) -> float:
    """Expected largest of ``draws`` samples drawn at random from ascending ``lengths``."""
    if len(lengths) == 0:
        return 0.0
    share = np.arange(1, len(lengths) + 1) / len(lengths)
    reached = share ** max(draws, 1.0)
    return float(np.sum(lengths * np.diff(reached, prepend=0.0)))


def batch_shape(
    statistics: TokenStatistics,
    *,
    max_length: int,
    per_device_batch_size: int,
    padding: Padding,
    samples_seen: float | None = None,
    sequences_per_sample: int = 1,
) -> BatchShape:
    """The micro-batch of one rank for these lengths.

    Samples longer than ``max_length`` are truncated. ``samples_seen`` are the samples that the
    whole run draws (None: every sample at least once); ``sequences_per_sample`` is 2 for
    preference pairs that run together.
    """
    lengths = np.minimum(sample_lengths(statistics), float(max_length))
    mean = float(lengths.mean())
    rows = per_device_batch_size * sequences_per_sample
    if padding is Padding.PACKED:
        efficiency = packing_efficiency(lengths, max_length)
        return BatchShape(
            sequences=rows,
            mean_length=float(max_length),
            worst_length=float(max_length),
            limit_length=float(max_length),
            real_tokens=rows * max_length * efficiency,
            samples=rows * max_length * efficiency / mean,
            sequence_length=mean,
        )
    average = _padded_length(lengths, per_device_batch_size, max_length, padding)
    seen = statistics.num_samples if samples_seen is None else samples_seen
    if padding is Padding.MAX_LENGTH:
        worst = float(max_length)
    elif statistics.num_samples and seen >= statistics.num_samples:
        worst = float(lengths[-1])
    else:
        worst = expected_longest(lengths, max(seen, per_device_batch_size))
    return BatchShape(
        sequences=rows,
        mean_length=average,
        worst_length=max(worst, average),
        limit_length=float(max_length),
        real_tokens=rows * mean,
        samples=float(per_device_batch_size),
        sequence_length=mean,
        # group_by_length puts the longest batch first (trainer_pt_utils.py).
        varies=padding in (Padding.LONGEST, Padding.NONE) and bool(lengths[0] < lengths[-1]),
    )


def _padded_length(lengths: Lengths, batch_size: int, max_length: int, padding: Padding) -> float:
    if padding is Padding.MAX_LENGTH:
        return float(max_length)
    if padding is Padding.NONE:
        return float(lengths.mean())
    if padding is Padding.GROUPED:
        # Sorted within a megabatch: batch j of 50 is padded to about the j/50 quantile.
        ends = np.linspace(0, len(lengths), _MEGABATCH_BATCHES + 1)[1:]
        return (
            float(np.mean(lengths[np.ceil(ends).astype(int) - 1]))
            if batch_size > 1
            else float(lengths.mean())
        )
    return expected_longest(lengths, batch_size)


def packing_efficiency(lengths: Lengths, max_length: int) -> float:
    """Share of packed positions that hold tokens, by best-fit decreasing (TRL's ``bfd``)."""
    whole = np.maximum(np.rint(lengths), 1).astype(np.int64)
    return _packed_share(whole.tobytes(), max_length)


@lru_cache(maxsize=64)
def _packed_share(lengths: bytes, max_length: int) -> float:
    whole = np.frombuffer(lengths, dtype=np.int64)
    return best_fit_decreasing_efficiency(whole.tolist(), max_length)


def length_spread(lengths: Lengths) -> float:
    """Coefficient of variation of sample lengths."""
    return float(lengths.std() / lengths.mean()) if len(lengths) else 0.0


def imbalance_factor(spread: float, *, samples_per_rank: Number, ranks: int) -> Number:
    """How much longer the slowest rank works than the mean one, where work follows tokens.

    ``1 + z x spread / sqrt(samples)`` with z the expected largest of ``ranks`` normal draws and
    ``spread`` the coefficient of variation of sample lengths. 1 where every rank computes the same
    positions (packed or padded to a fixed length).
    """
    if ranks <= 1:
        return 1.0
    known = sorted(_LARGEST_NORMAL)
    z = float(np.interp(math.log2(ranks), np.log2(known), [_LARGEST_NORMAL[n] for n in known]))
    draws: Number = np.sqrt(np.maximum(samples_per_rank, 1e-9))
    return 1.0 + z * spread / draws
