"""The store's tables, as an append-only list of steps; the names of those done are in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

Migration = Callable[[sqlite3.Connection], None]


def m001_measurements(connection: sqlite3.Connection) -> None:
    """Facts by their content; a row can neither be changed nor deleted."""
    connection.execute(
        """CREATE TABLE measurements (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            kept_at TEXT NOT NULL,
            origin TEXT NOT NULL,
            model TEXT,
            accelerator TEXT,
            document TEXT NOT NULL
        ) STRICT"""
    )
    connection.execute("CREATE INDEX by_model ON measurements (model, accelerator)")
    for verb in ("UPDATE", "DELETE"):
        connection.execute(
            f"CREATE TRIGGER no_{verb.casefold()} BEFORE {verb} ON measurements "
            "BEGIN SELECT RAISE(ABORT, 'measurements are kept as they are'); END"
        )


MIGRATIONS: Final[tuple[Migration, ...]] = (m001_measurements,)


def refuse_foreign(connection: sqlite3.Connection) -> None:
    """See that a file is new or ours before anything in it changes.

    Raises:
        sqlite3.DatabaseError: It holds tables of another program.
    """
    tables = {
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
    }
    if tables and "migrations" not in tables:
        raise sqlite3.DatabaseError("it is the database of another program")


def migrate(connection: sqlite3.Connection) -> None:
    """Do the steps that are not done; two processes that open a new file at once do each once.

    Raises:
        UnknownMigration: A newer release has changed the file.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT")
        done = {name for (name,) in connection.execute("SELECT name FROM migrations")}
        _do_the_rest(connection, done)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _do_the_rest(connection: sqlite3.Connection, done: set[str]) -> None:
    unknown = done - {step.__name__ for step in MIGRATIONS}
    if unknown:
        raise UnknownMigration(sorted(unknown)[0])
    for step in MIGRATIONS:
        if step.__name__ not in done:
            step(connection)
            connection.execute("INSERT INTO migrations VALUES (?)", (step.__name__,))


def needs_migration(connection: sqlite3.Connection) -> bool:
    """Whether the file is new, older or newer than this release."""
    try:
        done = {name for (name,) in connection.execute("SELECT name FROM migrations")}
    except sqlite3.OperationalError:
        return True
    return done != {step.__name__ for step in MIGRATIONS}


class UnknownMigration(Exception):
    """The file has been changed by a step that this release does not know."""
