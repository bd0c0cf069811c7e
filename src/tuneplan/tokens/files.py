"""Files as files: which format one has, how it is opened, and why one cannot be read at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from tuneplan.errors import InputError, Mistake
from tuneplan.language import message
from tuneplan.tokens.compression import (
    BrokenStream,
    compression_of,
    unpacked,
    without_compression,
)
from tuneplan.tokens.rows import UTF8_MARK
from tuneplan.tokens.sources import base_name, is_url, matching, opened, size_of

_OTHER_MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
# Format by the end of the name; where it says nothing, the content does.
_BY_NAME: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "txt",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_BY_START: Final = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_BINARY: Final = ("parquet", "arrow")
_NOT_READ: Final = (".bz2", ".xz", ".zip", ".7z", ".tar", ".xlsx", ".xls", ".pdf", ".docx")
_NAMES_OF_DATA: Final = (".jsonl", ".json", ".ndjson", *_BY_NAME)

_CHUNK_BYTES: Final = 1024 * 1024


def file_format(path: str | Path) -> str:
    """``jsonl``, ``json``, ``csv``, ``tsv``, ``txt``, ``parquet``, ``arrow``; ``.gz``, ``.zst``.

    A ``.json`` file may well hold JSON Lines; the first character and line decide.
    """
    name = base_name(path)
    compression = compression_of(name)
    suffix = compression.suffix if compression else ""
    inner = without_compression(name).lower()
    known = _BY_NAME.get(Path(inner).suffix)
    return f"{known or _format_inside(path, inner)}{suffix}"


def _format_inside(path: str | Path, name: str) -> str:
    with open_data(path) as file:
        # One read as a rule: a stream that breaks later must not fail here.
        start = file.read1(64 * 1024)
        begins = start.removeprefix(UTF8_MARK).lstrip().startswith(b"{")
        alone = begins and name.endswith(".json") and _is_one_line(start, file)
    binary = next((kind for mark, kind in _BY_START.items() if start.startswith(mark)), None)
    if binary is not None:
        return binary
    start = start.removeprefix(UTF8_MARK).lstrip()
    if start.startswith(b"[") or alone:
        return "json"
    first = start.split(b"\n", 1)[0]
    # The file is one object over many lines where the first line alone is the start of one.
    is_open = first.strip() in (b"{", b"") or (first.startswith(b"{") and not _parses(first))
    return "json" if is_open and b"\n" in start and name.endswith(".json") else "jsonl"


def _is_one_line(start: bytes, file: BufferedIOBase) -> bool:
    """Whether the file is a single line: then it is an object, perhaps around a table."""
    while start and b"\n" not in start:
        try:
            start = file.read1(_CHUNK_BYTES)
        except (OSError, BrokenStream):
            return False  # told where the stream is read
    return not start.partition(b"\n")[2].strip()


def _parses(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def open_data(path: str | Path) -> Iterator[BufferedIOBase]:
    """The file opened for reading, unpacked."""
    with opened(path) as raw, unpacked(str(path), raw) as file:
        yield file


def data_files(names: Sequence[str | Path]) -> tuple[tuple[str, ...], list[Mistake]]:
    """The files that paths, URLs and folders of ``datasets`` stand for, and what is wrong.

    A URL may have ``*``; of a folder that ``save_to_disk`` wrote its Arrow files are meant.
    """
    files: list[str] = []
    mistakes: list[Mistake] = []
    for name in map(str, names):
        try:
            found = _meant(name)
            if isinstance(found, Mistake):
                mistakes.append(found)
                continue
            mistakes += [problem for problem in map(unreadable, found) if problem is not None]
            files += found
        except InputError as error:
            mistakes += error.mistakes
    if not names:
        mistakes.append(Mistake(message=message("no_files", "name at least one data file")))
    return tuple(files), mistakes


def _meant(name: str) -> tuple[str, ...] | Mistake:
    from tuneplan.tokens.tables import dataset_folder

    if is_url(name):
        found = matching(name)
        if not found:
            text = message("no_match", "{path} matches no file", path=name)
            return Mistake(message=text, path=name)
        return found
    folder = dataset_folder(Path(name)) if _is_folder(name) else None
    if isinstance(folder, tuple):
        return tuple(map(str, folder))
    return folder or (name,)


def _is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - of pathlib's, a name too long is an error


def unreadable(path: str | Path) -> Mistake | None:
    """Why a file cannot be read at all, or None: absent, a folder, empty, another format.

    Raises:
        InputError: The driver of a URL is not installed.
        MissingExtra: The library that unpacks the file is not installed.
    """
    if not is_url(path):
        if _is_folder(path):
            return _folder(Path(path))
        if not os.path.exists(path):  # noqa: PTH110 - of pathlib's, a name too long is an error
            return _missing(Path(path))
    try:
        if size_of(path) == 0:
            text = message("empty_file", "{path} is empty (0 bytes)", path=str(path))
            return Mistake(message=text, path=str(path))
        return _other_format(path) or _other_content(path)
    except (OSError, BrokenStream) as error:
        reason = getattr(error, "strerror", None) or str(error)
        text = message(
            "unreadable_file", "{path} cannot be read: {reason}", path=str(path), reason=reason
        )
        return Mistake(message=text, path=str(path))


def _other_format(path: str | Path) -> Mistake | None:
    name = base_name(path).lower()
    compression = compression_of(name)
    suffixes = Path(without_compression(name)).suffixes[-2:]
    found = next((suffix for suffix in suffixes if suffix in _NOT_READ), None)
    if compression is not None and _BY_NAME.get("".join(suffixes[-1:])) in _BINARY:
        found = f"{suffixes[-1]}{compression.suffix}"
    if found is None:
        return None
    return Mistake(
        message=message(
            "format_not_read",
            "{path}: {format} files are not read; JSON Lines, JSON, CSV, TSV, text (also .gz and "
            ".zst), Parquet and Arrow are",
            path=str(path),
            format=found,
        ),
        path=str(path),
        how_to_fix=message("convert_to_jsonl", "write it as JSON Lines: one JSON object a line"),
    )


def _other_content(path: str | Path) -> Mistake | None:
    with open_data(path) as file:
        start = file.read1(4096)
    if file_format(path) in _BINARY:
        return None
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
        if without_compression(entry.name.lower()).endswith(_NAMES_OF_DATA)
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
