"""The one look at a job before it is worked on for somebody else: which files it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from tuneplan.access.roots import may_name, refused
from tuneplan.errors import InvalidRequest
from tuneplan.spec.stated import StatedJob

# What reading a job tells about it, and the folder that we ourselves have chosen.
_NO_PART_OF_IT: Final = frozenset(["base_path", "notices", "places", "stated"])
# Where the sections of a job are flat in the core.
_SECTION: Final = {"recipe": "", "choices": ""}


def refuse_outside(job: StatedJob, roots: Sequence[Path]) -> None:
    """See that every text of a job that names a file names one that may be read.

    Every text is looked at, whatever its key: a key that names files one day is held to this then.

    Raises:
        InvalidRequest: Each of the others, with its key.
    """
    outside = [
        refused(text, roots, path=key) for key, text in _texts(job) if not may_name(text, roots)
    ]
    if outside:
        raise InvalidRequest(outside)


def _texts(part: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(part, str):
        yield key, part
    elif is_dataclass(part) and not isinstance(part, type):
        for one in fields(part):
            if one.name not in _NO_PART_OF_IT:
                yield from _texts(getattr(part, one.name), _inner(key, one.name))
    elif isinstance(part, Mapping):
        for name, one in part.items():
            yield from _texts(str(name), key)
            yield from _texts(one, _inner(key, str(name)))
    elif isinstance(part, tuple | list | frozenset | set):
        for one in part:
            yield from _texts(one, key)


def _inner(key: str, name: str) -> str:
    name = _SECTION.get(name, name)
    return f"{key}.{name}".strip(".")
