"""The profile of a data set: every fact of it that a plan needs, as values.

``profiling.profile_files`` makes one, ``saving`` writes it to a file that a job can name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from tuneplan.frozen import dataclass
from tuneplan.language import Message
from tuneplan.spec.answer import Assumption, Basis, Estimate, Notice
from tuneplan.spec.data import TokenStatistics
from tuneplan.tokens.lengths import (
    MAX_KEPT,
    QUANTILES,
    evenly_selected,
    num_tokens,
    quantiles_of,
    without_evenly,
)
from tuneplan.tokens.rows import BadRow
from tuneplan.tokens.sampling import Sampling


def _none() -> Mapping[str, float]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One file of the data set.

    Attributes:
        format: ``jsonl``, ``json``, ``csv``, ``parquet``..., and the same with ``.gz``, ``.zst``.
        shape: Layout of its rows, None where no row is good.
        columns: The keys that hold prompt and answer in a prompt-completion file.
        size_bytes: On disk.
    """

    path: str
    format: str
    size_bytes: int
    shape: str | None
    rows_ok: int
    rows_bad: int
    blank_lines: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What counted; ``vocab_size`` None for an average of characters."""

    name: str
    source: str
    vocab_size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTotals:
    """Tokens of the whole set: all, those that are learned, those of pictures (None = unknown)."""

    all: Estimate
    trained: Estimate
    image: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of the histogram: sequences with ``low <= length < high`` tokens."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFacts:
    """Length of a sequence in tokens, before truncation."""

    mean: float
    min: int
    quantiles: Mapping[float, float]
    max: int
    histogram: tuple[Bin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtMaxLength:
    """What one ``max_length`` does to the set.

    Attributes:
        truncated_samples_fraction: Sequences longer than it.
        truncated_tokens_fraction: Tokens cut off.
        packed_efficiency: By packing (``packings.WAYS_OF_PACKING``): share of the rows' positions
            that hold a token.
        padding_fraction: By padding (``max_length``, ``longest``, ``grouped``): share of computed
            positions that hold none.
        worst_batch_tokens: Positions of the largest batch there can be: sequences of a batch x
            the longest one. What memory must survive.
        packed_lost_tokens_fraction: By packing: tokens that are cut off, or of samples left out.
        computed_tokens: Positions of one epoch, padding among them, by padding, and ``packed`` by
            best fit decreasing.
    """

    max_length: int
    truncated_samples_fraction: float
    truncated_tokens_fraction: float
    packed_efficiency: Mapping[str, float]
    padding_fraction: Mapping[str, float]
    worst_batch_tokens: int
    packed_lost_tokens_fraction: Mapping[str, float] = field(default_factory=_none)
    computed_tokens: Mapping[str, float] = field(default_factory=_none)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another ``max_length``, what speaks for it, and the positions that one epoch computes."""

    max_length: int
    reason: Message
    computed_tokens: Mapping[str, float] = field(default_factory=_none)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The ``max_length`` to train with, and the positions that one epoch computes."""

    max_length: int
    reason: Message
    alternatives: tuple[Alternative, ...] = ()
    computed_tokens: Mapping[str, float] = field(default_factory=_none)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bytes on disk: the files as they are, and as tokens."""

    raw_bytes: int
    tokenised_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFacts:
    """Pictures of the set.

    Attributes:
        count: Pictures that the rows refer to.
        unsized: Those whose size is not known; their tokens are not in the lengths.
        rule: Which models count pictures so; None where no rule is known for the model.
        source: Where the rule is from.
    """

    count: int
    unsized: int
    rule: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProfile:
    """Everything that is known of a data set.

    Attributes:
        bad_rows: The first bad rows with their lines; ``bad_rows_by_code`` counts all of them.
        shape: Layout of the rows, ``mixed`` where files differ.
        num_samples: Good rows, or threads of trees. A preference pair is one sample of two
            sequences.
        sequences_per_sample: 2 for preference pairs, else 1.
        duplicates: Good rows whose text stood in an earlier row; they stay in the totals. None
            where only a part was read.
        empty: Good rows with nothing to learn (a blank answer); they stay in the totals.
        length_counts: ``(length, number of sequences)``, ascending: the exact lengths.
        sampled: Whether only a part was read; ``rows_ok`` of the files counts that part.
        sampling: What was read then, and how sure the figures are.
        pictures: None where there are none.
        per_device_train_batch_size: Samples of a batch behind ``padding_fraction``.
        tokens_per_s: How fast the tokenizer ran; not a fact of the data.
    """

    files: tuple[FileFacts, ...]
    bad_rows: tuple[BadRow, ...]
    bad_rows_by_code: Mapping[str, int]
    shape: str
    tokenizer: TokenizerFacts
    num_samples: int
    tokens: TokenTotals
    length: LengthFacts
    at_max_length: tuple[AtMaxLength, ...]
    recommended: Recommendation
    duplicates: int | None
    empty: int
    storage: Storage
    length_counts: tuple[tuple[int, int], ...] = field(repr=False)
    sequences_per_sample: int = 1
    pictures: PictureFacts | None = None
    per_device_train_batch_size: int = 8
    sampled: bool = False
    sampling: Sampling | None = None
    assumptions: tuple[Assumption, ...] = ()
    notices: tuple[Notice, ...] = ()
    tokens_per_s: float | None = field(default=None, compare=False)

    @property
    def exact(self) -> bool:
        """Whether every row was counted with a real tokenizer."""
        return not self.sampled and self.tokens.all.basis is Basis.MEASURED

    @property
    def rows_bad(self) -> int:
        """Rows that are not samples."""
        return sum(self.bad_rows_by_code.values())

    def statistics(self, *, eval_fraction: float = 0.0) -> TokenStatistics:
        """The lengths as the estimate wants them, evaluation samples taken off.

        ``lengths`` ascend; of more than a million an even selection stands for all. Evaluation
        takes ``ceil(eval_fraction x samples)`` samples (as scikit-learn's and ``datasets``'
        ``train_test_split`` round), spread evenly over the lengths, so that the training set keeps
        the distribution whatever the trainer's seed.
        """
        num_eval = math.ceil(eval_fraction * self.num_samples) if eval_fraction > 0 else 0
        taken = num_eval * self.sequences_per_sample
        counts = without_evenly(self.length_counts, taken)
        quantiles = quantiles_of(counts, (*QUANTILES, 1.0))
        return TokenStatistics(
            num_samples=self.num_samples - num_eval,
            total_tokens=num_tokens(counts),
            quantiles=MappingProxyType(quantiles),
            trained_tokens_fraction=self.tokens.trained.likely / max(1.0, self.tokens.all.likely),
            num_eval_samples=num_eval,
            raw_bytes=self.storage.raw_bytes,
            lengths=tuple(evenly_selected(counts, MAX_KEPT).tolist()),
            sequences_per_sample=self.sequences_per_sample,
            basis=Basis.MEASURED if self.exact else Basis.ASSUMED,
            source=f"{', '.join(file.path for file in self.files)}; {self.tokenizer.source}",
        )
