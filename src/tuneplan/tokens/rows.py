"""What a reader yields: rows, rows that cannot be used, and blank lines, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message, phrase
from tuneplan.units import format_gb

# A byte-order mark, which stands at the start of some files and is no text.
UTF8_MARK: Final = b"\xef\xbb\xbf"


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


def kind_of(value: object) -> str:
    """What JSON calls a value: ``a list``, ``a number``, ..."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, phrase("true or false")),
        (str, phrase("a string")),
        ((int, float), phrase("a number")),
        (list, phrase("a list")),
        (dict, phrase("an object")),
    )
    return next((name for types, name in kinds if isinstance(value, types)), "null")


def bad_row(path: str, line: int, text: Message, column: int | None = None) -> BadRow:
    """A bad row whose kind is the code of its sentence."""
    return BadRow(path=path, line=line, code=text.code, message=text, column=column)


def row_too_long(path: str, line: int, limit_bytes: int) -> BadRow:
    """A line with no end in sight."""
    return bad_row(
        path,
        line,
        message(
            "row_too_long",
            "this line is longer than {limit}: a newline is probably missing",
            limit=format_gb(limit_bytes),
        ),
    )


def not_utf8(path: str, line: int, byte: int, column: int | None = None) -> BadRow:
    """A row that is not UTF-8."""
    text = message(
        "not_utf8", "not UTF-8: byte 0x{byte}; save the file as UTF-8", byte=f"{byte:02x}"
    )
    return bad_row(path, line, text, column)
