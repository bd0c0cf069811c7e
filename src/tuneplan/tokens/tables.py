"""Tables to rows: CSV, plain text, Parquet, Arrow, and the folders that ``datasets`` saves.

Each reader yields rows, bad rows and blank lines with their place, as ``reading`` does for JSON.
In a Parquet or Arrow file the ``line`` of a row is its number, counted from 1.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

from tuneplan.errors import MissingExtra, Mistake
from tuneplan.language import message, phrase
from tuneplan.tokens.rows import UTF8_MARK, BadRow, BlankLine, Item, Row, not_utf8, row_too_long
from tuneplan.units import MIB

_ROWS_AT_ONCE: Final = 1024
# A field beyond this is a quote that is never closed.
_MAX_FIELD_CHARACTERS: Final = 64 * MIB
_MAX_LINE_BYTES: Final = 64 * MIB


# --- Text and CSV ------------------------------------------------------------------------------


def read_text(
    path: str, file: BinaryIO, *, first_line: int = 1, max_line_bytes: int = _MAX_LINE_BYTES
) -> Iterator[Item]:
    """Plain text: each line is one sample, as the ``text`` reader of ``datasets`` takes it."""
    for number, raw in enumerate(_lines(file, max_line_bytes), first_line):
        if raw is None:
            yield row_too_long(path, number, max_line_bytes)
            continue
        line = raw.removeprefix(UTF8_MARK) if number == 1 else raw
        if not line.strip():
            yield BlankLine(line=number)
            continue
        try:
            yield Row(line=number, value={"text": line.decode("utf-8").rstrip("\r\n")})
        except UnicodeDecodeError as error:
            yield not_utf8(path, number, line[error.start], error.start + 1)


def _lines(file: BinaryIO, limit: int) -> Iterator[bytes | None]:
    """Lines with their ends; None for one that is longer than the limit."""
    while raw := file.readline(limit + 1):
        if len(raw) <= limit or raw.endswith(b"\n"):
            yield raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(MIB)
        yield None


def csv_header(file: BinaryIO, *, delimiter: str = ",") -> tuple[list[str], int]:
    """The column names, and the number of lines that they take."""
    lines = (
        line.removeprefix(UTF8_MARK).decode("utf-8", "replace") for line in iter(file.readline, b"")
    )
    reader = csv.reader(lines, delimiter=delimiter)
    return next(reader, []), reader.line_num


def read_csv(
    path: str,
    file: BinaryIO,
    *,
    delimiter: str = ",",
    header: Sequence[str] | None = None,
    first_line: int = 1,
) -> Iterator[Item]:
    """Rows of a CSV file; every value is text.

    Args:
        path: For the places of bad rows.
        file: Open for reading, unpacked.
        delimiter: Between fields, a tab for TSV.
        header: Column names, where ``file`` starts below them; None where it starts with them.
        first_line: Number of the line where ``file`` starts.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    # Bytes that are not UTF-8 become lone surrogates, so that a bad field spoils its own row alone.
    lines = (
        (raw.removeprefix(UTF8_MARK) if first_line + number == 1 else raw).decode(
            "utf-8", "surrogateescape"
        )
        for number, raw in enumerate(iter(file.readline, b""))
    )
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    names = list(header) if header is not None else None
    while True:
        line = first_line + reader.line_num
        try:
            fields = next(reader, None)
        except csv.Error as error:
            text = message("csv_syntax", "not CSV: {problem}", problem=str(error))
            yield BadRow(path=path, line=line, code=text.code, message=text)
            continue
        if fields is None:
            return
        if names is None:
            names = fields
        else:
            yield _csv_row(path, line, names, fields)


def _csv_row(path: str, line: int, names: Sequence[str], fields: Sequence[str]) -> Item:
    if not any(field.strip() for field in fields):
        return BlankLine(line=line)
    if len(fields) != len(names):
        text = message(
            "csv_fields",
            "{count} fields where the header has {wanted}",
            count=len(fields),
            wanted=len(names),
        )
        return BadRow(path=path, line=line, code=text.code, message=text)
    for field in fields:
        escaped = next((one for one in field if "\udc80" <= one <= "\udcff"), None)
        if escaped is not None:
            return not_utf8(path, line, ord(escaped) - 0xDC00)
    return Row(line=line, value=dict(zip(names, fields, strict=True)))


# --- Parquet and Arrow -------------------------------------------------------------------------


def _pyarrow() -> Any:
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra(
            extra="tokens", purpose=phrase("reading Parquet and Arrow files")
        ) from None
    return import_module("pyarrow")


def parquet_groups(file: BinaryIO) -> list[int]:
    """Rows of each row group.

    Raises:
        OSError: The file has no end, or is no Parquet file.
    """
    facts = _parquet_facts(file)
    return [facts.row_group(number).num_rows for number in range(facts.num_row_groups)]


