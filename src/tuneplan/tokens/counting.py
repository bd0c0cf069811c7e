"""Rows to counts: recognise, render, count, add up. What every worker does with its rows.

A ``RowCounter`` can be pickled, so the same counts come from one process, from many, or from a
cluster; ``Totals`` of parts merge into those of the whole.
"""

from __future__ import annotations

import copyreg
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

from tuneplan.language import message
from tuneplan.tokens.encoders import Rendered, TokenCount
from tuneplan.tokens.multimodal import num_other_media
from tuneplan.tokens.pictures import Pictures
from tuneplan.tokens.rendering import Renderer, renderer_for
from tuneplan.tokens.rows import BadRow, BlankLine, Item, Row
from tuneplan.tokens.shapes import (
    Chat,
    Sample,
    Shape,
    columns_of,
    is_empty,
    samples_of,
    shape_of,
)
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.totals import Totals
from tuneplan.tokens.turns import RowProblem

# Good rows looked at before the layout of a file is settled.
_ROWS_TO_SETTLE: Final = 200
# All that is looked at, where most rows are bad.
_ITEMS_TO_SETTLE: Final = 4000
_BATCH_SEQUENCES: Final = 1024
_BATCH_CHARACTERS: Final = 4_000_000
_HERE: Final = Path()


def _read_only(table: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(table)


# Read-only tables are part of a tokenizer's facts, and do not pickle by themselves.
copyreg.pickle(MappingProxyType, lambda table: (_read_only, (dict(table),)))


def settled(items: Iterator[Item]) -> tuple[Shape | None, Iterable[Item]]:
    """The layout of most of the first rows, and all the items again."""
    looked_at: list[Item] = []
    shapes: Counter[Shape] = Counter()
    for item in items:
        looked_at.append(item)
        found = shape_of(item.value) if isinstance(item, Row) else None
        if found is not None:
            shapes[found] += 1
        if shapes.total() >= _ROWS_TO_SETTLE or len(looked_at) >= _ITEMS_TO_SETTLE:
            break
    shape = shapes.most_common(1)[0][0] if shapes else None
    return shape, chain(looked_at, items)


class RowCounter:
    """Counts rows with one tokenizer.

    Args:
        tokenizer: From ``find_tokenizer``.
        pictures: What the model makes of pictures; None leaves them uncounted.
    """

    def __init__(self, tokenizer: Tokenizer, pictures: Pictures | None = None) -> None:
        self.tokenizer = tokenizer
        self.renderer: Renderer = renderer_for(tokenizer, pictures)

    @staticmethod
    def samples(row: Row, shape: Shape | None) -> tuple[Sample, ...]:
        """What one row holds: samples, or the two sequences of a preference pair.

        Raises:
            RowProblem: The row is of another layout, or does not hold what its layout needs.
        """
        return _samples(row, shape)

    def sequences(self, row: Row, shape: Shape | None, folder: Path = _HERE) -> list[Rendered]:
        """The sequences of one row as the model sees them: one, or two of a preference pair.

        Args:
            row: As it was read.
            shape: The layout of its file.
            folder: Where the paths of its pictures start.

        Raises:
            RowProblem: The row is of another layout, or does not hold what its layout needs.
        """
        return [self.renderer.render(sample, folder) for sample in _samples(row, shape)]

    def count(self, items: Iterable[Item], path: str, shape: Shape | None, totals: Totals) -> None:
        """Count rows of one file and enter them, bad rows and blank lines too, in ``totals``."""
        waiting: list[Rendered] = []
        num_characters = 0
        for item in items:
            if isinstance(item, BlankLine):
                totals.blank_lines += 1
                continue
            if isinstance(item, BadRow):
                totals.add_bad(item)
                continue
            ready = self._entered(item, path, shape, totals)
            waiting += ready
            num_characters += sum(len(one.text) for one in ready)
            if len(waiting) >= _BATCH_SEQUENCES or num_characters >= _BATCH_CHARACTERS:
                self._count(waiting, totals)
                waiting, num_characters = [], 0
        self._count(waiting, totals)

    def _count(self, sequences: Sequence[Rendered], totals: Totals) -> None:
        started = perf_counter()
        for counted, one in zip(self.tokenizer.encoder.count(sequences), sequences, strict=True):
            totals.add(TokenCount(counted.total + one.more_tokens, counted.trained))
        totals.encoding_s += perf_counter() - started

    def _entered(
        self, row: Row, path: str, shape: Shape | None, totals: Totals
    ) -> Sequence[Rendered]:
        """The rendered sequences of a good row; a bad one is entered and gives none."""
        try:
            samples = _samples(row, shape)
            folder = Path(path).parent
            rendered = [self.renderer.render(sample, folder) for sample in samples]
            digest = _digest(rendered)
        except RowProblem as problem:
            text = problem.message
            totals.add_bad(BadRow(path=path, line=row.line, code=text.code, message=text))
            return ()
        except UnicodeEncodeError:
            text = message(
                "lone_surrogate",
                "the text has half of a surrogate pair (\\ud800 to \\udfff), which is no character",
            )
            totals.add_bad(BadRow(path=path, line=row.line, code=text.code, message=text))
            return ()
        if not totals.rows_ok and shape is Shape.PROMPT_COMPLETION:
            totals.columns = columns_of(row.value) or ()
        totals.repeats.add(digest)
        _enter(samples, rendered, shape, totals)
        totals.other_media += num_other_media(row.value)
        return rendered


def _digest(rendered: Sequence[Rendered]) -> int:
    digest = blake2b(digest_size=8)
    for one in rendered:
        digest.update(one.text.encode())
        digest.update(b"\x00")
    return int.from_bytes(digest.digest(), "little")


def _samples(row: Row, shape: Shape | None) -> tuple[Sample, ...]:
    found = shape_of(row.value)
    if found is None:
        raise RowProblem(
            message(
                "unknown_shape",
                "no known layout has the keys {keys}; known: messages, conversations, "
                "instruction + output, prompt + completion, text, chosen + rejected",
                keys=", ".join(map(repr, list(row.value)[:8])) or "(none)",
            )
        )
    if found is not shape:
        raise RowProblem(
            message(
                "other_shape",
                "this row is {found}, the file is {shape}",
                found=found.value,
                shape=shape.value if shape else "",
            )
        )
    return samples_of(row.value, found)


def _enter(
    samples: Sequence[Sample],
    rendered: Sequence[Rendered],
    shape: Shape | None,
    totals: Totals,
) -> None:
    totals.rows_ok += 1
    totals.num_samples += len(samples) // (shape.sequences_per_sample if shape else 1)
    totals.empty += all(is_empty(sample) for sample in samples)
    for sample in samples[:1]:
        totals.has_chat |= isinstance(sample, Chat)
        totals.has_plain |= not isinstance(sample, Chat)
        totals.num_images += len(sample.pictures) if isinstance(sample, Chat) else 0
        totals.unsized_images += rendered[0].unsized_pictures
        totals.assumed_images += rendered[0].assumed_pictures
    totals.image_tokens += sum(one.image_tokens for one in rendered)
