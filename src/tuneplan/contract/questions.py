"""How a question about a job reads its keys and tells a mistake."""

from __future__ import annotations

from typing import Any

from tuneplan.contract.job import JobFile
from tuneplan.contract.section import Section
from tuneplan.contract.values import Choice
from tuneplan.errors import Mistake
from tuneplan.language import Message


def get(job: JobFile, path: str) -> Any:
    """The value at a key path, None where it or its section is blank."""
    value: Any = job
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def is_blank(section: Section | None) -> bool:
    """Whether a section says nothing: absent, or every key of it blank."""
    if section is None:
        return True
    return all(getattr(section, name) is None for name in type(section).model_fields)


def mistake_at(path: str, text: Message, fix: Message, *, job: JobFile) -> Mistake:
    """A mistake at a key, with what stands there."""
    value = get(job, path)
    simple = value if isinstance(value, str | int | float | bool) else None
    return Mistake(message=text, path=path, value=simple, how_to_fix=fix)


def methods_of(job: JobFile) -> tuple[str, ...]:
    """The methods that may be meant; empty where none is stated."""
    if isinstance(job.method, Choice):
        return job.method.values
    return (job.method,) if job.method else ()
