"""The answer of ``data tokenize``."""

from __future__ import annotations

from pydantic import Field

from tuneplan.contract.measured import BadRow, ProfiledFile, Tokenizer
from tuneplan.contract.parts import Assumption, Bytes, Fraction, Header, Notice, Part


class ShardSettings(Part):
    """What the shards are like; samples are packed within ``packed_within``."""

    format: str
    max_length: int | None
    packing: str
    packed_within: str
    too_long: str
    learned: str
    shard_bytes: Bytes


class TokenizerOfShards(Tokenizer):
    """What made the tokens; ``fingerprint`` changes with vocabulary, specials and template."""

    fingerprint: str


class Shard(Part):
    """One file of rows of tokens."""

    name: str
    rows: int
    sequences: int
    tokens: int
    bytes: Bytes
    sha256: str


class DataTokenizeAnswer(Header):
    """The answer of ``data tokenize``.

    ``labels`` counts tokens that have a label, ``cut_tokens`` those that are in no row because
    their sample is longer than ``max_length``. ``num_resumed`` shards were there from an earlier
    run. ``packed_efficiency`` is the share of positions that hold a token, null without packing.
    """

    output: str
    format: str
    settings: ShardSettings
    tokenizer: TokenizerOfShards
    files: list[ProfiledFile]
    num_samples: int
    num_sequences: int
    num_rows: int
    tokens: int
    labels: int
    cut_sequences: int
    cut_tokens: int
    dropped_sequences: int
    empty_sequences: int
    packed_efficiency: Fraction | None
    size_bytes: Bytes
    shards: list[Shard]
    num_resumed: int
    bad_rows: list[BadRow]
    bad_rows_by_code: dict[str, int] = Field(default_factory=dict)
    assumptions: list[Assumption] = Field(default_factory=list)
    warnings: list[Notice] = Field(default_factory=list)
