"""Sentencepiece models (Llama 2, Mistral 7B)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuneplan.errors import UnreadableFile
from tuneplan.language import message
from tuneplan.tokens.encoders import Encoded, Rendered, TokenCount, library, marked, num_threads


class SentencePieceEncoder:
    """A sentencepiece ``tokenizer.model``; control tokens in the text are split off by us.

    The library encodes control tokens as plain text, Hugging Face's wrapper splits on them first;
    so do we.
    """

    def __init__(self, path: Path) -> None:
        sentencepiece = library("sentencepiece")
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
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
        """Entries of the vocabulary."""
        return int(self._model.vocab_size())

    def has_token(self, text: str) -> bool:
        """Whether ``text`` is one special token."""
        return text in self._controls

    def count(self, sequences: Sequence[Rendered]) -> list[TokenCount]:
        """Counts of every sequence, in order."""
        plans = [self._pieces(sequence) for sequence in sequences]
        texts = [text for plan in plans for text, _ in plan]
        lengths = iter(
            len(ids) for ids in self._model.encode(texts, out_type=int, num_threads=num_threads())
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

    def encode(self, sequences: Sequence[Rendered]) -> list[Encoded]:
        """Tokens of every sequence, in order."""
        return [self._encode(sequence) for sequence in sequences]

    def _encode(self, sequence: Rendered) -> Encoded:
        ids: list[int] = []
        ranges: list[tuple[int, int]] = []
        position = 0
        for text in self._split.split(sequence.text):
            end = position + len(text)
            before = len(ids)
            if text:
                ids += (
                    [self._model.piece_to_id(text)]
                    if text in self._controls
                    else self._model.encode(text, out_type=int)
                )
            for start, stop in sequence.spans:
                if start < end and stop > position:
                    first = self._num_before(text, start - position, 0)
                    last = self._num_before(text, stop - position, len(ids) - before)
                    ranges.append((before + first, before + last))
            position = end
        return marked(ids, ranges)

    def _num_before(self, text: str, position: int, outside: int) -> int:
        """Tokens of a piece up to a character in it; ``outside`` where it does not lie inside."""
        if 0 < position < len(text):
            return len(self._model.encode(text[:position], out_type=int))
        return outside

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
