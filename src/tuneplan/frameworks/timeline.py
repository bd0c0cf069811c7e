"""What a framework does by default, by version and date: look-up in ``data/defaults.csv``.

One row is one fact: since which version (inclusive) until which (exclusive) a library holds to a
value, with the file and versions it was read from. Values are short words that the modules of this
room understand.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from packaging.version import Version

from tuneplan.errors import CatalogError
from tuneplan.frameworks.versions import read_version, release_date
from tuneplan.frozen import dataclass
from tuneplan.language import message


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of the table.

    Attributes:
        since, until: First version that shows the value, first that does not; "" = open.
        since_date, until_date: Their days, for reports that give no version.
        confidence: ``high`` = read on both sides of the change.
    """

    package: str
    key: str
    value: str
    since: str
    since_date: str
    until: str
    until_date: str
    source: str
    confidence: str

    @property
    def citation(self) -> str:
        """Library, span of versions and file, for an assumption's ``source``."""
        span = f">= {self.since}" if self.since else "all versions read"
        if self.until:
            span += f", < {self.until}"
        return f"{self.package} {span}: {self.source}"


@lru_cache(maxsize=1)
def facts() -> Mapping[tuple[str, str], tuple[Fact, ...]]:
    """All rows by (library, key), oldest first."""
    table: dict[tuple[str, str], list[Fact]] = {}
    text = (Path(__file__).with_name("data") / "defaults.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        fact = Fact(package=row.pop("library"), **row)
        table.setdefault((fact.package, fact.key), []).append(fact)
    return MappingProxyType({key: tuple(rows) for key, rows in table.items()})


@lru_cache(maxsize=4096)
def look_up(library: str, key: str, version: str, *, date: str = "") -> Fact:
    """The row that holds for a version of a library.

    A version that has no number (a commit, an ``era``) is placed by its date, or by ``date``.

    Raises:
        CatalogError: If the table has no row for the key at all.
    """
    rows = facts().get((library, key))
    if not rows:
        raise CatalogError(
            message(
                "default_missing",
                "the table of defaults has no row {library} / {key}",
                library=library,
                key=key,
            )
        )
    numbered = read_version(version)
    by_number = numbered is not None and numbered.major < 2000
    day = date or release_date(library, version) or "9999"
    for row in rows:
        if by_number and numbered is not None:
            if _within_versions(row, numbered):
                return row
        elif _within_dates(row, day):
            return row
    return (
        rows[0] if by_number and numbered is not None and _before(rows[0], numbered) else rows[-1]
    )


def known(library: str, key: str) -> bool:
    """Whether the table has rows for a key."""
    return (library, key) in facts()


def _within_versions(row: Fact, version: Version) -> bool:
    return (not row.since or version >= Version(row.since)) and (
        not row.until or version < Version(row.until)
    )


def _within_dates(row: Fact, day: str) -> bool:
    return (not row.since_date or day >= row.since_date) and (
        not row.until_date or day < row.until_date
    )


def _before(row: Fact, version: Version) -> bool:
    return bool(row.since) and version < Version(row.since)
