"""A data set as units of work, and what counting a unit gives.

Each unit is counted by itself, in this process, in a worker or on a cluster; the counts are merged
in the order of the rows, so that the answer is the same wherever it was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.tokens.counting import RowCounter, settled
from tuneplan.tokens.files import file_format
from tuneplan.tokens.profile import FileFacts
from tuneplan.tokens.reading import Part, parts_of, read_part, read_rows, whole
from tuneplan.tokens.rows import Item, Row
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.sources import size_of
from tuneplan.tokens.totals import Totals
from tuneplan.units import MIB

# Of a file that is read in parts, and of the rows that are sent to a worker at a time.
PART_BYTES: Final = 4 * MIB
# What a number, a key or a null counts for beside text.
_SMALL_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that are read already, of a file that is one stream."""

    path: str
    items: tuple[Item, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one worker does at a time.

    Attributes:
        file: The place of its file in the set.
        shape: The layout of the file's rows.
    """

    file: int
    shape: Shape | None
    content: Part | Batch

    def items(self, on_row_bytes: Callable[[int], None] | None = None) -> Iterable[Item]:
        """Its rows."""
        if isinstance(self.content, Batch):
            return self.content.items
        return read_part(self.content, on_row_bytes)


@dataclass(slots=True, kw_only=True)
class Counted:
    """What counting a unit gave.

    Attributes:
        row_bytes: Bytes of the rows that start in the unit.
        size_bytes: What it holds of its file.
        shift: The lines of its rows are counted from this many lines after the last unit's end;
            None where they are those of the file.
    """

    file: int
    totals: Totals
    row_bytes: int
    size_bytes: int
    shift: int | None


class UnitCounter:
    """Counts the rows of units; what every worker has."""

    def __init__(self, counter: RowCounter) -> None:
        self._counter = counter

    def __call__(self, unit: Unit) -> Counted:
        """The counts of one unit."""
        content, totals = unit.content, Totals()
        read_bytes = [content.size_bytes]
        self._counter.count(unit.items(read_bytes.append), content.path, unit.shape, totals)
        return Counted(
            file=unit.file,
            totals=totals,
            row_bytes=read_bytes[-1],
            size_bytes=content.size_bytes,
            shift=None if isinstance(content, Batch) else content.shift,
        )


@dataclass(slots=True, kw_only=True)
class FileTally:
    """What is known of one file while the set is counted.

    Attributes:
        lines: Rows, bad rows and blank lines of the units so far.
    """

    path: str
    format: str
    size_bytes: int
    shape: Shape | None = None
    lines: int = 0
    rows_ok: int = 0
    rows_bad: int = 0
    blank_lines: int = 0
    columns: tuple[str, ...] = ()

    def enter(self, counted: Counted) -> None:
        """Add the next unit of the file; its bad rows get the lines that they have in the file."""
        totals = counted.totals
        if counted.shift is not None:
            by = self.lines + counted.shift
            totals.bad_rows = [replace(row, line=row.line + by) for row in totals.bad_rows]
        self.enter_read(totals)
        self.lines = self.rows_ok + self.rows_bad + self.blank_lines

    def enter_read(self, totals: Totals) -> None:
        """Add rows that were read, wherever they stand."""
        self.rows_ok += totals.rows_ok
        self.rows_bad += totals.num_bad
        self.blank_lines += totals.blank_lines
        self.columns = self.columns or totals.columns

    def facts(self) -> FileFacts:
        """The file as the profile shows it."""
        return FileFacts(
            path=self.path,
            format=self.format,
            size_bytes=self.size_bytes,
            shape=self.shape.value if self.shape and self.rows_ok else None,
            rows_ok=self.rows_ok,
            rows_bad=self.rows_bad,
            blank_lines=self.blank_lines,
            columns=self.columns,
        )


@dataclass(slots=True, kw_only=True)
class DataSet:
    """The files of a set, and how they are cut into units.

    Attributes:
        whole_files: A file that is one stream is one unit, read where it is counted; else its rows
            are read here and sent.
    """

    paths: tuple[str, ...]
    part_bytes: int = PART_BYTES
    whole_files: bool = False
    tallies: list[FileTally] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tallies = [
            FileTally(path=path, format=file_format(path), size_bytes=size_of(path))
            for path in self.paths
        ]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, as stored."""
        return sum(tally.size_bytes for tally in self.tallies)

    def units(self) -> Iterator[Unit]:
        """Every unit, in the order of the rows; layouts are settled on the way."""
        for file in range(len(self.paths)):
            yield from self._units_of(file)

    def _units_of(self, file: int) -> Iterator[Unit]:
        path, tally = self.paths[file], self.tallies[file]
        told = [0]
        tally.shape, items = settled(read_rows(path, on_bytes=told.append))
        parts = parts_of(path, self.part_bytes) if tally.size_bytes > self.part_bytes else None
        if parts is None and self.whole_files:
            parts = (whole(path),)
        if parts is not None:
            for part in parts:
                yield Unit(file=file, shape=tally.shape, content=part)
            return
        done = 0
        for batch in in_batches(items, weight_of, self.part_bytes):
            content = Batch(path=path, items=tuple(batch), size_bytes=told[-1] - done)
            done = told[-1]
            yield Unit(file=file, shape=tally.shape, content=content)


def in_batches(
    items: Iterable[Item], weigh: Callable[[Item], int], limit: int
) -> Iterator[list[Item]]:
    """Lists of items whose weights together reach the limit; the last may be lighter."""
    batch: list[Item] = []
    weight = 0
    for item in items:
        batch.append(item)
        weight += weigh(item)
        if weight >= limit:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def weight_of(item: Item) -> int:
    """About how many bytes an item holds."""
    return _weight(item.value) if isinstance(item, Row) else _SMALL_BYTES


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_weight, value.values())) + _SMALL_BYTES * len(value)
    if isinstance(value, list):
        return sum(map(_weight, value)) + _SMALL_BYTES
    return _SMALL_BYTES
