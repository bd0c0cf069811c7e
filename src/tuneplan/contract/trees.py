"""What values a configuration may hold, in whatever form it is written."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

from tuneplan.contract.values import WrittenNumber
from tuneplan.errors import Mistake, UnreadableFile
from tuneplan.language import message

DEEPEST: Final = 32
_PRINTABLE_BITS: Final = 10_000  # Python refuses to write longer numbers in decimal


def plain(value: Any, *, name: str, depth: int = 0) -> Any:
    """A tree made of dict, list and scalars only; keys become strings, huge whole numbers text.

    Raises:
        UnreadableFile: Nested too deeply.
    """
    if depth > DEEPEST:
        raise too_deep(name)
    if isinstance(value, Mapping):
        return {str(key): plain(item, name=name, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, name=name, depth=depth + 1) for item in value]
    if isinstance(value, int) and value.bit_length() > 64:
        return (str(value) if value.bit_length() < _PRINTABLE_BITS else hex(value))[:40]
    if isinstance(value, PathLike):
        return str(value)
    return value


def too_deep(name: str) -> UnreadableFile:
    """The refusal of a file that is nested too deeply."""
    return UnreadableFile(
        message(
            "too_deep", "{path} holds too much, or is nested too deeply, for a job file", path=name
        ),
        path=name,
    )


def stands_twice(path: str, line: int, first: int, name: str) -> Mistake:
    """The mistake of a key that stands twice."""
    return Mistake(
        message=message(
            "key_twice", "{key} stands twice, first on line {first}", key=path, first=first
        ),
        path=path,
        line=line,
        file=name,
        how_to_fix=message("keep_one", "keep one of them"),
    )


def written_number(text: str) -> float:
    """A number that knows how it was written."""
    return WrittenNumber(text)
