"""The answers that are made from files: ``data profile`` and ``validate``."""

from __future__ import annotations

from pydantic import Field, FiniteFloat

from tuneplan.contract.parts import (
    Assumption,
    Bytes,
    Fraction,
    Header,
    MoneyRange,
    Notice,
    Number,
    Part,
    Range,
)


class ProfiledFile(Part):
    """One file of the data."""

    path: str
    format: str
    bytes: Bytes
    rows_ok: int
    rows_bad: int
    blank_lines: int = 0
    shape: str | None = None


class BadRow(Part):
    """A row that is no sample."""

    path: str
    line: int | None = None
    column: int | None = None
    code: str
    message: str


class Tokenizer(Part):
    """What counted the tokens."""

    name: str
    source: str
    vocab_size: int | None = None


class TokenTotals(Part):
    """Tokens in all, those whose loss counts, those of images."""

    all: Range
    trained: Range | None = None
    image: Range | None = None


class Bin(Part):
    """Samples with ``low <= tokens < high``."""

    low: Number
    high: Number
    count: int


class Lengths(Part):
    """Lengths of the samples in tokens, before truncation."""

    mean: FiniteFloat
    min: Number | None = None
    p5: Number
    p25: Number
    p50: Number
    p75: Number
    p90: Number
    p95: Number
    p99: Number
    max: Number
    histogram: list[Bin]


class Pictures(Part):
    """Pictures of the rows: how many, and of how many the size is not known.

    ``rule`` names how their tokens are counted, null where that is not known for the model.
    """

    count: int
    unsized: int
    rule: str | None = None
    source: str | None = None


class LengthPrice(Part):
    """What a job costs at one ``max_length``; ``problem`` says why it cannot be told."""

    total_s: Range | None = None
    accelerator_hours: Range | None = None
    cost: MoneyRange | None = None
    fit: str | None = None
    problem: str | None = None


class AtMaxLength(Part):
    """What one ``max_length`` would do. Efficiencies and padding by strategy.

    ``packed_lost_tokens_fraction``: tokens that a way of packing cuts off or leaves out.
    ``computed_tokens``: positions of one epoch, padding among them, by padding and ``packed``.
    """

    max_length: int
    truncated_samples_fraction: Fraction
    truncated_tokens_fraction: Fraction
    packed_efficiency: dict[str, Fraction | None]
    packed_lost_tokens_fraction: dict[str, Fraction] = Field(default_factory=dict)
    padding_fraction: dict[str, Fraction | None]
    computed_tokens: dict[str, Number] = Field(default_factory=dict)
    worst_batch_tokens: int | None = None
    price: LengthPrice | None = None


class Alternative(Part):
    """Another ``max_length``, what speaks for it, and what it costs: tokens, and on a job."""

    max_length: int
    reason: str
    computed_tokens: dict[str, Number] = Field(default_factory=dict)
    price: LengthPrice | None = None


class Recommended(Part):
    """The ``max_length`` to take, and what it costs: tokens of an epoch, and on a job."""

    max_length: int
    reason: str
    computed_tokens: dict[str, Number] = Field(default_factory=dict)
    price: LengthPrice | None = None
    alternatives: list[Alternative]


class DataStorage(Part):
    """Bytes as text and as stored tokens."""

    raw_bytes: Bytes
    tokenised_bytes: Bytes | None = None


class Interval(Part):
    """Where a figure of the whole set lies with the stated confidence."""

    low: FiniteFloat
    likely: FiniteFloat
    high: FiniteFloat


class Sampled(Part):
    """What was read of a large set, and how sure its figures are.

    The intervals are of ``confidence``; ranges elsewhere in the answer stay P10 to P90.
    ``rows_ok`` and ``rows_bad`` of the files count what was read.
    """

    read_bytes: Bytes
    total_bytes: Bytes
    num_cells: int
    num_cells_read: int
    confidence: Fraction
    num_samples: Interval
    tokens: Interval
    trained_tokens: Interval
    mean_length: Interval


