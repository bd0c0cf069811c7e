"""Files to rows: JSON Lines and JSON, plain or gzipped, one row at a time, with line numbers.

A row that cannot be read is a ``BadRow`` with its line and the reason: never fatal, never dropped.
A new format is one more entry of ``_READERS``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.tokens.files import UTF8_MARK, file_format, unpacked
from tuneplan.units import MIB, format_gb

# One row of text beyond this is a broken file (a missing newline), not a sample.
MAX_ROW_BYTES: Final = 64 * MIB
# A JSON array is read whole, unlike lines; this bounds the memory (about five times as much).
MAX_JSON_BYTES: Final = 2048 * MIB
_WHITESPACE: Final = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One JSON object and the line on which it starts, counted from 1."""

    line: int
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """One row that is not a sample: where, which kind of problem, and a sentence.

    Attributes:
        column: Where in the line, counted from 1 (bytes where it is not UTF-8); None where the
            row as a whole is wrong.
    """

    path: str
    line: int
    code: str
    message: Message
    column: int | None = None

    @property
    def place(self) -> str:
        """``path:line:column``, as editors open it."""
        column = f":{self.column}" if self.column else ""
        return f"{self.path}:{self.line}{column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlankLine:
    """A line with nothing on it: counted, not a mistake."""

    line: int


Item = Row | BadRow | BlankLine


def read_rows(
    path: Path,
    *,
    max_row_bytes: int = MAX_ROW_BYTES,
    max_json_bytes: int = MAX_JSON_BYTES,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Item]:
    """Every row, bad row and blank line of a file, in order.

    The file must have passed ``unreadable``; a stream that breaks half-way ends in a ``BadRow``.
    ``on_bytes`` is told now and then how many bytes of the file on disk are read.
    """
    reader = _READERS[file_format(path).removesuffix(".gz")]
    line = 0
    try:
        with path.open("rb") as raw, unpacked(path, raw) as file:
            limit = max_row_bytes if reader is _read_lines else max_json_bytes
            for number, item in enumerate(reader(str(path), file, limit)):
                line = item.line
                yield item
                if on_bytes is not None and number % 256 == 0:
                    on_bytes(raw.tell())
            if on_bytes is not None:
                on_bytes(raw.tell())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield BadRow(
            path=str(path),
            line=line + 1,
            code="broken_gzip",
            message=message(
                "broken_gzip",
                "the gzip stream breaks here ({reason}): rows after this line are not read",
                reason=str(error),
            ),
        )


# --- JSON Lines ------------------------------------------------------------------------------


def _read_lines(path: str, file: BufferedIOBase, limit_bytes: int) -> Iterator[Item]:
    number = 0
    while True:
        raw = file.readline(limit_bytes + 1)
        if not raw:
            return
        number += 1
        if len(raw) > limit_bytes and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(MIB)
            yield _bad(
                path,
                number,
                message(
                    "row_too_long",
                    "this line is longer than {limit}: a newline is probably missing",
                    limit=format_gb(limit_bytes),
                ),
            )
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
        return _bad(path, number, _not_utf8(raw[error.start]), error.start + 1)
    try:
        value = json.loads(text.rstrip())  # an end that comes too soon is still on this line
    except json.JSONDecodeError as error:
        return _bad(path, number, _syntax(error.msg), error.colno)
    except (ValueError, RecursionError) as error:
        return _bad(path, number, _syntax(str(error)))
    return _row(path, number, value)


def _row(path: str, line: int, value: object) -> Row | BadRow:
    if isinstance(value, dict):
        return Row(line=line, value=value)
    return _bad(
        path,
        line,
        message(
            "not_an_object",
            "a row must be a JSON object {{...}}, this is {kind}",
            kind=kind_of(value),
        ),
    )


def kind_of(value: object) -> str:
    """What JSON calls a value: ``a list``, ``a number``, ..."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"),
        (str, "a string"),
        ((int, float), "a number"),
        (list, "a list"),
        (dict, "an object"),
    )
    return next((name for types, name in kinds if isinstance(value, types)), "null")


def _bad(path: str, line: int, text: Message, column: int | None = None) -> BadRow:
    return BadRow(path=path, line=line, code=text.code, message=text, column=column)


def _syntax(problem: str) -> Message:
    return message("json_syntax", "not JSON: {problem}", problem=problem.removesuffix(" at"))


def _not_utf8(byte: int) -> Message:
    return message(
        "not_utf8", "not UTF-8: byte 0x{byte}; save the file as UTF-8", byte=f"{byte:02x}"
    )


# --- JSON ------------------------------------------------------------------------------------


def _read_json(path: str, file: BufferedIOBase, limit_bytes: int) -> Iterator[Item]:
    raw = file.read(limit_bytes + 1)
    if len(raw) > limit_bytes:
        yield _bad(
            path,
            1,
            message(
                "json_too_large",
                "a JSON array is read whole and this one is larger than {limit}; "
                "write it as JSON Lines (one object a line), which is read row by row",
                limit=format_gb(limit_bytes),
            ),
        )
        return
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        yield _bad(path, line, _not_utf8(raw[error.start]), column)
        return
    start = _skip(text, 0)
    if text.startswith("[", start):
        yield from _read_array(path, text, start)
        return
    yield from _read_object(path, text, start)


def _read_array(path: str, text: str, start: int) -> Iterator[Item]:
    decoder = json.JSONDecoder()
    line = text.count("\n", 0, start) + 1
    counted_to, position = start, _skip(text, start + 1)
    while position < len(text) and text[position] != "]":
        line += text.count("\n", counted_to, position)
        counted_to = position
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield _broken_array(path, error, line, position)
            return
        yield _row(path, line, value)
        position = _skip(text, position)
        if position < len(text) and text[position] == ",":
            position = _skip(text, position + 1)
        elif position < len(text) and text[position] != "]":
            line += text.count("\n", counted_to, position)
            yield _broken_array(path, ValueError("Expecting ',' delimiter"), line, position)
            return
    if position >= len(text):
        line = text.count("\n") + 1
        yield _broken_array(path, ValueError("the array is not closed"), line, position)
        return
    after = _skip(text, position + 1)
    if after < len(text):
        yield _bad(
            path,
            text.count("\n", 0, after) + 1,
            message("after_array", "there is more after the end of the JSON array: not read"),
        )


def _broken_array(path: str, error: Exception, line: int, position: int) -> BadRow:
    problem, column = str(error), None
    if isinstance(error, json.JSONDecodeError):
        line += error.doc.count("\n", position, error.pos)
        problem, column = error.msg, error.colno
    text = message(
        "broken_array",
        "the JSON array breaks here ({problem}): rows after this line are not read",
        problem=problem,
    )
    return _bad(path, line, text, column)


def _read_object(path: str, text: str, start: int) -> Iterator[Item]:
    line = text.count("\n", 0, start) + 1
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            yield _bad(path, error.lineno, _syntax(error.msg), error.colno)
        else:
            yield _bad(path, line, _syntax(str(error)))
        return
    tables = [
        key
        for key, rows in value.items()
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
    ]
    is_wrapper = len(tables) == 1 and tables[0] in (
        "data",
        "train",
        "rows",
        "examples",
        "instances",
    )
    if not is_wrapper:
        yield Row(line=line, value=value)
        return
    # An object around the table, as the `field` argument of `datasets` reads it.
    for row in value[tables[0]]:
        yield Row(line=line, value=row)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _WHITESPACE:
        position += 1
    return position


_READERS: Final[Mapping[str, Callable[[str, BufferedIOBase, int], Iterator[Item]]]] = {
    "jsonl": _read_lines,
    "json": _read_json,
}
