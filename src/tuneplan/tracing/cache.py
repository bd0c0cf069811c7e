"""Traces that were made before, by the content of what was asked and of what answered."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.tracing.wire import (
    Traced,
    TraceRequest,
    read_traced,
    request_document,
    traced_document,
)

_MOST_FILES: Final = 300
_ENDING: Final = ".json.gz"


@dataclass(frozen=True, slots=True)
class TraceCache:
    """A folder of traces; what cannot be read or written is as if it were not there.

    Each job has a folder, and in it a file for each set of library versions.
    """

    folder: Path

    def exists(self) -> bool:
        """Whether any trace was ever kept."""
        return self.folder.is_dir()

    def get(self, request: TraceRequest, versions: Mapping[str, str]) -> Traced | None:
        """The trace of exactly this job with exactly these libraries."""
        return _read(self._path(request, versions))

    def newest(self, request: TraceRequest, versions: Mapping[str, str]) -> Traced | None:
        """The trace with these libraries, else the newest with any."""
        folder = self.folder / job_key(request)
        if not folder.is_dir():
            return None
        found = self.get(request, versions)
        others = sorted(folder.glob(f"*{_ENDING}"), key=_age, reverse=True)
        return found or next((one for one in map(_read, others) if one is not None), None)

    def put(self, request: TraceRequest, versions: Mapping[str, str], traced: Traced) -> None:
        """Keep a trace; the oldest go where there are too many."""
        path = self._path(request, versions)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with (
                os.fdopen(number, "wb") as raw,
                gzip.open(raw, "wt", encoding="utf-8", compresslevel=3) as file,
            ):
                json.dump(traced_document(traced), file)
            Path(name).replace(path)
            self._tidy()
            os.utime(self.folder)  # tells who remembers answers that a trace may have changed them

    def _tidy(self) -> None:
        files = sorted(self.folder.glob(f"*/*{_ENDING}"), key=_age)
        for old in files[:-_MOST_FILES]:
            old.unlink(missing_ok=True)

    def _path(self, request: TraceRequest, versions: Mapping[str, str]) -> Path:
        return self.folder / job_key(request) / f"{_digest(dict(versions))}{_ENDING}"


def _age(path: Path) -> float:
    return path.stat().st_mtime


def _read(path: Path) -> Traced | None:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return read_traced(json.load(file), from_cache=True)
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError):
        return None


def job_key(request: TraceRequest) -> str:
    """A digest of the job and of the code that traces; what the model is called does not count."""
    plain = replace(request.architecture, name="", hf_id=None, source="")
    document = request_document(replace(request, architecture=plain))
    return _digest({"request": document, "code": code_digest()})


def _digest(content: Mapping[str, object]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the code that traces."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
