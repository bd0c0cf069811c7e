"""Releases of the libraries by date, and versions as people write them."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from packaging.version import InvalidVersion, Version

from tuneplan.frozen import dataclass
from tuneplan.units import date_in

AS_OF: Final = "2026-11-30"
_OTHER_NAMES: Final = {
    "bnb": "bitsandbytes",
    "lit-gpt": "litgpt",
    "llama-factory": "llamafactory",
    "swift": "ms-swift",
    "pytorch": "torch",
}
_DOTTED: Final = re.compile(r"v?(\d+(?:\.\d+)+(?:[.\-+]?[A-Za-z][\w.]*)?(?:\+\w+)?)")
_WHOLE: Final = re.compile(r"v?\d{1,3}")  # more digits are a commit, or nonsense
_COMMIT: Final = re.compile(r"\b([0-9a-f]{7,8})[0-9a-f]{0,32}\b")


@dataclass(frozen=True, slots=True)
class Release:
    """One release (or a commit that a published run names) and its day."""

    package: str
    version: str
    date: str
    source: str


@lru_cache(maxsize=1)
def releases() -> Mapping[str, tuple[Release, ...]]:
    """Every known release by library, oldest first (``data/releases.csv``)."""
    table: dict[str, list[Release]] = {}
    text = (Path(__file__).with_name("data") / "releases.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        release = Release(row["library"], row["version"], row["date"], row["source"])
        table.setdefault(release.package, []).append(release)
    return MappingProxyType({library: tuple(rows) for library, rows in table.items()})


def library_name(name: str) -> str:
    """The name under which a library stands in the tables (``bnb`` is ``bitsandbytes``)."""
    key = name.strip().lower().replace("_", "-")
    return _OTHER_NAMES.get(key, key)


@lru_cache(maxsize=4096)
def read_version(text: str | None) -> Version | None:
    """The version in a messy string, development and pre-release marks taken off.

    ``5.0.0.dev0`` is the code that became 5.0.0 and counts as it; ``v0.4 era`` reads as 0.4;
    a commit or a bare word has no version (None).
    """
    if not text:
        return None
    if _WHOLE.fullmatch(text.strip()):
        return Version(text.strip())
    match = _DOTTED.search(text)
    if match is None:
        return None
    try:
        version = Version(match[1])
    except InvalidVersion:
        digits = re.match(r"\d+(?:\.\d+)+", match[1])
        version = Version(digits[0]) if digits else Version("0")
    return Version(version.base_version)


def read_date(text: str | None) -> str | None:
    """An ISO day in a string: ``2024-03-18``, ``2024-03`` (its last day), ``Feb-Mar 2024``."""
    if not text:
        return None
    found = date_in(text)
    return f"{found}-28" if found and len(found) == len("2024-03") else found


def read_software(text: str) -> Mapping[str, str]:
    """Library versions in a string such as ``torch 2.4.1; transformers 4.45.2; bnb 0.43.3``."""
    found: dict[str, str] = {}
    for part in re.split(r"[;,]", text):
        match = re.match(r"\s*([A-Za-z][\w\-]*)[\s=]+(v?\d[\w.+]*)\s*$", part)
        if match is not None and library_name(match[1]) in releases():
            found[library_name(match[1])] = match[2]
    return MappingProxyType(found)


@lru_cache(maxsize=4096)
def newest_release(library: str, *, on: str = AS_OF) -> Release | None:
    """The newest release on a day; the oldest known where the day lies before all.

    None where one later release is all that is known (unsloth): the day alone decides then.
    """
    rows = [row for row in releases().get(library, ()) if read_version(row.version) is not None]
    known = [row for row in rows if row.date <= on]
    if not known and len(rows) < 2:
        return None
    known = known or rows[:1]
    return max(known, key=lambda row: read_version(row.version) or Version("0"))


@lru_cache(maxsize=64)
def known_span(library: str) -> tuple[Release, Release] | None:
    """The lowest and the highest version known of a library; None where none is."""
    rows = [row for row in releases().get(library, ()) if read_version(row.version) is not None]
    if not rows:
        return None
    rows.sort(key=lambda row: read_version(row.version) or Version("0"))
    return rows[0], rows[-1]


@lru_cache(maxsize=4096)
def release_date(library: str, version: str) -> str | None:
    """The day of a version: of the release itself, else of the newest below it, else the oldest.

    A commit hash is looked up among the commits that published runs name. Date-like versions
    (unsloth's ``2025.8.4``) name their own month.
    """
    wanted = read_version(version)
    if wanted is None:
        return _commit_date(library, version) or read_date(version)
    if wanted.major >= 2000:
        return f"{wanted.major}-{max(wanted.minor, 1):02d}-28"
    below = [
        (numbered, row.date)
        for row in releases().get(library, ())
        if (numbered := read_version(row.version)) is not None and numbered <= wanted
    ]
    span = known_span(library)
    return max(below)[1] if below else span[0].date if span else None


def _commit_date(library: str, text: str) -> str | None:
    hashes = {match[1][:7] for match in _COMMIT.finditer(text)}
    for row in releases().get(library, ()):
        if read_version(row.version) is None and row.version[:7] in hashes:
            return row.date
    return None


@lru_cache(maxsize=512)
def model_published(model_type: str, vocab_size: int) -> str | None:
    """The day on which the first model of a type was public: no run of it is older.

    A row with a vocabulary is of a later generation of its type (Llama 3 has 128,256 entries).
    """
    text = (Path(__file__).with_name("data") / "model_types.csv").read_text("utf-8")
    days = [
        row["date"]
        for row in csv.DictReader(text.splitlines())
        if row["model_type"] == model_type and row["vocab_size"] in ("", str(vocab_size))
    ]
    return max(days, default=None)
