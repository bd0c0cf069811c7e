"""Formats that are read and not written."""

from __future__ import annotations

from tuneplan.errors import CannotExport, Mistake
from tuneplan.language import message


def not_written(name: str) -> CannotExport:
    """The refusal to write a format."""
    text = message(
        "format_not_written", "configurations of {name} are read, not written", name=name
    )
    return CannotExport([Mistake(message=text, value=name)])
