"""JSON files that are not lines: an array of rows, or an object around one. Read whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Final

from tuneplan.language import Message, message
from tuneplan.tokens.rows import BadRow, Item, Row, bad_row, kind_of, not_utf8
from tuneplan.units import MIB, format_gb

# Read whole, unlike lines; this bounds the memory (about five times as much).
MAX_JSON_BYTES: Final = 2048 * MIB
_WHITESPACE: Final = " \t\r\n"


def row_of(path: str, line: int, value: object) -> Row | BadRow:
    """A JSON value as a row: good where it is an object."""
    if isinstance(value, dict):
        return Row(line=line, value=value)
    return bad_row(
        path,
        line,
        message(
            "not_an_object",
            "a row must be a JSON object {{...}}, this is {kind}",
            kind=kind_of(value),
        ),
    )


def json_syntax(problem: str) -> Message:
    """The sentence of a row that is not JSON."""
    return message("json_syntax", "not JSON: {problem}", problem=problem.removesuffix(" at"))


def read_json(path: str, file: BufferedIOBase, limit_bytes: int = MAX_JSON_BYTES) -> Iterator[Item]:
    """Rows of a JSON file, each with the line on which it starts."""
    raw = file.read(limit_bytes + 1)
    if len(raw) > limit_bytes:
        yield bad_row(
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
        yield not_utf8(path, line, raw[error.start], column)
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
        yield row_of(path, line, value)
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
        yield bad_row(
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
    return bad_row(path, line, text, column)


def _read_object(path: str, text: str, start: int) -> Iterator[Item]:
    line = text.count("\n", 0, start) + 1
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            yield bad_row(path, error.lineno, json_syntax(error.msg), error.colno)
        else:
            yield bad_row(path, line, json_syntax(str(error)))
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
