"""The bundled fact files: CSV with comment lines, read as dictionaries of text."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from tuneplan.errors import CatalogError
from tuneplan.language import message

_DATA: Final = Path(__file__).parent / "data"


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of ``catalog/data/<name>``; lines that start with ``#`` are remarks.

    Raises:
        CatalogError: A row has more or fewer cells than the head.
    """
    text = (_DATA / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    for row in rows:
        if None in row or None in row.values():
            raise CatalogError(
                message(
                    "broken_table",
                    "{file}: a row starting with {cell!r} has the wrong number of cells",
                    file=name,
                    cell=next(iter(row.values())),
                )
            )
    return rows


def number(cell: str) -> float | None:
    """A cell as a number, None where it is empty."""
    return float(cell) if cell else None