class DataProfileAnswer(Header):
    """The answer of ``data profile``.

    ``sampled``: only a part was read. ``exact``: every row was counted by the real tokenizer.
    ``bad_rows`` are the first ones, ``bad_rows_by_code`` counts all. A preference pair is one
    sample of two sequences (``sequences_per_sample``), and lengths are those of sequences.
    ``padding_fraction`` and ``worst_batch_tokens`` are for ``per_device_train_batch_size``.
    """

    files: list[ProfiledFile]
    bad_rows: list[BadRow]
    bad_rows_by_code: dict[str, int] = Field(default_factory=dict)
    shape: str | None
    tokenizer: Tokenizer | None
    exact: bool
    sampled: bool
    sampling: Sampled | None = None
    num_samples: int
    sequences_per_sample: int = 1
    tokens: TokenTotals
    pictures: Pictures | None = None
    length: Lengths | None
    per_device_train_batch_size: int | None = None
    at_max_length: list[AtMaxLength]
    recommended: Recommended | None
    duplicates: int | None
    empty: int
    storage: DataStorage
    assumptions: list[Assumption] = Field(default_factory=list)
    warnings: list[Notice] = Field(default_factory=list)


class Predicted(Part):
    """Figures that are predicted for a measured run."""

    peak_bytes: Range | None = None
    peak_reserved_bytes: Range | None = None
    peak_device_bytes: Range | None = None
    tokens_per_s_per_accelerator: Range | None = None
    real_tokens_per_s_per_accelerator: Range | None = None
    step_s: Range | None = None


class Compared(Part):
    """A measured figure beside its prediction."""

    quantity: str
    measured: FiniteFloat
    likely: FiniteFloat
    error_fraction: FiniteFloat
    inside_interval: bool
    probability: Fraction | None = None


class PredictedTerm(Part):
    """A term of the likely peak (bytes) or of the likely step (seconds)."""

    kind: str
    value: FiniteFloat


class NearestRuns(Part):
    """The measured runs closest to a job: how many by source, and what they share with it."""

    runs: dict[str, int]
    shared: list[str]


class ValidatedRow(Part):
    """One measured run; ``extra`` are the columns of the file that are not read."""

    id: str
    status: str = Field(json_schema_extra={"enum": ["predicted", "skipped"]})
    reason: str | None = None
    message: str | None = None
    predicted: Predicted | None = None
    compared: list[Compared] = Field(default_factory=list)
    verdict: str | None = None
    out_of_memory: bool | None = None
    extra: dict[str, str] = Field(default_factory=dict)
    memory_terms: list[PredictedTerm] = Field(default_factory=list)
    time_terms: list[PredictedTerm] = Field(default_factory=list)
    nearest_memory: NearestRuns | None = None
    nearest_time: NearestRuns | None = None


class ErrorSummary(Part):
    """Errors of one quantity over a group of runs; a blank group name means all."""

    quantity: str
    method: str | None = None
    framework: str | None = None
    accelerator: str | None = None
    source: str | None = None
    cards: str | None = None
    size: str | None = None
    count: int
    median_abs_error_fraction: FiniteFloat | None = None
    p90_abs_error_fraction: FiniteFloat | None = None
    bias_fraction: FiniteFloat | None = None
    coverage_fraction: Fraction | None = None
    median_width_fraction: FiniteFloat | None = None
    num_sources: int | None = None
    source_median_abs_error_fraction: FiniteFloat | None = None
    source_median_p90_abs_error_fraction: FiniteFloat | None = None


class Skipped(Part):
    """Runs that were not predicted for one reason, and how many of them would have counted."""

    reason: str
    example: str | None = None
    count: int
    counted: int | None = None


class Verdicts(Part):
    """Verdicts beside what happened."""

    num_ran: int
    num_out_of_memory: int
    missed_oom: int
    false_oom: int
    tight: int
    missed_oom_rate: Fraction | None = None
    false_oom_rate: Fraction | None = None
    tight_rate: Fraction | None = None


class ValidateAnswer(Header):
    """The answer of ``validate``."""

    path: str
    complete_path: str | None = None
    rows: list[ValidatedRow]
    summary: list[ErrorSummary]
    verdicts: Verdicts
    skipped: list[Skipped]
    warnings: list[Notice] = Field(default_factory=list)
