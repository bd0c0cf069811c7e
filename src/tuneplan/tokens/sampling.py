"""A part of a large data set for the whole: which cells are read, and how far that can be off.

The files are cut into cells of equal size. Cells are grouped into strata, runs of neighbours over
all files, and of each stratum a few are drawn, every cell with the same chance. So every file and
every place in it has its share, however the rows are sorted.

Bytes are what is drawn, and a long row has more of them than a short one. Rows are counted by
where they start, so that each has the same chance. Tokens of a row that lies in several cells are
shared out by its bytes in each: a row that is larger than a cell, which few draws would meet, then
makes no outlier of one cell.

Totals are ratios to the bytes drawn, times the bytes of all files. Their variance is taken within
groups of neighbouring strata, which makes it rather too large than too small: where the kind of
rows changes within one stratum, its few draws may all lie on one side and show no variance at all.

Source: W. G. Cochran, Sampling Techniques (1977): combined ratio estimate 6.11 and its variance
6.12, collapsed strata 5A.12, degrees of freedom 5.4 (Satterthwaite).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.units import GIB, KIB, MIB

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Above this, a part is read unless all of it is asked for; and how much that is.
SAMPLED_FROM_BYTES: Final = 4 * GIB
SAMPLE_BYTES: Final = 256 * MIB
CELL_BYTES: Final = 256 * KIB
CONFIDENCE: Final = 0.95
_PER_STRATUM: Final = 4
_STRATA_OF_A_GROUP: Final = 5
# P10 to P90, the range of every estimate.
_RANGE: Final = 0.8
# Cells to draw at least, below which an interval says little.
FEWEST_CELLS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A total or mean of the whole set, told from a part.

    Attributes:
        low: Of the 95 % interval, as ``high``.
        estimate: The same as P10, P50 and P90.
    """

    low: float
    likely: float
    high: float
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What was read of a data set, and what follows for all of it."""

    read_bytes: int
    total_bytes: int
    num_cells: int
    num_cells_read: int
    confidence: float
    num_samples: Figure
    tokens: Figure
    trained_tokens: Figure
    mean_length: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What was measured in the cells that were drawn of one kind of files.

    Attributes:
        cells_of_stratum: Cells that each stratum has.
        size_bytes: Of each cell drawn, by stratum and draw.
        measured: ``samples``, ``sequences``, ``tokens``, ``trained``: the same, for each.
        total_bytes: Of all cells.
    """

    cells_of_stratum: NDArray[np.int64]
    size_bytes: NDArray[np.float64]
    measured: Mapping[str, NDArray[np.float64]]
    total_bytes: int

    def total(self, name: str) -> float:
        """The measure, summed over all cells, drawn or not."""
        return self.total_bytes * self._expanded(self.measured[name]) / self._drawn_bytes

    def residuals(self, name: str) -> NDArray[np.float64]:
        """What each cell has more than its bytes say, on the scale of the total."""
        ratio = self._expanded(self.measured[name]) / self._drawn_bytes
        scale = self.total_bytes / self._drawn_bytes
        return (self.measured[name] - ratio * self.size_bytes) * scale

    def variances(
        self, residuals: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The variance that each group of strata adds to a total, and its degrees of freedom.

        None where all cells were drawn.
        """
        import numpy as np

        if residuals.shape[1] < 2:
            return np.zeros(0), np.ones(0)
        groups = max(1, len(residuals) // _STRATA_OF_A_GROUP)
        values = np.array_split(residuals, groups)
        cells = np.asarray([each.sum() for each in np.array_split(self.cells_of_stratum, groups)])
        drawn = np.asarray([each.size for each in values])
        spread = np.asarray([each.var(ddof=1) for each in values])
        return cells * (cells - drawn) * spread / drawn, drawn - 1.0

    @property
    def _drawn_bytes(self) -> float:
        return self._expanded(self.size_bytes)

    def _expanded(self, values: NDArray[np.float64]) -> float:
        weights = self.cells_of_stratum / values.shape[1]
        return float((values.sum(axis=1) * weights).sum())


def drawn_cells(num_cells: int, num_wanted: int, seed: int) -> NDArray[np.int64]:
    """Which cells to read, by stratum: all, or ``_PER_STRATUM`` of each.

    Strata differ by one cell at most, so the chance of each cell is all but the same.
    """
    import numpy as np

    if num_wanted >= num_cells or num_cells < 2 * _PER_STRATUM:
        return np.arange(num_cells).reshape(-1, 1)
    strata = max(1, min(num_wanted // _PER_STRATUM, num_cells // _PER_STRATUM))
    edges = stratum_edges(num_cells, strata)
    random = np.random.default_rng(seed)
    keys = [random.random(int(size)) for size in np.diff(edges)]
    return np.stack(
        [
            start + np.sort(np.argpartition(key, _PER_STRATUM - 1)[:_PER_STRATUM])
            for start, key in zip(edges, keys, strict=False)
        ]
    )


def stratum_edges(num_cells: int, strata: int) -> NDArray[np.int64]:
    """Where each stratum begins among the cells, and the end of the last."""
    import numpy as np

    return np.linspace(0, num_cells, strata + 1).astype(np.int64)


def figures(parts: Sequence[Drawn]) -> dict[str, Figure]:
    """Totals of the set and the mean length of a sequence, each with its intervals."""
    names = ("samples", "sequences", "tokens", "trained")
    totals = {name: sum(part.total(name) for part in parts) for name in names}
    found = {
        name: _figure(totals[name], [part.variances(part.residuals(name)) for part in parts])
        for name in names
    }
    mean = totals["tokens"] / totals["sequences"] if totals["sequences"] else 0.0
    of_mean = [
        part.variances(
            (part.residuals("tokens") - mean * part.residuals("sequences"))
            / max(1.0, totals["sequences"])
        )
        for part in parts
    ]
    return {**found, "mean": _figure(mean, of_mean)}


def _figure(
    likely: float, variances: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]
) -> Figure:
    variance = sum(float(each.sum()) for each, _ in variances)
    squares = sum(float((each**2 / freedom).sum()) for each, freedom in variances)
    freedom = max(1, math.floor(variance**2 / squares)) if squares else 1
    error = math.sqrt(variance)
    half = students_t((1 + CONFIDENCE) / 2, freedom) * error
    inner = students_t((1 + _RANGE) / 2, freedom) * error
    return Figure(
        low=max(0.0, likely - half),
        likely=likely,
        high=likely + half,
        estimate=Estimate(
            low=max(0.0, likely - inner),
            likely=likely,
            high=likely + inner,
            basis=Basis.MEASURED,
        ),
    )


def students_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, for a probability above one half.

    Source: G. W. Hill, "Algorithm 396: Student's t-quantiles", CACM 13 (1970).
    """
    tail = 2 * (1 - probability)
    if freedom == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if freedom == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    a = 1 / (freedom - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    y = (d * tail) ** (2 / freedom)
    if y <= 0.05 + a:
        y = ((1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3)
              + 0.5 / (freedom + 4)) * y - 1) * (freedom + 1) / (freedom + 2) + 1 / y  # fmt: skip
        return math.sqrt(freedom * y)
    x = NormalDist().inv_cdf(tail / 2)
    y = x**2
    if freedom < 5:
        c += 0.3 * (freedom - 4.5) * (x + 0.6)
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
    y = a * y**2
    y = math.expm1(y) if y > 0.002 else 0.5 * y**2 + y
    return math.sqrt(freedom * y)


def scaled_lengths(
    lengths: Mapping[int, float], num_sequences: float, num_tokens: float
) -> Counter[int]:
    """Lengths of the whole set, as whole numbers of sequences, from those that were read.

    The weight of a sequence is a + b x its length, so that both totals are met (Deville and
    Särndal, "Calibration estimators in survey sampling", 1992); where b would make a weight
    negative all weights are the same.
    """
    ascending = sorted(lengths.items())
    count = sum(number for _, number in ascending)
    first = sum(length * number for length, number in ascending)
    second = sum(length * length * number for length, number in ascending)
    spread = count * second - first * first
    slope = (num_tokens * count - num_sequences * first) / spread if spread > 0 else 0.0
    level = (num_sequences - slope * first) / count if count else 0.0
    if ascending and min(level + slope * length for length, _ in ascending) < 0:
        slope, level = 0.0, num_sequences / count
    found: Counter[int] = Counter()
    exact, before = 0.0, 0
    for length, number in ascending:
        exact += number * (level + slope * length)
        found[length] = round(exact) - before
        before = round(exact)
    return +found
