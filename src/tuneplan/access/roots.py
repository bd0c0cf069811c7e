"""Whether a text of a request names a file, and whether that file may be read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import Mistake
from tuneplan.language import Message, message

_NOWHERE: Final = Path("/nonexistent")


def inside(path: str | os.PathLike[str], roots: Sequence[Path]) -> bool:
    """Whether a path, links followed, lies in one of the folders."""
    try:
        real = Path(os.path.realpath(path))
    except (OSError, ValueError):
        return False
    return any(real == root or root in real.parents for root in roots)


def own_roots() -> tuple[Path, ...]:
    """What Python and its packages read while they work.

    Where one stands is none of it, though ``python -m`` looks for modules there.
    """
    here = os.path.realpath(".")
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(__file__).parents[1])]
    named += [one for one in sys.path if one and os.path.realpath(one) != here]
    system = ["/usr/lib", "/usr/share/zoneinfo", "/etc/localtime", "/dev/null", "/dev/urandom"]
    system += ["/proc/self", f"/proc/{os.getpid()}", "/proc/cpuinfo", "/proc/meminfo", "/sys"]
    return tuple(Path(os.path.realpath(one)) for one in (*named, *system))


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a tree of mappings and lists: each could name a file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts_of(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts_of(one)


def may_name(text: str, roots: Sequence[Path], *, also: Sequence[Path] = ()) -> bool:
    """Whether a text names no file, or one that may be read.

    Args:
        text: Of a request; what is relative starts at the first of ``roots``.
        roots: Folders that the user allows, links followed.
        also: Others that may be read.
    """
    if "://" in text:
        return False
    try:
        path = (roots[0] if roots else _NOWHERE) / Path(text).expanduser()
        there = path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, nobody's home
        return not text.startswith(("/", "~"))
    if not there and not Path(text).is_absolute() and ".." not in Path(text).parts:
        return not text.startswith("~")  # the name of a model or a chip
    return inside(path, (*roots, *also))


def refused(text: str, roots: Sequence[Path], *, path: str | None = None) -> Mistake:
    """A path that the page refuses, and how to let it be read.

    Args:
        text: The path, as it is asked for.
        roots: Folders that may be read.
        path: The key that names it.
    """
    return Mistake(
        message=not_allowed(text, roots),
        path=path,
        value=text,
        how_to_fix=message(
            "allow_path",
            "start the page with the folder that holds it: tuneplan serve --allow-path FOLDER",
        ),
    )


def not_allowed(path: str, roots: Sequence[Path]) -> Message:
    """Why a path is refused."""
    return message(
        "path_not_allowed",
        "{path} is outside the folders that may be read ({roots})",
        path=path,
        roots=", ".join(str(root) for root in roots) or "none",
    )
