"""Data that a configuration names: files that are there are the job's data, other names are not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tuneplan.formats.foreign import ForeignDocument
from tuneplan.language import Message, message

NO_DATA_HERE: Final[Message] = message(
    "data_not_here",
    "the data set is not here: state data.num_samples and data.mean_tokens, or give its files",
)
_ENDINGS: Final = (
    *(".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz", ".zst"),
)


def local_files(names: Iterable[str], document: ForeignDocument) -> tuple[str, ...]:
    """Those of the names that are files of samples, beside the configuration or where we stand.

    Paths that hold beside the configuration stay as written; the others become absolute.
    """
    beside = Path(document.file).parent
    found = []
    for name in names:
        if not name.lower().endswith(_ENDINGS):
            continue
        if _is_file(beside / name):
            found.append(name)
        elif _is_file(Path(name)):
            found.append(str(Path(name).absolute()))
    return tuple(dict.fromkeys(found))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
