"""Documents for tests: our own samples, written as their users write them."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from tuneplan.formats.foreign import Fate, ForeignDocument, Imported
from tuneplan.formats.reading import parse_foreign
from tuneplan.formats.registry import format_named


def document(text: str, name: str = "train.yaml") -> ForeignDocument:
    """A configuration from its text."""
    return parse_foreign(dedent(text), name=name)


def nothing_beside(_name: str) -> None:
    """No other file is there."""


def loaded(
    format_name: str, text: str, *, name: str = "train.yaml", version: str | None = None
) -> Imported:
    """A configuration read by a format."""
    module = format_named(format_name)
    return module.load(document(text, name), companion=nothing_beside, version=version)


def said(found: Imported, job_key: str) -> Any:
    """What the job says under a key; None where it says nothing."""
    holder: Any = found.job
    for name in job_key.split("."):
        if not isinstance(holder, dict) or name not in holder:
            return None
        holder = holder[name]
    return holder


def fate(found: Imported, path: str) -> Fate:
    """What became of a key."""
    return next(key.fate for key in found.keys if key.path == path)


def not_understood(found: Imported) -> list[str]:
    """Keys that the format does not know."""
    return [key.path for key in found.with_fate(Fate.NOT_UNDERSTOOD)]
