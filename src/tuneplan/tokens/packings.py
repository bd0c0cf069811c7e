"""How full packed rows get: by the known ways of packing, and by what each framework really does.

A framework packs a thousand samples at a time, or in the order of the file, or leaves long samples
out; so its rows are not those of the textbook. The default of each version is what it names:

- ``trl_bfd``: trl 0.19 to 0.26 (in 0.19 called ``ffd``), 0.29 and newer. Truncate, best fit
  decreasing, 1,000 samples at a time (``datasets.map`` with its default ``batch_size``), in the
  order of the file.
  Source: trl 0.20 to 1.16 ``data_utils.py`` ``_pack_bfd``, ``pack_dataset``.
- ``trl_bfd_split``: the same without loss, what is too long is cut into pieces first. ``bfd`` of
  trl 0.27 and 0.28, ``bfd_split`` of 1.0 and newer. Source: their ``_pack_bfd``.
- ``trl_wrapped``: trl 0.15 to 0.18: 1,000 samples joined and cut, the last row of each thousand is
  not full. Source: trl 0.15 ``data_utils.py`` ``pack_examples``, 1.16 ``_pack_wrapped``.
- ``axolotl``: first fit in a random order, 100,000 samples at a time, into one row of
  ``micro_batch_size x sequence_len``, at most 200 samples a row; longer samples are dropped.
  Source: axolotl 0.9 to 0.18 ``utils/samplers/multipack.py`` ``pack_group``,
  ``core/trainers/base.py`` ``_create_multipack_sampler``, ``excess_length_strategy``.
- ``llamafactory``: the longest that fits, row by row, 1,000 samples at a time; each row is padded
  to ``cutoff_len + 1``; longer samples are dropped. Source: LLaMA-Factory 0.9.2 to 0.9.5
  ``data/processor/supervised.py`` ``PackedSupervisedDatasetProcessor``, ``greedy_knapsack``.
- ``torchtune``: truncate, one after the other in the order of the file; a sample that does not fit
  begins the next row. Source: torchtune 0.6 ``datasets/_packed.py`` ``PackedDataset``.
- ``torchtune_split``: ``split_across_pack=True`` cuts samples instead: all rows but the last full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.packed_rows import pack_first_fit, pack_in_order, pack_largest_that_fits
from tuneplan.estimation.packing import best_fit_decreasing_rows
from tuneplan.frozen import dataclass

Numbers = NDArray[np.int64]

# ``datasets`` 4 ``Dataset.map`` batch_size, LLaMA-Factory ``preprocessing_batch_size``.
MAPPED_AT_ONCE: Final = 1000
# axolotl ``sample_packing_group_size`` and ``sample_packing_bin_size``.
AXOLOTL_GROUP: Final = 100_000
AXOLOTL_SAMPLES_PER_ROW: Final = 200
_SEED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What one way of packing makes of a set.

    Attributes:
        rows: Packed rows.
        positions: What they compute, padding included.
        tokens: Tokens of the samples in them.
        lost_tokens: Tokens that are truncated, or of samples that are left out.
    """

    rows: int
    positions: int
    tokens: int
    lost_tokens: int

    @property
    def efficiency(self) -> float:
        """Share of the positions that hold a token; 1 for an empty set."""
        return self.tokens / self.positions if self.positions else 1.0

    @property
    def lost_fraction(self) -> float:
        """Share of all tokens that are lost."""
        every = self.tokens + self.lost_tokens
        return self.lost_tokens / every if every else 0.0


def _packing(lengths: Numbers, rows: int, row_length: int, kept: Numbers) -> Packing:
    tokens = int(kept.sum())
    return Packing(
        rows=rows,
        positions=rows * row_length,
        tokens=tokens,
        lost_tokens=int(lengths.sum()) - tokens,
    )


def _first_fit(lengths: Numbers, max_length: int) -> Packing:
    kept = np.minimum(lengths, max_length)
    return _packing(lengths, pack_first_fit(kept, max_length).num_rows, max_length, kept)


def _best_fit_rows(kept: Numbers, max_length: int) -> int:
    counts = np.bincount(kept)
    present = np.flatnonzero(counts)
    table = dict(zip(present.tolist(), counts[present].tolist(), strict=True))
    return best_fit_decreasing_rows(table, max_length)


