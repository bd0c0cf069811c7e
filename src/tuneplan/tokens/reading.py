"""Files to rows, one at a time, with their places; and the parts that a file can be read in.

A row that cannot be read is a ``BadRow`` with its line and the reason: never fatal, never dropped.
A new format is one more entry of ``_READERS`` and of ``files.file_format``.

Lines of JSON Lines and of plain text are read by ranges of bytes: a row belongs to the range in
which it starts, so that ranges which cover the file give every row once. Parquet is read by row
groups. Everything else is one stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any, Final, cast

from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.tokens import tables
from tuneplan.tokens.compression import BrokenStream, compression_of, unpacked
from tuneplan.tokens.files import file_format
from tuneplan.tokens.json_files import MAX_JSON_BYTES, json_syntax, read_json, row_of
from tuneplan.tokens.rows import (
    UTF8_MARK,
    BadRow,
    BlankLine,
    Item,
    Row,
    bad_row,
    not_utf8,
    row_too_long,
)
from tuneplan.tokens.sources import opened, size_of
from tuneplan.units import MIB

# One row of text beyond this is a broken file (a missing newline), not a sample.
MAX_ROW_BYTES: Final = 64 * MIB
# Formats of one row a line, which a range of bytes can be read of.
_BY_LINES: Final = ("jsonl", "txt")
# Rows between two tellings of how far the reading is.
_ROWS_A_TELLING: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a file that is read by itself, or the whole file.

    Attributes:
        start: First byte, or first row group of a Parquet file.
        end: Byte or row group before which it ends; None for the whole file.
        size_bytes: What it holds of the file, stored.
        numbered: The lines of its rows are those of the file; else they are counted from 1 in the
            part that starts the file, from 2 in others.
    """

    path: str
    format: str
    size_bytes: int
    start: int = 0
    end: int | None = None
    numbered: bool = False

    @property
    def shift(self) -> int | None:
        """What is added to a line of its rows, beside the lines before it; None where numbered."""
        return None if self.numbered else (-1 if self.start else 0)


def read_rows(
    path: str | Path,
    *,
    max_row_bytes: int = MAX_ROW_BYTES,
    max_json_bytes: int = MAX_JSON_BYTES,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Item]:
    """Every row, bad row and blank line of a file, in order.

    The file must have passed ``unreadable``; a stream that breaks half-way ends in a ``BadRow``.
    ``on_bytes`` is told now and then how many bytes of the file, as stored, are read.
    """
    name, line = str(path), 0
    try:
        kind = file_format(path).split(".", 1)[0]
        limit = max_json_bytes if kind == "json" else max_row_bytes
        with opened(path) as raw, unpacked(name, raw) as file:
            for number, item in enumerate(_READERS[kind](name, file, limit)):
                line = item.line
                yield item
                if on_bytes is not None and number % _ROWS_A_TELLING == 0:
                    on_bytes(raw.tell())
            if on_bytes is not None:
                on_bytes(raw.tell())
    except BrokenStream as error:
        yield _broken_stream(name, line + 1, str(error))


def _broken_stream(name: str, line: int, reason: str) -> BadRow:
    compression = compression_of(name)
    text = message(
        compression.code if compression else "broken_stream",
        "the {compression} stream breaks here ({reason}): rows after this line are not read",
        compression=compression.name if compression else "",
        reason=reason,
    )
    return bad_row(name, line, text)


# --- Parts -------------------------------------------------------------------------------------


def parts_of(path: str | Path, part_bytes: int) -> tuple[Part, ...] | None:
    """The parts of a file, of about ``part_bytes``; None for one that is read from its start.

    A file that is too broken to be divided is None too: reading it says where it breaks.
    """
    name, kind = str(path), file_format(path)
    if kind in _BY_LINES:
        size = size_of(path)
        return tuple(
            Part(
                path=name,
                format=kind,
                start=start,
                end=min(size, start + part_bytes),
                size_bytes=min(size, start + part_bytes) - start,
            )
            for start in range(0, size, part_bytes)
        )
    if kind != "parquet":
        return None
    try:
        with opened(path) as file:
            sizes = tables.parquet_group_bytes(cast("Any", file))
    except OSError:
        return None
    return _grouped(name, sizes, part_bytes)


def _grouped(name: str, sizes: Sequence[int], part_bytes: int) -> tuple[Part, ...]:
    """Row groups of a Parquet file, joined while they are small."""
    parts, first, held = [], 0, 0
    for number, size in enumerate(sizes, 1):
        held += size
        if held >= part_bytes or number == len(sizes):
            parts.append(
                Part(
                    path=name, format="parquet", start=first, end=number, size_bytes=held,
                    numbered=True,
                )
            )  # fmt: skip
            first, held = number, 0
    return tuple(parts)


def whole(path: str | Path) -> Part:
    """A file as one part."""
    return Part(path=str(path), format=file_format(path), size_bytes=size_of(path), numbered=True)


