"""Which file a document becomes, by the ending of its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from tuneplan.contract.values import nearest
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message
from tuneplan.report.html import html
from tuneplan.report.markdown import markdown
from tuneplan.report.report_answer import document_json
from tuneplan.report.view import Document
from tuneplan.report.workbook import workbook


def _json(document: Document) -> bytes:
    text = json.dumps(document_json(document), ensure_ascii=False, indent=2, allow_nan=False)
    return (text + "\n").encode()


_WRITERS: Final[dict[str, Callable[[Document], bytes]]] = {
    ".html": lambda document: html(document).encode(),
    ".md": lambda document: markdown(document).encode(),
    ".json": _json,
    ".xlsx": workbook,
}
ENDINGS: Final = tuple(_WRITERS)


def refuse_unknown_endings(names: list[str]) -> None:
    """Refuse files that a document cannot become, all of them at once.

    Raises:
        InvalidRequest: With the nearest ending.
    """
    mistakes = [
        Mistake(
            message=message(
                "unknown_report_format",
                "{name}: a report is written as {endings}; the ending of the name says which",
                name=name,
                endings=", ".join(ENDINGS),
            ),
            path="--to",
            value=name,
            near=tuple(nearest(PurePath(name).suffix.lower(), ENDINGS)),
            how_to_fix=message("report_ending", "write --to report.html"),
        )
        for name in names
        if PurePath(name).suffix.lower() not in _WRITERS
    ]
    if mistakes:
        raise InvalidRequest(mistakes)


def document_file(document: Document, name: str) -> bytes:
    """The content of a file of that name.

    Raises:
        MissingExtra: The ``report`` extra is not installed (HTML and XLSX).
    """
    return _WRITERS[PurePath(name).suffix.lower()](document)
