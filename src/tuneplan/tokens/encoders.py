"""What counts tokens: the interface, Hugging Face's ``tokenizers``, and an average of characters.

Each encoder counts whole sequences in batches and says how many of the tokens lie in given
character spans (the learned ones). Libraries are imported when the first tokenizer is opened.
Byte-pair ranks are in ``byte_pairs.py``, sentencepiece in ``sentence_pieces.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from zipfile import ZipFile

from tuneplan.errors import MissingExtra, NotSupported, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_threads = min(8, os.cpu_count() or 1)
_PURPOSE: Final = "counting tokens"


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of one sequence as the model sees it, and where the learned parts lie.

    Attributes:
        spans: ``(start, end)`` in characters, ascending, not overlapping.
        image_tokens: Tokens of the pictures with their marks, as far as their sizes are known.
        more_tokens: Those among them that are not in the text: a placeholder stands there.
        unsized_pictures: Pictures whose size is not known.
        assumed_pictures: Pictures that are taken to be of the usual size.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()
    image_tokens: int = 0
    more_tokens: int = 0
    unsized_pictures: int = 0
    assumed_pictures: int = 0

    @property
    def is_uniform(self) -> bool:
        """Whether all of the text is learned, or nothing."""
        return not self.spans or self.spans == ((0, len(self.text)),)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of one sequence: all, and those that are learned."""

    total: int
    trained: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """The tokens of one sequence, and which of them are learned.

    Attributes:
        ids: int32.
        trained: bool, one for each token.
    """

    ids: NDArray[np.int32]
    trained: NDArray[np.bool_]


def marked(ids: Any, ranges: Iterable[tuple[int, int]]) -> Encoded:
    """Tokens with those in the ranges marked as learned."""
    import numpy as np

    found = np.asarray(ids, dtype=np.int32)
    trained = np.zeros(len(found), dtype=np.bool_)
    for first, last in ranges:
        trained[first:last] = True
    return Encoded(found, trained)


class Encoder(Protocol):
    """What counts tokens."""

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, special tokens included (a model's matrix may be larger)."""

    def has_token(self, text: str) -> bool:
        """Whether ``text`` is one special token."""

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        """Counts of every sequence, in order; special tokens in the text count as one."""

    def encode(self, sequences: Sequence[Rendered]) -> list[Encoded]:
        """Tokens of every sequence, in order: as many, and as many learned, as ``count`` says."""


def num_threads() -> int:
    """Threads that an encoder may use."""
    return _threads


def use_threads(number: int) -> None:
    """Set the threads that encoders may use, e.g. one in each of many processes."""
    global _threads
    _threads = number


def library(name: str) -> Any:
    """A tokenizer library, imported now; raises MissingExtra with the install command."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(extra="tokens", purpose=_PURPOSE) from None


def _unzipped(path: Path) -> str:
    with ZipFile(path) as archive:
        return archive.read("tokenizer.json").decode()


class TokenizersEncoder:
    """A ``tokenizer.json``, or one in a ``.zip``, by Hugging Face's library."""

    def __init__(self, path: Path) -> None:
        try:
            kind = library("tokenizers").Tokenizer
            if path.suffix == ".zip":
                self._tokenizer = kind.from_str(_unzipped(path))
            else:
                self._tokenizer = kind.from_file(str(path))
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
        """Entries of the vocabulary."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def has_token(self, text: str) -> bool:
        """Whether ``text`` is one special token."""
        return text in self._added

    def starts_with(self) -> str:
        """The special token that the tokenizer itself puts before a text, or nothing."""
        tokens = self._tokenizer.encode("", add_special_tokens=True).tokens
        return tokens[0] if tokens and tokens[0] in self._added else ""

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        """Counts of every sequence, in order."""
        return [
            TokenCount(len(one), sum(last - first for first, last in _ranges(one, sequence)))
            for one, sequence in zip(self._encoded(sequences), sequences, strict=True)
        ]

    def encode(self, sequences: Sequence[Rendered]) -> list[Encoded]:
        """Tokens of every sequence, in order."""
        return [
            marked(one.ids, _ranges(one, sequence))
            for one, sequence in zip(self._encoded(sequences), sequences, strict=True)
        ]

    def _encoded(self, sequences: Sequence[Rendered]) -> list[Any]:
        # Not `encode_batch_fast`: with tokenizers 0.23 it takes a quarter longer.
        texts = [sequence.text for sequence in sequences]
        found: list[Any] = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return found


def _ranges(encoded: Any, sequence: Rendered) -> list[tuple[int, int]]:
    """The learned parts in tokens."""
    total = len(encoded)
    if sequence.is_uniform:
        return [(0, total)] if sequence.spans else []
    length = len(sequence.text)
    return [
        (_token_at(encoded, start, length, total), _token_at(encoded, end, length, total))
        for start, end in sequence.spans
    ]


def _token_at(encoded: Any, position: int, length: int, total: int) -> int:
    """Index of the first token that starts at or after a character."""
    while position < length:
        token = encoded.char_to_token(position)
        if token is not None:
            return int(token)
        position += 1  # a character without a token, e.g. a stripped space
    return total


# Han, kana, Hangul, full-width forms: scripts that are written without spaces.
_DENSE: Final = re.compile("[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
CHARACTERS_PER_TOKEN: Final = 4.0
DENSE_CHARACTERS_PER_TOKEN: Final = 1.3
# True tokens over counted ones, lowest and highest of twelve: the tokenizers of Qwen2.5,
# DeepSeek-V3, Mistral-7B and Mistral-Nemo on English prose, Chinese prose, and
# examples/support_chat.jsonl. Prose is below 1, logs and tables (digits) far above.
APPROXIMATE_FACTORS: Final = (0.79, 1.78)
APPROXIMATE_SOURCE: Final = (
    "four tokenizers on the answers of LLaMA-Factory's alpaca_en_demo and alpaca_zh_demo and on "
    "examples/support_chat.jsonl"
)


class ApproximateEncoder:
    """Characters per token instead of a tokenizer; only where the user asks for it."""

    vocab_size = 0

    def has_token(self, text: str) -> bool:
        """Whether ``text`` is one special token."""
        return text.startswith("<|")

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        """Counts of every sequence, in order."""
        return [
            TokenCount(
                _approximate(sequence.text),
                sum(_approximate(sequence.text[start:end]) for start, end in sequence.spans),
            )
            for sequence in sequences
        ]

    def encode(self, sequences: Sequence[Rendered]) -> list[Encoded]:  # noqa: ARG002 - none has any
        """Refused: an average has no tokens."""
        raise NotSupported(
            message(
                "approximate_has_no_tokens",
                "approximate counts characters and has no tokens to write; name a tokenizer",
            )
        )


def _approximate(text: str) -> int:
    if not text:
        return 0
    dense = len(_DENSE.findall(text))
    tokens = dense / DENSE_CHARACTERS_PER_TOKEN + (len(text) - dense) / CHARACTERS_PER_TOKEN
    return max(1, round(tokens))
