"""Counting tokens with the real libraries: tiktoken, tokenizers, sentencepiece.

Each encoder counts whole samples in batches and says how many of the tokens lie in given character
spans (the learned ones). Libraries are imported when the first tokenizer is opened.
"""

from __future__ import annotations

import base64
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from tuneplan.errors import MissingExtra, UnreadableFile
from tuneplan.language import message
from tuneplan.tokens.families import Family, SplitPattern

_THREADS: Final = min(8, os.cpu_count() or 1)
_PURPOSE: Final = "counting tokens"


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of one sequence as the model sees it, and where the learned parts lie.

    Attributes:
        spans: ``(start, end)`` in characters, ascending, not overlapping.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of one sequence: all, and those that are learned."""

    total: int
    trained: int


class Encoder(Protocol):
    """What counts tokens."""

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, special tokens included (a model's matrix may be larger)."""

    def has_token(self, text: str) -> bool:
        """Whether ``text`` is one special token."""

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        """Counts of every sequence, in order; special tokens in the text count as one."""


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(extra="tokens", purpose=_PURPOSE) from None


# --- tiktoken ----------------------------------------------------------------------------------


class TiktokenEncoder:
    """Byte-pair ranks with a split pattern; nothing is downloaded."""

    def __init__(
        self, *, ranks: dict[bytes, int], pattern: str, specials: dict[str, int], form: str | None
    ) -> None:
        import numpy as np

        self._encoding = _library("tiktoken").Encoding(
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
        return int(self._encoding.n_vocab)

    def has_token(self, text: str) -> bool:
        return text in self._specials

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        if len(sequences) < _THREADS:
            return [self._count(sequence) for sequence in sequences]
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(self._count, sequences, chunksize=16))

    def _count(self, sequence: Rendered) -> TokenCount:
        import numpy as np

        if self._form is not None:
            sequence = normalized(sequence, self._form)
        ids = self._encoding.encode_to_numpy(
            sequence.text, allowed_special=self._specials, disallowed_special=()
        )
        if not sequence.spans:
            return TokenCount(len(ids), 0)
        if sequence.spans == ((0, len(sequence.text)),):
            return TokenCount(len(ids), len(ids))
        ends = np.cumsum(self._token_bytes[ids])
        bounds = _byte_offsets(sequence)
        # A token belongs to a span when it ends in it.
        found = np.searchsorted(ends, bounds, side="right")
        return TokenCount(len(ids), int((found[1::2] - found[0::2]).sum()))


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


# --- tokenizers --------------------------------------------------------------------------------


