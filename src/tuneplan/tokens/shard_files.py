"""Shards of tokens as files: whole or not there at all.

A file is written under another name beside its place, flushed to the disk, and then renamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.language import message
from tuneplan.tokens.token_rows import TokenRows

_UNFINISHED: Final = ".unfinished"
# Rows of a record batch or row group, as `datasets` writes them (config.DEFAULT_MAX_BATCH_SIZE).
_ROWS_AT_ONCE: Final = 1000


class ShardFormat(StrEnum):
    """What shards are written as."""

    ARROW = "arrow"
    PARQUET = "parquet"


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its place when all of it is on the disk."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{_UNFINISHED}")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process left half written."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A small JSON file; the same value is the same bytes."""
    with written(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")


def write_rows(path: Path, rows: TokenRows, kind: ShardFormat) -> str:
    """Write rows as one shard; gives the SHA-256 of the file.

    Arrow is the stream format that ``datasets`` maps into memory, uncompressed; Parquet is
    compressed with Zstandard.
    """
    arrow = pyarrow()
    lists = {
        name: arrow.ListArray.from_arrays(
            arrow.array(rows.offsets[name], type=arrow.int32()), arrow.array(values)
        )
        for name, values in rows.columns.items()
    }
    table = arrow.table(lists)
    with written(path) as file:
        if kind is ShardFormat.ARROW:
            with arrow.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table, max_chunksize=_ROWS_AT_ONCE)
        else:
            import_module("pyarrow.parquet").write_table(
                table, file, row_group_size=_ROWS_AT_ONCE, compression="zstd"
            )
    with path.open("rb") as file:
        digest = sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def pyarrow() -> Any:
    """The library; raises MissingExtra with the install command."""
    try:
        return import_module("pyarrow")
    except ImportError:
        purpose = str(message("writing_shards", "writing shards of tokens"))
        raise MissingExtra(extra="tokens", purpose=purpose) from None
