"""The text of a file that a person names: its bytes, its encoding, and why it cannot be read."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Final

from tuneplan.errors import UnreadableFile
from tuneplan.language import Message, message

LARGEST_BYTES: Final = 128 * 1024
_PIPE_PATIENCE_S: Final = 5.0
_OWN_PIPES: Final = ("/dev/", "/proc/")  # those of the shell, <(command), have their writer


def decoded_file(name: str) -> str:
    """The text of a file; ``-`` is standard input.

    Raises:
        UnreadableFile: Absent, a folder, too large, or not text.
    """
    return _decode(_read_bytes(name), name)


def _read_bytes(name: str) -> bytes:
    if not name.strip():
        raise UnreadableFile(
            message("blank_name", "nothing stands where a file is to be named"), path=name
        )
    if name == "-" and sys.stdin is None:
        raise UnreadableFile(message("stdin_closed", "standard input is closed"), path=name)
    try:
        if name == "-":
            content = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with opened(name) as file:
                content = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from None
    if len(content) > LARGEST_BYTES:
        raise UnreadableFile(
            message(
                "too_large",
                "{path} is larger than {limit} kB, too large for a job file; a data set belongs "
                "under data.path",
                path=name,
                limit=LARGEST_BYTES // 1024,
            ),
            path=name,
        )
    return content


def opened(name: str) -> IO[bytes]:
    """A file to read from; a pipe (``mkfifo``) that nobody writes into is not waited for.

    Raises:
        OSError: It cannot be read, or is such a pipe.
    """
    if not Path(name).is_fifo() or name.startswith(_OWN_PIPES):
        return Path(name).open("rb")
    import select

    pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    if not select.select([pipe], [], [], _PIPE_PATIENCE_S)[0]:
        os.close(pipe)
        told = message(
            "pipe_without_writer",
            "it is a pipe, and nothing was written into it for {seconds:.0f} s",
            seconds=_PIPE_PATIENCE_S,
        )
        raise TimeoutError(str(told))
    os.set_blocking(pipe, True)
    return os.fdopen(pipe, "rb")


def unreadable(name: str, error: Exception) -> UnreadableFile:
    """Why a file cannot be read, for people."""
    reasons: dict[type, Message] = {
        FileNotFoundError: message("no_such_file", "there is no file {path}", path=name),
        IsADirectoryError: message(
            "is_a_folder", "{path} is a folder, a job is one file", path=name
        ),
        PermissionError: message("no_permission", "{path} may not be read", path=name),
    }
    fallback = message(
        "cannot_read", "{path} cannot be read: {reason}", path=name[:200], reason=str(error)[:200]
    )
    return UnreadableFile(reasons.get(type(error), fallback), path=name[:200])


def _decode(content: bytes, name: str) -> str:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UnreadableFile(
            message("not_utf8", "{path} is not UTF-8 text; save it as UTF-8", path=name),
            path=name,
            line=line,
        ) from None
