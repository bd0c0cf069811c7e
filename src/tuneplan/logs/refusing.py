"""The one way in which a log is refused: which file, and why."""

from __future__ import annotations

from pathlib import Path

from tuneplan.errors import UnreadableFile
from tuneplan.language import Message, message


def unreadable(path: Path, reason: Message | str, line: int | None = None) -> UnreadableFile:
    """The error for a file that cannot be read; ``reason`` continues "cannot be read: "."""
    text = message(
        "log_unreadable", "{path} cannot be read: {reason}", path=str(path), reason=reason
    )
    return UnreadableFile(text, path=str(path), line=line)


def io_reason(error: OSError) -> str:
    """What the operating system says."""
    return error.strerror or str(error)
