"""A CSV of measured runs, read: every row with its line, every fault of the file at once.

What a row means is decided in ``rows``; here a file becomes cells. Columns may come in any order
and number; those that nobody knows are kept.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message

REQUIRED_COLUMN: Final = "model"
_LARGEST_BYTES: Final = 64 * 2**20
_BLANK: Final = frozenset({"", "-", "--", "unknown", "n/a", "na", "none stated", "not stated", "?"})


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the file.

    Attributes:
        line: Where it starts, counted from 1.
        cells: Column name to text without surrounding blanks; empty where nothing is stated.
    """

    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell, or "" where the column is absent or the cell says that nothing is known."""
        value = self.cells.get(column, "")
        return "" if value.casefold() in _BLANK else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Completeness:
    """What a file of complete rows says of one run.

    Attributes:
        source: Who published it.
        memory: Whether everything that decides its memory stands in columns.
        throughput: The same for its speed.
        missing: What is missing, in words.
    """

    source: str
    memory: bool
    throughput: bool
    missing: str = ""


def read_records(path: str | Path) -> tuple[Record, ...]:
    """The rows of a CSV of measured runs.

    Raises:
        UnreadableFile: The file is absent, empty, not text, or has no header that names a model.
        InvalidRequest: Rows with more cells than columns, or ids that stand twice: all of them.
    """
    records = _records(Path(path))
    columns = tuple(records[0].cells) if records else ()
    if not records:
        raise _unreadable(path, message("runs_without_rows", "the file has a header but no rows"))
    if REQUIRED_COLUMN not in columns:
        near = get_close_matches(REQUIRED_COLUMN, columns, n=3)
        raise _unreadable(
            path,
            message(
                "runs_without_model",
                "no column {column!r}: without the model's name nothing can be predicted; the "
                "columns are {columns}{hint}",
                column=REQUIRED_COLUMN,
                columns=", ".join(columns[:12]),
                hint=f" ({near[0]}?)" if near else "",
            ),
            line=1,
        )
    _check_ids(path, records)
    return records


def read_complete(path: str | Path) -> Mapping[str, Completeness]:
    """Which runs count in the error tables: columns id, memory_complete, throughput_complete.

    Raises:
        UnreadableFile: The file is absent or empty, or a column is missing.
        InvalidRequest: A cell is neither ``yes`` nor ``no``, or an id stands twice.
    """
    records = _records(Path(path))
    needed = ("id", "memory_complete", "throughput_complete")
    missing = [name for name in needed if not records or name not in records[0].cells]
    if missing:
        raise _unreadable(
            path,
            message(
                "complete_columns_missing",
                "a file of complete rows needs the columns {needed}; missing: {missing}",
                needed=", ".join(needed),
                missing=", ".join(missing),
            ),
            line=1,
        )
    mistakes = [
        _not_yes_or_no(path, record, column)
        for record in records
        for column in needed[1:]
        if record.cells[column].casefold() not in ("yes", "no")
    ]
    if mistakes:
        raise InvalidRequest(mistakes)
    _check_ids(path, records)
    return MappingProxyType({record.cells["id"]: _completeness(record) for record in records})


def _completeness(record: Record) -> Completeness:
    return Completeness(
        source=record.text("source"),
        memory=record.cells["memory_complete"].casefold() == "yes",
        throughput=record.cells["throughput_complete"].casefold() == "yes",
        missing=record.text("missing"),
    )


def _not_yes_or_no(path: str | Path, record: Record, column: str) -> Mistake:
    return Mistake(
        message=message(
            "not_yes_or_no",
            "{column} of {id} is {value!r}; it has to be yes or no",
            column=column,
            id=record.cells["id"],
            value=record.cells[column],
        ),
        path=str(path),
        line=record.line,
        value=record.cells[column],
        near=("yes", "no"),
    )


def _records(path: Path) -> tuple[Record, ...]:
    reader = csv.reader(StringIO(_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(path, header)
        rows = _rows(reader)
    except csv.Error as error:
        raise _unreadable(
            path,
            message("csv_broken", "the row cannot be read as CSV: {detail}", detail=str(error)),
            line=reader.line_num,
        ) from None
    _check_widths(path, header, rows)
    return tuple(
        Record(line, MappingProxyType(_cells(header, cells))) for line, cells in rows if any(cells)
    )


def _rows(reader: Any) -> list[tuple[int, list[str]]]:
    rows: list[tuple[int, list[str]]] = []
    line = reader.line_num + 1
    for cells in reader:
        rows.append((line, [cell.strip() for cell in cells]))
        line = reader.line_num + 1
    return rows


def _cells(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    return dict(zip(header, [*cells, *[""] * (len(header) - len(cells))], strict=True))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)  # a device file would have no end
        if len(content) > _LARGEST_BYTES:
            raise _unreadable(path, message("file_too_large", "the file is larger than 64 MiB"))
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise _unreadable(path, message("file_absent", "the file does not exist")) from None
    except IsADirectoryError:
        raise _unreadable(path, message("file_is_folder", "this is a folder, not a file")) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _unreadable(
            path, message("not_utf8", "the file is not UTF-8 text"), line=line
        ) from None
    except OSError as error:
        raise _unreadable(
            path,
            message("file_unreadable", "the file cannot be read: {detail}", detail=error.strerror),
        ) from None
    if not text.strip():
        raise _unreadable(path, message("file_empty", "the file is empty"))
    return text


def _check_header(path: Path, header: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        raise _unreadable(
            path,
            message(
                "column_repeated",
                "the header names a column more than once: {columns}",
                columns=", ".join(repr(name) for name in repeated),
            ),
            line=1,
        )


def _check_widths(
    path: Path, header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]
) -> None:
    mistakes = [
        Mistake(
            message=message(
                "row_too_wide",
                "the row has {cells} cells but the header names {columns} columns: a comma inside "
                "a cell needs quotation marks around it",
                cells=len(cells),
                columns=len(header),
            ),
            path=str(path),
            line=line,
        )
        for line, cells in rows
        if len(cells) > len(header)
    ]
    if mistakes:
        raise InvalidRequest(mistakes)


def _check_ids(path: str | Path, records: Sequence[Record]) -> None:
    """A run is named by its id: where two have the same, one would stand for both."""
    first: dict[str, int] = {}
    mistakes = [
        Mistake(
            message=message(
                "run_id_twice",
                "the run {id!r} stands here and in line {line}: an id names one run",
                id=name,
                line=first[name],
            ),
            path=str(path),
            line=record.line,
            value=name,
            how_to_fix=message("one_id_a_run", "give each run its own id, or leave the column out"),
        )
        for record in records
        if (name := record.text("id")) and first.setdefault(name, record.line) != record.line
    ]
    if mistakes:
        raise InvalidRequest(mistakes)


def _unreadable(path: str | Path, text: Message, *, line: int | None = None) -> UnreadableFile:
    return UnreadableFile(text, path=str(path), line=line)