class TokenizersEncoder:
    """A ``tokenizer.json``, by Hugging Face's library."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = _library("tokenizers").Tokenizer.from_file(str(path))
        except MissingExtra:
            raise
        except Exception as error:  # the library raises bare Exception
            raise UnreadableFile(
                message(
                    "broken_tokenizer",
                    "{path} is not a tokenizer.json: {reason}",
                    path=str(path),
                    reason=str(error),
                ),
                path=str(path),
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._added = {
            token.content for token in self._tokenizer.get_added_tokens_decoder().values()
        }

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def has_token(self, text: str) -> bool:
        return text in self._added

    def starts_with(self) -> str:
        """The special token that the tokenizer itself puts before a text, or nothing."""
        tokens = self._tokenizer.encode("", add_special_tokens=True).tokens
        return tokens[0] if tokens and tokens[0] in self._added else ""

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        encoded = self._tokenizer.encode_batch(
            [sequence.text for sequence in sequences], add_special_tokens=False
        )
        return [
            TokenCount(len(one), _in_spans(one, sequence))
            for one, sequence in zip(encoded, sequences, strict=True)
        ]


def _in_spans(encoded: Any, sequence: Rendered) -> int:
    total = len(encoded)
    if sequence.spans == ((0, len(sequence.text)),):
        return total
    num_trained = 0
    for start, end in sequence.spans:
        first = _token_at(encoded, start, len(sequence.text), total)
        num_trained += _token_at(encoded, end, len(sequence.text), total) - first
    return num_trained


def _token_at(encoded: Any, position: int, length: int, total: int) -> int:
    """Index of the first token that starts at or after a character."""
    while position < length:
        token = encoded.char_to_token(position)
        if token is not None:
            return int(token)
        position += 1  # a character without a token, e.g. a stripped space
    return total


# --- sentencepiece -----------------------------------------------------------------------------


class SentencePieceEncoder:
    """A sentencepiece ``tokenizer.model``; control tokens in the text are split off by us.

    The library encodes control tokens as plain text, Hugging Face's wrapper splits on them first;
    so do we.
    """

    def __init__(self, path: Path) -> None:
        library = _library("sentencepiece")
        try:
            self._model = library.SentencePieceProcessor(model_file=str(path))
        except (RuntimeError, OSError) as error:
            raise UnreadableFile(
                message(
                    "broken_sentencepiece",
                    "{path} is not a sentencepiece model: {reason}",
                    path=str(path),
                    reason=str(error),
                ),
                path=str(path),
            ) from error
        self._controls = {
            self._model.id_to_piece(number)
            for number in range(self._model.vocab_size())
            if self._model.is_control(number)
        }
        longest_first = sorted(self._controls, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    @property
    def vocab_size(self) -> int:
        return int(self._model.vocab_size())

    def has_token(self, text: str) -> bool:
        return text in self._controls

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        plans = [self._pieces(sequence) for sequence in sequences]
        texts = [text for plan in plans for text, _ in plan]
        lengths = iter(
            len(ids) for ids in self._model.encode(texts, out_type=int, num_threads=_THREADS)
        )
        counts = []
        for plan in plans:
            sizes = [
                (1 if text in self._controls else next_length, sign)
                for (text, sign), next_length in zip(plan, lengths, strict=False)
            ]
            total = sum(size for size, sign in sizes if sign[0])
            trained = sum(size * sign[1] for size, sign in sizes)
            counts.append(TokenCount(total, trained))
        return counts

    def _pieces(self, sequence: Rendered) -> list[tuple[str, tuple[bool, int]]]:
        """Texts to encode, each with (counts in the total, +1/0/-1 in the learned part)."""
        plan: list[tuple[str, tuple[bool, int]]] = []
        position = 0
        for text in self._split.split(sequence.text):
            end = position + len(text)
            if text:
                plan += self._piece(text, position, sequence.spans)
            position = end
        return plan

    @staticmethod
    def _piece(
        text: str, position: int, spans: Iterable[tuple[int, int]]
    ) -> list[tuple[str, tuple[bool, int]]]:
        end = position + len(text)
        sign, parts = 0, []
        for start, stop in spans:
            if stop <= position or start >= end:
                continue
            # Tokens up to `stop` less tokens up to `start`; the whole piece is encoded anyway.
            if stop >= end:
                sign += 1
            else:
                parts.append((text[: stop - position], (False, 1)))
            if start > position:
                parts.append((text[: start - position], (False, -1)))
        return [(text, (True, sign)), *parts]


# --- No tokenizer ------------------------------------------------------------------------------

# Han, kana, Hangul, full-width forms: scripts that are written without spaces.
_DENSE: Final = re.compile("[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
CHARACTERS_PER_TOKEN: Final = 4.0
DENSE_CHARACTERS_PER_TOKEN: Final = 1.5


class ApproximateEncoder:
    """Characters per token instead of a tokenizer; only where the user asks for it."""

    vocab_size = 0

    def has_token(self, text: str) -> bool:
        return text.startswith("<|")

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        return [
            TokenCount(
                _approximate(sequence.text),
                sum(_approximate(sequence.text[start:end]) for start, end in sequence.spans),
            )
            for sequence in sequences
        ]


def _approximate(text: str) -> int:
    if not text:
        return 0
    dense = len(_DENSE.findall(text))
    tokens = dense / DENSE_CHARACTERS_PER_TOKEN + (len(text) - dense) / CHARACTERS_PER_TOKEN
    return max(1, round(tokens))
