"""A document as Markdown: for a wiki, a ticket or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tuneplan.language import say
from tuneplan.report.dates import date_text
from tuneplan.report.view import Block, Chart, Column, Document, Facts, Paragraph, Points, Table

# Signs that would be read as markup where they stand in text.
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(document: Document) -> str:
    """The whole document; pictures are told by their captions."""
    return "\n\n".join(_parts(document)) + "\n"


def _parts(document: Document) -> Iterator[str]:
    yield f"# {_plain(document.title)}"
    yield _plain(under_title(document))
    for section in document.sections:
        yield f"## {_plain(section.title)}"
        for block in section.blocks:
            yield from _block(block)


def under_title(document: Document) -> str:
    """What the document is, what made it, and when."""
    return say("{what}. {made_by}", what=document.subtitle, made_by=made_by(document))


def made_by(document: Document) -> str:
    """What made the document, and when."""
    return say(
        "Made by tuneplan {version} on {date}.",
        version=document.tuneplan_version,
        date=date_text(document.as_of),
    )


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        text = _plain(block.text)
        loud = block.tone in ("loud", "fits", "tight", "does_not_fit")
        yield f"**{text}**" if loud else text
    elif isinstance(block, Points):
        yield f"### {_plain(block.title)}"
        yield "\n".join(f"- {_plain(item)}" for item in block.items)
    elif isinstance(block, Facts):
        yield f"### {_plain(block.title)}"
        rows = [(row.name, row.cell.text, row.remark) for row in block.rows]
        heads = (Column(name=""), Column(name="", amounts=1), Column(name=""))
        yield _table(heads, rows)
    elif isinstance(block, Table):
        yield f"### {_plain(block.title)}"
        yield _table(block.columns, [[cell.text for cell in row] for row in block.rows])
        if block.note:
            yield _plain(block.note)
    elif isinstance(block, Chart):
        yield f"*{_plain(block.title)}: {_plain(block.caption)}*"


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    heads = " | ".join(_plain(column.name) for column in columns)
    rules = " | ".join("---:" if column.amounts else "---" for column in columns)
    lines = [f"| {heads} |", f"| {rules} |"]
    lines += ["| " + " | ".join(_plain(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text as text: no sign of it is markup, and it stays on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
