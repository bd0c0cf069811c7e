"""The store of measurements: appended to, searched, exported and imported, never changed.

One SQLite file with a write-ahead log: readers and one writer at a time, others wait. What was
written is on disk before ``append`` returns, and half a row is never seen. Source: sqlite.org
"Write-Ahead Logging", "PRAGMA synchronous".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tuneplan.contract.measurements import measurement_from, measurement_id, measurement_text
from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.measurement import Measurement
from tuneplan.store.migrations import (
    UnknownMigration,
    migrate,
    needs_migration,
    refuse_foreign,
)

_WAIT_S: Final = 60.0
_LONGEST_LINE: Final = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A measurement with its name and the time at which it was kept."""

    id: str
    kept_at: str
    measurement: Measurement


class Store:
    """An open store; use it in a ``with`` block."""

    def __init__(self, path: str | Path) -> None:
        """Open the file, make it if it is absent, and bring its tables up to date.

        Raises:
            UnreadableFile: It is no store, a newer release has changed it, or it cannot be opened.
        """
        self.path = Path(path)
        with _located(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        refuse_foreign(self._connection)
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        if needs_migration(self._connection):
            migrate(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the last one to do so folds the write-ahead log into it."""
        self._connection.close()

    def append(self, measurement: Measurement) -> str:
        """Keep a measurement; the same fact is kept once. Returns its id."""
        return self.append_all([measurement])[0]

    def append_all(self, measurements: Iterable[Measurement]) -> tuple[str, ...]:
        """Keep several at once: all of them, or none."""
        texts = [measurement_text(one) for one in measurements]
        return self._insert(texts)

    def _insert(self, texts: Sequence[str]) -> tuple[str, ...]:
        now = datetime.now(tz=UTC).isoformat(timespec="milliseconds")
        rows = []
        for text in texts:
            one = measurement_from(text)
            model = one.job.get("model")
            rows.append(
                (
                    measurement_id(text),
                    now,
                    one.origin.value,
                    model if isinstance(model, str) else None,
                    one.environment.accelerator,
                    text,
                )
            )
        with _located(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(
                    "INSERT INTO measurements (id, kept_at, origin, model, accelerator, document) "
                    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                    rows,
                )
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        return tuple(row[0] for row in rows)

    def find(self, *, model: str | None = None, accelerator: str | None = None) -> tuple[Kept, ...]:
        """Measurements in the order in which they were kept; None stands for any."""
        with _located(self.path):
            rows = self._connection.execute(
                "SELECT id, kept_at, document FROM measurements "
                "WHERE (?1 IS NULL OR model = ?1) AND (?2 IS NULL OR accelerator = ?2) "
                "ORDER BY number",
                (model, accelerator),
            ).fetchall()
        return tuple(
            Kept(id=name, kept_at=kept_at, measurement=measurement_from(text))
            for name, kept_at, text in rows
        )

    def get(self, prefix: str) -> Kept | None:
        """The one measurement whose id begins with ``prefix``; None where none or several do."""
        with _located(self.path):
            rows = self._connection.execute(
                "SELECT id, kept_at, document FROM measurements WHERE substr(id, 1, ?) = ? LIMIT 2",
                (len(prefix), prefix),
            ).fetchall()
        if len(rows) != 1 or not prefix:
            return None
        name, kept_at, text = rows[0]
        return Kept(id=name, kept_at=kept_at, measurement=measurement_from(text))

    def count(self) -> int:
        """How many measurements are kept."""
        with _located(self.path):
            (number,) = self._connection.execute("SELECT count(*) FROM measurements").fetchone()
        return int(number)

    def export_to(self, file: IO[str]) -> int:
        """Write every measurement as a line of JSON; how many there are."""
        written = 0
        with _located(self.path):
            for (text,) in self._connection.execute(
                "SELECT document FROM measurements ORDER BY number"
            ):
                file.write(text + "\n")
                written += 1
        return written

    def import_from(self, file: IO[str], *, name: str) -> tuple[str, ...]:
        """Keep the measurements of an exported file: all of them, or none.

        Raises:
            InvalidRequest: Every line that is no measurement.
        """
        measurements: list[Measurement] = []
        mistakes: list[Mistake] = []
        for number, line in enumerate(_lines(file, name), start=1):
            if not line.strip():
                continue
            try:
                measurements.append(measurement_from(line, path=name, line=number))
            except InvalidRequest as error:
                mistakes.extend(error.mistakes)
        if mistakes:
            raise InvalidRequest(mistakes)
        return self.append_all(measurements)


def _lines(file: IO[str], name: str) -> Iterator[str]:
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE and not line.endswith("\n"):
            text = message("measurement_line_too_long", "a line of over 64 MiB is no measurement")
            raise InvalidRequest([Mistake(message=text, path=name, line=number)])
        yield line


@contextmanager
def _located(path: Path) -> Iterator[None]:
    """Errors of SQLite and the file system as errors about this file."""
    try:
        yield
    except UnknownMigration as error:
        text = message(
            "store_too_new",
            "{path} was changed by a newer release of tuneplan ({step}): update tuneplan, or name "
            "another file with TUNEPLAN_STORE",
            path=str(path),
            step=str(error),
        )
        raise UnreadableFile(text, path=str(path)) from None
    except (sqlite3.Error, OSError) as error:
        text = message(
            "store_unusable",
            "the store {path} cannot be used: {reason}",
            path=str(path),
            reason=getattr(error, "strerror", None) or str(error),
        )
        raise UnreadableFile(text, path=str(path)) from None
