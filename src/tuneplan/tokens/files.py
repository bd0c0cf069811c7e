"""Files as files: which format one has, how it is opened, and why one cannot be read at all."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from tuneplan.errors import Mistake
from tuneplan.language import message

UTF8_MARK: Final = b"\xef\xbb\xbf"
_OTHER_MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_NOT_READ: Final = (".csv", ".tsv", ".parquet", ".arrow", ".zst", ".bz2", ".xz", ".zip", ".txt")


def file_format(path: Path) -> str:
    """``jsonl``, ``json``, ``jsonl.gz`` or ``json.gz``, by what the file holds.

    A ``.json`` file may well hold JSON Lines; the first character and line decide.
    """
    suffix = ".gz" if path.suffix.lower() == ".gz" else ""
    with open_data(path) as file:
        # One read at most: a gzip stream that breaks later must not fail here.
        start = file.read1(64 * 1024).removeprefix(UTF8_MARK).lstrip()
    if start.startswith(b"["):
        return f"json{suffix}"
    first = start.split(b"\n", 1)[0]
    # The file is one object over many lines where the first line alone is the start of one.
    is_open = first.strip() in (b"{", b"") or (first.startswith(b"{") and not _parses(first))
    many_lines = b"\n" in start and path.name.lower().removesuffix(".gz").endswith(".json")
    return f"json{suffix}" if is_open and many_lines else f"jsonl{suffix}"


def _parses(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def unpacked(path: Path, raw: BufferedIOBase) -> BufferedIOBase:
    """The file's content: unpacked where its name ends in ``.gz``."""
    if path.suffix.lower() == ".gz":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    return raw


@contextmanager
def open_data(path: Path) -> Iterator[BufferedIOBase]:
    """The file opened for reading, unpacked."""
    with path.open("rb") as raw, unpacked(path, raw) as file:
        yield file


def unreadable(path: Path) -> Mistake | None:
    """Why a file cannot be read at all, or None: absent, a folder, empty, another format."""
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        return _missing(path)
    try:
        if path.stat().st_size == 0:
            text = message("empty_file", "{path} is empty (0 bytes)", path=str(path))
            return Mistake(message=text, path=str(path))
        return _other_format(path) or _other_content(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        text = message(
            "unreadable_file", "{path} cannot be read: {reason}", path=str(path), reason=reason
        )
        return Mistake(message=text, path=str(path))


def _other_format(path: Path) -> Mistake | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    found = next((suffix for suffix in suffixes[-2:] if suffix in _NOT_READ), None)
    if found is None:
        return None
    return Mistake(
        message=message(
            "format_not_read",
            "{path}: {format} files are not read; JSON Lines and JSON are, also gzipped",
            path=str(path),
            format=found,
        ),
        path=str(path),
        how_to_fix=message("convert_to_jsonl", "write it as JSON Lines: one JSON object a line"),
    )


def _other_content(path: Path) -> Mistake | None:
    with open_data(path) as file:
        start = file.read1(4096)
    encoding = next((name for mark, name in _OTHER_MARKS.items() if start.startswith(mark)), None)
    if encoding is not None:
        text = message(
            "other_encoding",
            "{path} is {encoding}, not UTF-8; save it as UTF-8",
            path=str(path),
            encoding=encoding,
        )
        return Mistake(message=text, path=str(path), line=1)
    if b"\x00" in start:
        text = message("binary_file", "{path} is not text but binary data", path=str(path))
        return Mistake(message=text, path=str(path))
    return None


def _folder(path: Path) -> Mistake:
    inside = sorted(
        str(entry)
        for entry in path.iterdir()
        if entry.name.lower().removesuffix(".gz").endswith((".jsonl", ".json", ".ndjson"))
    )
    return Mistake(
        message=message("is_a_folder", "{path} is a folder; name the files", path=str(path)),
        path=str(path),
        near=tuple(inside[:5]),
    )


def _missing(path: Path) -> Mistake:
    folder = path.parent
    if folder.is_dir():
        names = [entry.name for entry in folder.iterdir() if entry.is_file()]
        text = message("no_such_file", "{path} does not exist", path=str(path))
        near = get_close_matches(path.name, names, n=3, cutoff=0.5)
        return Mistake(
            message=text, path=str(path), near=tuple(str(folder / name) for name in near)
        )
    text = message(
        "no_such_folder",
        "{path} does not exist, nor does the folder {folder}",
        path=str(path),
        folder=str(folder),
    )
    return Mistake(message=text, path=str(path))