def read_part(part: Part, on_row_bytes: Callable[[int], None] | None = None) -> Iterator[Item]:
    """The rows of one part; ``on_row_bytes`` is told at the end how many bytes they have."""
    read_bytes = part.size_bytes
    if part.end is None:
        yield from read_rows(part.path)
    elif part.format == "parquet":
        with opened(part.path) as file:
            groups = range(part.start, part.end)
            yield from tables.read_parquet(part.path, cast("Any", file), groups=groups)
    else:
        with opened(part.path) as file:
            window = _Lines(file, part.start, part.end)
            yield from _items_of(part, window)
            read_bytes = window.at - window.first
    if on_row_bytes is not None:
        on_row_bytes(read_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The rows that a range of bytes touches.

    Attributes:
        items: Those that start in it, with lines as of a part.
        last_fraction: Share of the last one's bytes that lie in the range.
        before: The one that starts before it and ends in it or after it, if any.
        before_fraction: Share of that one's bytes.
    """

    items: tuple[Item, ...]
    last_fraction: float
    before: Item | None = None
    before_fraction: float = 0.0


def read_cell(part: Part) -> Cell:
    """The rows that a part of a file touches; of a file that is not of lines, those in it."""
    if part.end is None or part.format not in _BY_LINES:
        return Cell(items=tuple(read_part(part)), last_fraction=1.0)
    with opened(part.path) as file:
        before = _line_under_way(file, part.start)
        window = _Lines(file, part.start, part.end)
        items = tuple(_items_of(part, window))
        first_end = window.first
        last_start, last_end = window.last_start, window.at
    inside = min(part.end, last_end) - last_start
    found: tuple[Item | None, float] = (None, 0.0)
    if before is not None:
        start, line = before
        end = start + len(line)
        if len(line) <= MAX_ROW_BYTES:
            item = next(iter(_items_of(part, BytesIO(line))), None)
            found = (item, (min(end, part.end) - part.start) / len(line))
    return Cell(
        items=items,
        last_fraction=inside / (last_end - last_start) if items else 0.0,
        before=found[0],
        before_fraction=found[1] if first_end > part.start else 0.0,
    )


def _items_of(part: Part, file: Any) -> Iterator[Item]:
    first_line = 2 if part.start else 1
    if part.format == "txt":
        return tables.read_text(part.path, file, first_line=first_line)
    return _read_lines(part.path, file, MAX_ROW_BYTES, first_line)


def _line_under_way(file: BufferedIOBase, at: int) -> tuple[int, bytes] | None:
    """Where the line began that is not ended at a byte, and the line; None where one begins."""
    start = at
    while start > 0 and at - start <= MAX_ROW_BYTES:
        size = min(64 * 1024, start)
        file.seek(start - size)
        found = file.read(size).rfind(b"\n")
        if found >= 0:
            start += found + 1 - size
            break
        start -= size
    if start == at:
        return None
    file.seek(start)
    return start, file.readline(MAX_ROW_BYTES + 1)


def lines_before(path: str, ends: Sequence[int]) -> list[int]:
    """How many lines start before each of some bytes, ascending; reads the file up to the last."""
    found, newlines, at = [], 0, 0
    with opened(path) as file:
        for end in ends:
            # The line after a newline starts before `end` where the newline is before `end - 1`.
            while at < end - 1:
                data = file.read(min(MIB, end - 1 - at))
                if not data:
                    break
                newlines += data.count(b"\n")
                at += len(data)
            found.append(newlines + 1 if end else 0)
    return found


class _Lines:
    """The lines of a file that start in a range of bytes; looks like a file to who reads lines.

    Attributes:
        first: Where the first of them starts, or the end of the range.
        last_start: Where the last one read starts.
        at: How far it is read.
    """

    def __init__(self, file: BufferedIOBase, start: int, end: int) -> None:
        self._file = file
        self._end = end
        self._starts_line = True
        self.at = start
        if start:
            # The line that is under way belongs to the range before, unless it ends just there.
            file.seek(start - 1)
            self.at = start - 1
            found = b""
            while self.at < end and not found.endswith(b"\n"):
                found = file.readline(min(MIB, end - self.at))
                if not found:
                    break
                self.at += len(found)
            if not found.endswith(b"\n"):
                self.at = end
        else:
            file.seek(0)
        self.first = self.last_start = self.at

    def readline(self, limit: int = -1) -> bytes:
        """The next line, or what ``limit`` leaves of it; nothing after the last."""
        if self._starts_line:
            if self.at >= self._end:
                return b""
            self.last_start = self.at
        found = self._file.readline(limit)
        self.at += len(found)
        self._starts_line = found.endswith(b"\n") or not found
        return found


# --- JSON Lines --------------------------------------------------------------------------------


def _read_lines(
    path: str, file: BufferedIOBase | _Lines, limit_bytes: int, first_line: int = 1
) -> Iterator[Item]:
    number = first_line - 1
    while raw := file.readline(limit_bytes + 1):
        number += 1
        if len(raw) > limit_bytes and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(MIB)
            yield row_too_long(path, number, limit_bytes)
            continue
        if number == 1:
            raw = raw.removeprefix(UTF8_MARK)
        if not raw.strip():
            yield BlankLine(line=number)
            continue
        yield _parse_line(path, number, raw)


def _parse_line(path: str, number: int, raw: bytes) -> Row | BadRow:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return not_utf8(path, number, raw[error.start], error.start + 1)
    try:
        value = json.loads(text.rstrip())  # an end that comes too soon is still on this line
    except json.JSONDecodeError as error:
        return bad_row(path, number, json_syntax(error.msg), error.colno)
    except (ValueError, RecursionError) as error:
        return bad_row(path, number, json_syntax(str(error)))
    return row_of(path, number, value)


# --- Every format ------------------------------------------------------------------------------

_Reader = Callable[[str, Any, int], Iterator[Item]]


def _unlimited(reader: Callable[..., Iterator[Item]], **settings: Any) -> _Reader:
    return lambda path, file, _limit: reader(path, file, **settings)


_READERS: Final[dict[str, _Reader]] = {
    "jsonl": partial(_read_lines),
    "json": read_json,
    "csv": _unlimited(tables.read_csv),
    "tsv": _unlimited(tables.read_csv, delimiter="\t"),
    "txt": lambda path, file, limit: tables.read_text(path, file, max_line_bytes=limit),
    "parquet": _unlimited(tables.read_parquet),
    "arrow": _unlimited(tables.read_arrow),
}