def _trl_bfd(lengths: Numbers, max_length: int) -> Packing:
    kept = np.minimum(lengths, max_length)
    rows = sum(_best_fit_rows(part, max_length) for part in _thousands(kept))
    return _packing(lengths, rows, max_length, kept)


def _trl_bfd_split(lengths: Numbers, max_length: int) -> Packing:
    rows = 0
    for part in _thousands(lengths):
        whole, rest = np.divmod(part, max_length)
        rows += int(whole.sum()) + _best_fit_rows(rest, max_length)
    return _packing(lengths, rows, max_length, lengths)


def _trl_wrapped(lengths: Numbers, max_length: int) -> Packing:
    rows = sum(-(-int(part.sum()) // max_length) for part in _thousands(lengths))
    return _packing(lengths, rows, max_length, lengths)


def _llamafactory(lengths: Numbers, max_length: int) -> Packing:
    kept = lengths[lengths <= max_length]
    rows = sum(pack_largest_that_fits(part, max_length).num_rows for part in _thousands(lengths))
    return _packing(lengths, rows, max_length + 1, kept)


def _torchtune(lengths: Numbers, max_length: int) -> Packing:
    kept = np.minimum(lengths, max_length)
    return _packing(lengths, pack_in_order(kept, max_length).num_rows, max_length, kept)


def _axolotl(lengths: Numbers, max_length: int, batch_size: int) -> Packing:
    kept = lengths[lengths <= max_length]
    kept = np.random.default_rng(_SEED).permutation(kept)
    capacity = batch_size * max_length
    rows = sum(
        pack_first_fit(part, capacity, max_samples_per_row=AXOLOTL_SAMPLES_PER_ROW).num_rows
        for part in _parts(kept, AXOLOTL_GROUP)
    )
    return _packing(lengths, rows, capacity, kept)


def _thousands(lengths: Numbers) -> Iterator[Numbers]:
    return _parts(lengths, MAPPED_AT_ONCE)


def _parts(lengths: Numbers, size: int) -> Iterator[Numbers]:
    return (lengths[start : start + size] for start in range(0, len(lengths), size))


_WAYS: Final[Mapping[str, Callable[[Numbers, int], Packing]]] = MappingProxyType(
    {
        "first_fit": _first_fit,
        "trl_bfd": _trl_bfd,
        "trl_bfd_split": _trl_bfd_split,
        "trl_wrapped": _trl_wrapped,
        "llamafactory": _llamafactory,
        "torchtune": _torchtune,
    }
)
# Need only how many samples have each length.
_OF_COUNTS: Final = ("best_fit_decreasing", "wrapped", "torchtune_split")
WAYS_OF_PACKING: Final = (*_OF_COUNTS, *_WAYS, "axolotl")


def packings_of(lengths: Numbers, max_length: int, batch_size: int) -> dict[str, Packing]:
    """What each way of packing makes of lengths in the order of the file.

    Args:
        lengths: Tokens of each sequence; empty ones take no room.
        max_length: Tokens of a row.
        batch_size: Rows of a batch: axolotl packs a whole micro-batch as one.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    lengths = lengths[lengths > 0]
    distinct, counts = np.unique(lengths, return_counts=True)
    found = packings_of_counts(distinct, counts, max_length)
    found |= {name: pack(lengths, max_length) for name, pack in _WAYS.items()}
    return {**found, "axolotl": _axolotl(lengths, max_length, batch_size)}


def packings_of_counts(lengths: Numbers, counts: Numbers, max_length: int) -> dict[str, Packing]:
    """The ways of packing for which the order does not matter, from how many have each length."""
    every = int((lengths * counts).sum())
    kept = int((np.minimum(lengths, max_length) * counts).sum())
    table = dict(zip(lengths.tolist(), counts.tolist(), strict=True))
    rows = best_fit_decreasing_rows(table, max_length)
    full = -(-every // max_length)
    joined = Packing(rows=full, positions=full * max_length, tokens=every, lost_tokens=0)
    return {
        "best_fit_decreasing": Packing(
            rows=rows, positions=rows * max_length, tokens=kept, lost_tokens=every - kept
        ),
        "wrapped": joined,
        "torchtune_split": joined,
    }
