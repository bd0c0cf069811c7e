"""The model of a document: every string formatted, in display order, its values beside it.

Markdown, HTML, JSON and XLSX are made from one ``Document``, so the same figures stand in each.
A formula of an amount is written with the keys of other amounts in braces and the signs and
functions of a spreadsheet: ``{time.steps} * {time.step.likely}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number of a document.

    Attributes:
        text: As it is read, without its unit: ``22.4``.
        value: In ``unit``, not rounded further than the answer has it.
        unit: ``GiB``, ``h``, an ISO 4217 code, ``%``; empty for counts.
        key: What formulas call it; empty where none does.
        formula: How it follows from others; empty for what is given.
    """

    text: str
    value: float
    unit: str = ""
    key: str = ""
    formula: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is read in one place: words, a number, or low, likely and high.

    Attributes:
        link: On the page: the address that the text leads to. Documents leave it out.
        tone: On the page: a verdict, ``quiet``, ``differs``, ``better`` or ``worse``; mostly empty.
        remark: On the page: words under it.
    """

    text: str
    amounts: tuple[Amount, ...] = ()
    link: str = ""
    tone: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name and what it is; ``remark`` says how it is meant."""

    name: str
    cell: Cell
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Sentences.

    Attributes:
        tone: ``plain``, ``loud``, ``quiet``, or a verdict: ``fits``, ``tight``, ``does_not_fit``.
    """

    text: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """A list of sentences."""

    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names beside their values; ``tiles`` are the few that a hurried reader sees."""

    title: str
    rows: tuple[Fact, ...]
    tiles: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: ``amounts`` is 0 for words, 1 for a number, 3 for low, likely and high.

    Attributes:
        link: On the page: the address of the same table, sorted by this column.
        order: ``ascending`` or ``descending`` where it is sorted by this column.
    """

    name: str
    amounts: int = 0
    unit: str = ""
    link: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a head; ``folded`` ones may be closed at first."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture as a Vega-Lite specification, on a wide and on a narrow page.

    Attributes:
        caption: What is seen, for those who do not see it too.
    """

    name: str
    title: str
    caption: str
    specification: Mapping[str, Any]
    narrow: Mapping[str, Any]


Block: TypeAlias = Paragraph | Points | Facts | Table | Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Where one can go, or what one can do, on the page; ``current`` is where one is."""

    text: str
    address: str
    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links beside each other."""

    title: str
    items: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A figure and what it is made of.

    Attributes:
        name: Of the figure in the answer: ``memory.peak_bytes``; empty where it has none.
        value: Empty for what has no value of its own.
        formula: Of the symbols in ``inputs``.
        basis: ``assumed``, ``analytic``, ``traced``, ``calibrated``, ``measured`` in words.
        source: Where the formula or the number comes from.
        inputs: The symbols; a remark says on what each rests.
        link: On the page: the figure explained by itself.
    """

    name: str
    title: str
    value: str = ""
    formula: str = ""
    basis: str = ""
    source: str = ""
    inputs: tuple[Fact, ...] = ()
    children: tuple[Node, ...] = ()
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Figures that open into what they are made of; so many levels are open at first."""

    title: str
    nodes: tuple[Node, ...]
    open_levels: int = 1


PageBlock: TypeAlias = Block | Links | Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part with a heading; ``name`` is the same in every language."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A part of the page, which may hold what no document does."""

    name: str
    title: str
    blocks: tuple[PageBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What is handed on.

    Attributes:
        kind: ``estimate``, ``plan``, ``schedule`` or ``budget``: what is reported.
        as_of: Day of the answer, ISO 8601.
    """

    kind: str
    title: str
    subtitle: str
    as_of: str
    language: str
    tuneplan_version: str
    sections: tuple[Section, ...]

    def cells(self) -> Iterator[Cell]:
        """Every cell, in the order in which it is read."""
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Facts):
                    yield from (row.cell for row in block.rows)
                elif isinstance(block, Table):
                    for row in block.rows:
                        yield from row
