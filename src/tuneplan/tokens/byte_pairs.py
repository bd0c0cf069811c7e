"""Byte-pair vocabularies (tiktoken ranks, Mistral's tekken): built from files, never downloaded."""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tuneplan.errors import UnreadableFile
from tuneplan.language import message
from tuneplan.tokens.encoders import Encoded, Rendered, TokenCount, library, marked, num_threads
from tuneplan.tokens.families import Family, SplitPattern

Found = TypeVar("Found")


class TiktokenEncoder:
    """Byte-pair ranks with a split pattern; nothing is downloaded."""

    def __init__(
        self, *, ranks: dict[bytes, int], pattern: str, specials: dict[str, int], form: str | None
    ) -> None:
        import numpy as np

        self._encoding = library("tiktoken").Encoding(
            "tuneplan", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials
        )
        self._specials = frozenset(specials)
        self._form = form
        # Bytes of each token, so that a byte offset finds its token without decoding.
        self._token_bytes = np.zeros(self._encoding.n_vocab, dtype=np.int64)
        for token, rank in ranks.items():
            self._token_bytes[rank] = len(token)
        for special, rank in specials.items():
            self._token_bytes[rank] = len(special.encode())

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary."""
        return int(self._encoding.n_vocab)

    def has_token(self, text: str) -> bool:
        """Whether ``text`` is one special token."""
        return text in self._specials

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        """Counts of every sequence, in order."""
        return self._each(self._count, sequences)

    def encode(self, sequences: Sequence[Rendered]) -> list[Encoded]:
        """Tokens of every sequence, in order."""
        return self._each(self._encode, sequences)

    @staticmethod
    def _each(function: Callable[[Rendered], Found], sequences: Sequence[Rendered]) -> list[Found]:
        threads = num_threads()
        if threads == 1 or len(sequences) < threads:
            return [function(sequence) for sequence in sequences]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(function, sequences, chunksize=16))

    def _count(self, sequence: Rendered) -> TokenCount:
        ids, ranges = self._tokens(sequence)
        return TokenCount(len(ids), sum(last - first for first, last in ranges))

    def _encode(self, sequence: Rendered) -> Encoded:
        return marked(*self._tokens(sequence))

    def _tokens(self, sequence: Rendered) -> tuple[Any, list[tuple[int, int]]]:
        """The tokens, and the learned ranges of them."""
        import numpy as np

        if self._form is not None:
            sequence = normalized(sequence, self._form)
        ids = self._encoding.encode_to_numpy(
            sequence.text, allowed_special=self._specials, disallowed_special=()
        )
        if sequence.is_uniform:
            return ids, [(0, len(ids))] if sequence.spans else []
        ends = np.cumsum(self._token_bytes[ids])
        # A token belongs to a span when it ends in it.
        found = np.searchsorted(ends, _byte_offsets(sequence), side="right").tolist()
        return ids, list(zip(found[0::2], found[1::2], strict=True))


def _byte_offsets(sequence: Rendered) -> list[int]:
    bounds = [offset for span in sequence.spans for offset in span]
    if sequence.text.isascii():
        return bounds
    offsets, at, position = [], 0, 0
    for bound in bounds:
        at += len(sequence.text[position:bound].encode())
        position = bound
        offsets.append(at)
    return offsets


def normalized(sequence: Rendered, form: str) -> Rendered:
    """The sequence in a Unicode normal form, its spans moved along."""
    if sequence.text.isascii() or unicodedata.is_normalized(form, sequence.text):  # type: ignore[arg-type]
        return sequence
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    at = position = 0
    for start, end in sequence.spans:
        before = unicodedata.normalize(form, sequence.text[position:start])  # type: ignore[arg-type]
        inside = unicodedata.normalize(form, sequence.text[start:end])  # type: ignore[arg-type]
        pieces += [before, inside]
        spans.append((at + len(before), at + len(before) + len(inside)))
        at, position = spans[-1][1], end
    pieces.append(unicodedata.normalize(form, sequence.text[position:]))  # type: ignore[arg-type]
    return Rendered("".join(pieces), tuple(spans))


def read_ranks(path: Path) -> dict[bytes, int]:
    """The ranks of a ``.tiktoken`` file (or Llama 3's ``tokenizer.model``).

    Raises:
        UnreadableFile: A line is not ``base64 rank``; says which.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError:
            raise UnreadableFile(
                message(
                    "broken_ranks",
                    "{path}, line {line}: not a token in base64, a space and its rank",
                    path=str(path),
                    line=number,
                ),
                path=str(path),
                line=number,
            ) from None
    return ranks


def tiktoken_encoder(path: Path, pattern: SplitPattern, family: Family | None) -> TiktokenEncoder:
    """An encoder from a file of ranks; special tokens follow the ranks, in the family's order."""
    ranks = read_ranks(path)
    names = list(family.specials) if family else []
    missing = (family.num_specials if family else 0) - len(names)
    names += [f"<|unused_special_{number}|>" for number in range(missing)]
    specials = {name: len(ranks) + number for number, name in enumerate(names)}
    return TiktokenEncoder(
        ranks=ranks, pattern=pattern.value, specials=specials, form=pattern.normalization
    )


def tekken_encoder(path: Path, family: Family | None) -> TiktokenEncoder:
    """An encoder from Mistral's ``tekken*.json``: its own pattern, specials first.

    Source: mistral-common 1.13.1 ``tokens/tokenizers/tekken.py``: the vocabulary is cut to
    ``default_vocab_size`` minus the special tokens.
    """
    table = json.loads(path.read_text("utf-8"))
    config = table["config"]
    num_specials = config["default_num_special_tokens"]
    kept = table["vocab"][: config["default_vocab_size"] - num_specials]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in kept}
    names = [entry["token_str"] for entry in table.get("special_tokens") or ()]
    names = names or list(family.specials if family else ())
    names += [f"<SPECIAL_{number}>" for number in range(len(names), num_specials)]
    specials = {name: len(ranks) + number for number, name in enumerate(names)}
    return TiktokenEncoder(ranks=ranks, pattern=config["pattern"], specials=specials, form=None)