def parquet_group_bytes(file: BinaryIO) -> list[int]:
    """Bytes of each row group, as stored.

    Raises:
        OSError: The file has no end, or is no Parquet file.
    """
    facts = _parquet_facts(file)
    groups = map(facts.row_group, range(facts.num_row_groups))
    return [
        sum(group.column(place).total_compressed_size for place in range(group.num_columns))
        for group in groups
    ]


def _parquet_facts(file: BinaryIO) -> Any:
    arrow = _pyarrow()
    try:
        return arrow.parquet.ParquetFile(file).metadata
    except (arrow.ArrowException, OSError) as error:
        raise OSError(_short(error)) from error


def read_parquet(
    path: str, file: BinaryIO, *, groups: Sequence[int] | None = None
) -> Iterator[Item]:
    """Rows of a Parquet file, or of some of its row groups; one that breaks is a bad row."""
    arrow = _pyarrow()
    try:
        table = arrow.parquet.ParquetFile(file)
    except (arrow.ArrowException, OSError) as error:
        yield _broken_table(path, 1, "Parquet", error)
        return
    ends = [0]
    for number in range(table.metadata.num_row_groups):
        ends.append(ends[-1] + table.metadata.row_group(number).num_rows)
    for group in range(len(ends) - 1) if groups is None else groups:
        done = ends[group]
        try:
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=[group]):
                yield from _rows(done, batch)
                done += batch.num_rows
        except (arrow.ArrowException, OSError) as error:
            text = message(
                "broken_row_group",
                "the row group breaks here ({reason}): rows {first} to {last} are not read",
                reason=_short(error),
                first=done + 1,
                last=ends[group + 1],
            )
            yield BadRow(path=path, line=done + 1, code=text.code, message=text)


def _rows(done: int, batch: Any) -> Iterator[Row]:
    for number, value in enumerate(batch.to_pylist(), done + 1):
        yield Row(line=number, value=value)


def arrow_batches(file: BinaryIO) -> int | None:
    """Record batches of an Arrow file; None for a stream, which is only read from its start."""
    opened = _arrow_file(_pyarrow(), file)
    return None if opened is None else int(opened.num_record_batches)


def _arrow_file(arrow: Any, file: BinaryIO) -> Any:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    return arrow.ipc.open_file(file) if is_file else None


def read_arrow(
    path: str, file: BinaryIO, *, batches: Sequence[int] | None = None
) -> Iterator[Item]:
    """Rows of an Arrow file or stream (what ``datasets`` writes); ``batches`` of a file alone."""
    arrow = _pyarrow()
    done = 0
    try:
        opened = _arrow_file(arrow, file)
        if opened is None:
            with arrow.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield from _sliced(done, batch)
                    done += batch.num_rows
            return
        wanted = range(opened.num_record_batches) if batches is None else batches
        for number in range(max(wanted, default=-1) + 1):
            batch = opened.get_batch(number)
            if number in wanted:
                yield from _sliced(done, batch)
            done += batch.num_rows
    except (arrow.ArrowException, OSError, EOFError) as error:
        yield _broken_table(path, done + 1, "Arrow", error)


def _sliced(done: int, batch: Any) -> Iterator[Row]:
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield from _rows(done + start, batch.slice(start, _ROWS_AT_ONCE))


def _broken_table(path: str, line: int, kind: str, error: Exception) -> BadRow:
    text = message(
        "broken_table",
        "the {kind} file breaks here ({reason}): rows from this one on are not read",
        kind=kind,
        reason=_short(error),
    )
    return BadRow(path=path, line=line, code=text.code, message=text)


def _short(error: Exception) -> str:
    return str(error).split("\n", 1)[0].split(". ", 1)[0].rstrip(".")


# --- Folders of ``datasets`` -------------------------------------------------------------------


def dataset_folder(path: Path) -> tuple[Path, ...] | Mistake | None:
    """The Arrow files of a folder that ``save_to_disk`` wrote, in order; None for another folder.

    Of a ``DatasetDict`` the split ``train`` is taken; where there is none, the splits are named.
    Source: datasets 4 ``arrow_dataset.py`` ``save_to_disk`` (``state.json``, ``_data_files``),
    ``dataset_dict.py`` (``dataset_dict.json``, ``splits``).
    """
    splits = _described(path / "dataset_dict.json", lambda found: list(found["splits"]))
    if splits is not None:
        if "train" in splits:
            return dataset_folder(path / "train")
        return Mistake(
            message=message(
                "no_train_split",
                "{path} holds the splits {splits} and no train; name one of its folders",
                path=str(path),
                splits=", ".join(splits),
            ),
            path=str(path),
            near=tuple(str(path / split) for split in splits[:5]),
        )
    names = _described(
        path / "state.json", lambda found: [one["filename"] for one in found["_data_files"]]
    )
    return None if names is None else tuple(path / name for name in names)


def _described(path: Path, named: Callable[[Any], list[str]]) -> list[str] | None:
    if not path.is_file():
        return None
    try:
        return named(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError):
        return None
