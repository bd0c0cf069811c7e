"""Reading the log of a run: text of any size, of which the end counts."""

from __future__ import annotations

import sys
from collections import deque
from typing import IO, Final

from tuneplan.contract.file_text import opened
from tuneplan.errors import UnreadableFile
from tuneplan.language import message

_CHUNK: Final = 2**20
_CHUNKS_KEPT: Final = 4  # MiB from the end: tracebacks of many ranks and their last progress


def read_log_file(name: str) -> tuple[str, int]:
    """The end of a log as text, and the number of its first line; ``-`` is standard input.

    Bytes that are no UTF-8 are replaced: a progress bar cut in two is no reason to refuse a log.

    Raises:
        UnreadableFile: It is absent, a folder, or may not be read.
    """
    try:
        if name == "-":
            return _end_of(sys.stdin.buffer)
        with opened(name) as file:
            return _end_of(file)
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        text = message(
            "log_unreadable", "{path} cannot be read: {reason}", path=name, reason=reason
        )
        raise UnreadableFile(text, path=name) from None


def _end_of(file: IO[bytes]) -> tuple[str, int]:
    kept: deque[bytes] = deque(maxlen=_CHUNKS_KEPT)
    dropped_lines = 0
    while chunk := file.read(_CHUNK):
        if len(kept) == _CHUNKS_KEPT:
            dropped_lines += kept[0].count(b"\n")
        kept.append(chunk)
    content = b"".join(kept)
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return content.decode(encoding, errors="replace"), dropped_lines + 1
