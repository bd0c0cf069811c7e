"""What is added up while reading: one ``Totals`` a file, a chunk or a worker, merged at the end.

Memory is bounded however many rows there are, except that the distinct lengths are all kept: a
table of a few thousand entries.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tuneplan.tokens.duplicates import Repeats
from tuneplan.tokens.encoders import TokenCount
from tuneplan.tokens.rows import BadRow

MAX_LISTED_BAD_ROWS: Final = 100
# Lengths kept in the order of the rows, for packing and batches that depend on it.
MAX_ORDERED: Final = 2_000_000


@dataclass(slots=True, kw_only=True)
class Totals:
    """What is added up while reading.

    Attributes:
        lengths: How many sequences have each length, in tokens; those of pictures are in it.
        ordered: The lengths in the order of the rows, up to ``MAX_ORDERED``.
        rows_ok: Good rows.
        num_samples: Samples in them: one a row, except that a tree has one a thread. A preference
            pair is one sample of two sequences.
        empty: Good rows with nothing to learn.
        image_tokens: Tokens of pictures, where the model's rule is known.
        num_images: Pictures that the rows refer to.
        unsized_images: Those among them whose size is not known, so that they are not counted.
        assumed_images: Those that are taken to be of the usual size.
        other_media: Videos and sound recordings, which are not counted.
        columns: The keys of prompt and answer in the first good prompt-completion row.
        bad_rows: The first bad rows; ``bad_by_code`` counts all.
        encoding_s: Time in the tokenizer, summed over workers.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    ordered: array[int] = field(default_factory=lambda: array("I"))
    trained_tokens: int = 0
    image_tokens: int = 0
    rows_ok: int = 0
    num_samples: int = 0
    empty: int = 0
    num_images: int = 0
    unsized_images: int = 0
    assumed_images: int = 0
    other_media: int = 0
    has_chat: bool = False
    has_plain: bool = False
    blank_lines: int = 0
    columns: tuple[str, ...] = ()
    repeats: Repeats = field(default_factory=Repeats)
    bad_rows: list[BadRow] = field(default_factory=list)
    bad_by_code: Counter[str] = field(default_factory=Counter)
    encoding_s: float = 0.0

    @property
    def num_bad(self) -> int:
        """Rows that are not samples."""
        return self.bad_by_code.total()

    def add_bad(self, row: BadRow) -> None:
        """Count a bad row, and keep it while the list is short."""
        self.bad_by_code[row.code] += 1
        if len(self.bad_rows) < MAX_LISTED_BAD_ROWS:
            self.bad_rows.append(row)

    def add(self, counted: TokenCount) -> None:
        """Count one sequence."""
        self.lengths[counted.total] += 1
        self.trained_tokens += counted.trained
        if len(self.ordered) < MAX_ORDERED:
            self.ordered.append(counted.total)

    def merge(self, later: Totals) -> None:
        """Add what was counted in rows that come after these."""
        self.lengths.update(later.lengths)
        self.ordered.extend(later.ordered[: MAX_ORDERED - len(self.ordered)])
        self.trained_tokens += later.trained_tokens
        self.image_tokens += later.image_tokens
        self.rows_ok += later.rows_ok
        self.num_samples += later.num_samples
        self.empty += later.empty
        self.num_images += later.num_images
        self.unsized_images += later.unsized_images
        self.assumed_images += later.assumed_images
        self.other_media += later.other_media
        self.has_chat |= later.has_chat
        self.has_plain |= later.has_plain
        self.blank_lines += later.blank_lines
        self.columns = self.columns or later.columns
        self.repeats.merge(later.repeats)
        self.bad_rows += later.bad_rows[: MAX_LISTED_BAD_ROWS - len(self.bad_rows)]
        self.bad_by_code.update(later.bad_by_code)
        self.encoding_s += later.encoding_s
