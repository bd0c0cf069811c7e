"""Rows of a data set to rows of tokens that a trainer takes: cut or packed, labels set.

The columns are ``input_ids`` and ``labels`` (-100 where nothing is learned); rows that hold more
than one sample also have ``position_ids``, which start again at each sample, and ``seq_lengths``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.packed_rows import (
    PackedRows,
    pack_best_fit_decreasing,
    pack_in_order,
)
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.encoders import Encoded, Rendered
from tuneplan.tokens.multimodal import num_other_media
from tuneplan.tokens.rows import BadRow, BlankLine, Item, Row, bad_row
from tuneplan.tokens.shapes import Chat, Shape
from tuneplan.tokens.totals import Totals
from tuneplan.tokens.turns import RowProblem

# torch.nn.CrossEntropyLoss: ignore_index.
NOT_LEARNED: Final = -100
_BATCH_SEQUENCES: Final = 1024
_BATCH_CHARACTERS: Final = 4_000_000


class Packing(StrEnum):
    """How samples are put into rows."""

    NONE = "none"
    BEST_FIT = "bfd"
    IN_ORDER = "in_order"
    WRAPPED = "wrapped"


class TooLong(StrEnum):
    """What becomes of a sample that is longer than ``max_length``."""

    CUT = "cut"
    DROP = "drop"


class Learned(StrEnum):
    """Which tokens have a label."""

    ANSWERS = "answers"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """What rows of tokens shall be like.

    Attributes:
        max_length: Tokens of a row at most; None for as long as the samples are, without packing.
    """

    max_length: int | None = None
    packing: Packing = Packing.NONE
    too_long: TooLong = TooLong.CUT
    learned: Learned = Learned.ANSWERS


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """Rows of tokens, as flat columns.

    Attributes:
        columns: Values of each column, int32, row after row.
        offsets: Where each row of a column begins in its values, and the end of the last row.
        num_sequences: Samples that are in the rows.
        num_cut: Those among them that lost tokens; ``cut_tokens`` says how many.
        num_dropped: Samples that are in no row, being too long; ``num_empty``, without a token.
    """

    columns: Mapping[str, NDArray[np.int32]]
    offsets: Mapping[str, NDArray[np.int64]]
    num_sequences: int
    num_cut: int
    cut_tokens: int
    num_dropped: int
    num_empty: int

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.offsets["input_ids"]) - 1


_PACK: Final[Mapping[Packing, Callable[[NDArray[np.int64], int], PackedRows]]] = MappingProxyType(
    {Packing.BEST_FIT: pack_best_fit_decreasing, Packing.IN_ORDER: pack_in_order}
)


def token_rows(sequences: Iterable[Encoded], settings: RowSettings) -> TokenRows:
    """Rows of tokens from the samples of one shard."""
    every = list(sequences)
    found = np.asarray([len(one.ids) for one in every], dtype=np.int64)
    ids = _joined([one.ids for one in every])
    trained = _joined([one.trained for one in every]).astype(bool)
    labels = ids if settings.learned is Learned.ALL else np.where(trained, ids, NOT_LEARNED)
    limit = settings.max_length
    is_cut = limit is not None and settings.packing is not Packing.WRAPPED
    keeps = found > 0
    dropped = np.zeros(len(found), dtype=bool)
    lengths = found
    if is_cut and limit is not None:
        if settings.too_long is TooLong.DROP:
            dropped = found > limit
        lengths = np.minimum(found, limit)
    keeps &= ~dropped
    starts = np.cumsum(found) - found
    kept = np.flatnonzero(keeps)
    columns, offsets = _laid_out(ids, labels, starts[kept], lengths[kept], settings)
    cut = (found - lengths)[kept]
    return TokenRows(
        columns=columns,
        offsets=offsets,
        num_sequences=len(kept),
        num_cut=int(np.count_nonzero(cut)),
        cut_tokens=int(cut.sum()),
        num_dropped=int(np.count_nonzero(dropped)),
        num_empty=int(np.count_nonzero(found == 0)),
    )


def _joined(parts: list[NDArray[np.int32]] | list[NDArray[np.bool_]]) -> NDArray[np.int32]:
    joined: NDArray[np.int32] = np.concatenate([np.zeros(0, dtype=np.int32), *parts])
    return joined


def _laid_out(
    ids: NDArray[np.int32],
    labels: NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    settings: RowSettings,
) -> tuple[dict[str, NDArray[np.int32]], dict[str, NDArray[np.int64]]]:
    """Columns and offsets of the samples that are kept."""
    pack = _PACK.get(settings.packing)
    one_each = np.arange(len(lengths) + 1)
    packed = (
        pack(lengths, settings.max_length)
        if pack is not None and settings.max_length is not None
        else PackedRows(order=one_each[:-1], starts=one_each)
    )
    sizes = lengths[packed.order]
    ends = np.concatenate(([0], np.cumsum(sizes)))
    positions = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
    places = np.repeat(starts[packed.order], sizes) + positions
    columns = {"input_ids": ids[places], "labels": labels[places]}
    rows = ends[packed.starts]
    if settings.packing is Packing.WRAPPED and settings.max_length is not None:
        rows = np.append(np.arange(0, ends[-1], settings.max_length), ends[-1])
    offsets = {"input_ids": rows, "labels": rows}
    if pack is not None:
        # The first token of a sample would be told from the sample before it.
        columns["labels"][ends[:-1]] = NOT_LEARNED
        columns |= {
            "position_ids": positions.astype(np.int32),
            "seq_lengths": sizes.astype(np.int32),
        }
        offsets |= {"position_ids": rows, "seq_lengths": packed.starts}
    return columns, offsets


# --- Encoding ----------------------------------------------------------------------------------


def encoded(
    counter: RowCounter, items: Iterable[Item], path: str, shape: Shape | None, totals: Totals
) -> Iterator[Encoded]:
    """The tokens of every good row; bad rows and blank lines are entered in ``totals``."""
    waiting: list[Rendered] = []
    num_characters = 0
    for item in items:
        ready = _rendered(counter, item, path, shape, totals)
        waiting += ready
        num_characters += sum(len(one.text) for one in ready)
        if len(waiting) >= _BATCH_SEQUENCES or num_characters >= _BATCH_CHARACTERS:
            yield from counter.tokenizer.encoder.encode(waiting)
            waiting, num_characters = [], 0
    if waiting:
        yield from counter.tokenizer.encoder.encode(waiting)


def _rendered(
    counter: RowCounter, item: Item, path: str, shape: Shape | None, totals: Totals
) -> list[Rendered]:
    if isinstance(item, BlankLine):
        totals.blank_lines += 1
        return []
    try:
        if isinstance(item, Row):
            found = _text_alone(counter, item, shape)
            totals.rows_ok += 1
            totals.num_samples += len(found)
            return found
    except RowProblem as problem:
        item = bad_row(path, item.line, problem.message)
    if isinstance(item, BadRow):
        totals.add_bad(item)
    return []


def _text_alone(counter: RowCounter, row: Row, shape: Shape | None) -> list[Rendered]:
    """The sequences of a row that is text and nothing else."""
    samples = counter.samples(row, shape)
    pictured = any(isinstance(sample, Chat) and sample.pictures for sample in samples)
    if pictured or num_other_media(row.value):
        raise RowProblem(
            message(
                "media_not_tokenised",
                "the row has pictures, videos or sound: their tokens are made by the model's "
                "processor in training",
            )
        )
    found = [counter.renderer.render(sample) for sample in samples]
    if not all(_is_text(one.text) for one in found):
        raise RowProblem(
            message(
                "lone_surrogate",
                "the text has half of a surrogate pair (\\ud800 to \\udfff), which is no character",
            )
        )
    return found


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
