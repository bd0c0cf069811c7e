"""Mistakes as text for people and as a document for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tuneplan.contract import SCHEMA_VERSION
from tuneplan.contract.plain_json import json_value
from tuneplan.errors import Mistake
from tuneplan.language import say

_MOST_SHOWN: Final = 50


def errors_text(mistakes: Sequence[Mistake]) -> str:
    """One paragraph a mistake: where, what, nearest choices, how to fix."""
    lines = [line for mistake in mistakes[:_MOST_SHOWN] for line in _paragraph(mistake)]
    if len(mistakes) > _MOST_SHOWN:
        lines += ["", say("and {count} more", count=len(mistakes) - _MOST_SHOWN)]
    if len(mistakes) > 1:
        lines += ["", say("{count} mistakes in all.", count=len(mistakes))]
    return "\n".join(lines)


def errors_document(mistakes: Sequence[Mistake]) -> dict[str, Any]:
    """The same for machines; the shape is the ``errors`` schema."""
    return {
        "schema_version": SCHEMA_VERSION,
        "errors": [_entry(mistake) for mistake in mistakes],
    }


def _entry(mistake: Mistake) -> dict[str, Any]:
    return {
        "code": mistake.message.code,
        "message": str(mistake.message),
        "path": mistake.path,
        "line": mistake.line,
        "column": mistake.column,
        "file": mistake.file,
        "value": json_value(mistake.value),
        "near": list(mistake.near),
        "how_to_fix": str(mistake.how_to_fix) if mistake.how_to_fix else None,
        "places": [_entry(place) for place in mistake.places],
    }


def _paragraph(mistake: Mistake) -> Iterator[str]:
    place = f"{mistake.file}:{mistake.line}" if mistake.file and mistake.line else mistake.file
    path = mistake.path
    if path and mistake.line and not mistake.file:
        path = f"{path}:{mistake.line}" + (f":{mistake.column}" if mistake.column else "")
    where = ": ".join(part for part in (place, path) if part)
    text = str(mistake.message)
    told = not where or where == text or text.startswith(f"{where} ")
    yield text if told else f"{where}: {text}"
    for one in mistake.places:
        yield from (f"    {line}" for line in _paragraph(one))
    if mistake.near:
        yield "    " + say("nearest: {names}", names=", ".join(mistake.near))
    if mistake.how_to_fix is not None:
        yield "    " + say("to fix: {fix}", fix=str(mistake.how_to_fix))
