"""The values of a workbook's formulas, for readers that show a file without computing it.

A mail program's preview, a phone and most libraries show what was last computed; a file that no
spreadsheet has opened yet holds formulas alone, and they show nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_FORMULA: Final = re.compile(r'(<c r="([A-Z]+[0-9]+)"[^>]*><f>[^<]*</f>)<v ?(?:/>|></v>)')
_SAVED: Final = re.compile(rb"(<dcterms:modified [^>]*>)[^<]*")
_SHEET: Final = re.compile(r"xl/worksheets/sheet([0-9]+)\.xml")


def with_values(
    book: bytes, names: Sequence[str], values: Mapping[tuple[str, str], float], *, day: str
) -> bytes:
    """The workbook with the value of each formula beside it; the same content is the same file.

    Args:
        book: An XLSX file.
        names: Its sheets in order.
        values: (sheet, place) to value.
        day: When it was made, ISO 8601.
    """
    written = BytesIO()
    with ZipFile(BytesIO(book)) as old, ZipFile(written, "w", ZIP_DEFLATED) as new:
        for entry in old.infolist():
            content = old.read(entry)
            found = _SHEET.fullmatch(entry.filename)
            if found:
                content = _filled(content.decode(), names[int(found[1]) - 1], values).encode()
            if entry.filename == "docProps/core.xml":
                content = _SAVED.sub(rb"\g<1>" + f"{day}T00:00:00Z".encode(), content)
            stored = ZipInfo(entry.filename)  # 1980: the same document is the same file
            stored.compress_type = ZIP_DEFLATED
            new.writestr(stored, content)
    return written.getvalue()


def _filled(sheet: str, name: str, values: Mapping[tuple[str, str], float]) -> str:
    def beside(found: re.Match[str]) -> str:
        value = values.get((name, found[2]))
        return found[0] if value is None else f"{found[1]}<v>{value!r}</v>"

    return _FORMULA.sub(beside, sheet)
