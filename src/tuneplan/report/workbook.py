"""A document as an XLSX workbook: a sheet a section, with formulas that can be followed.

Low, likely and high are columns of their own, so that a person of finance can go on from any of
them. Text stays text whatever it begins with: nothing of a job is ever a formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.frozen import dataclass
from tuneplan.language import message, say
from tuneplan.report.cached_values import with_values
from tuneplan.report.markdown import made_by
from tuneplan.report.theme import ALARM, FITS, INK, MUTED, SERIES, TIGHT
from tuneplan.report.view import (
    Amount,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Paragraph,
    Points,
    Section,
    Table,
)

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

_KEY: Final = re.compile(r"\{([^{}]+)\}")
_FORBIDDEN: Final = re.compile(r"[\[\]:*?/\\']")
_WIDEST, _NARROWEST = 46, 9
_ROWS_OF_A_PAGE: Final = 50
_MANY: Final = 5  # a table of so many columns wraps its last one too
_LINE: Final = 15.0  # points of a line of 11 point type
_TALL: Final = {"title": 22.0, "heading": 18.0}
_WRAPS: Final = ("words", "plain", "number head", "head")
_RUNS_ON: Final = ("title", "given", "heading", "quiet", "last words", "beside")
_BOLD: Final = ("head", "loud", "fits", "tight", "does_not_fit")
_GIVEN: Final = SERIES[0]
_TONES: Final = {
    "fits": FITS,
    "tight": TIGHT,
    "does_not_fit": ALARM,
    "quiet": MUTED,
    "given": _GIVEN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What stands at a place of a sheet; ``look`` is a name of ``_LOOKS`` or a tone."""

    row: int
    column: int
    content: str | Amount
    look: str = "plain"


def workbook(document: Document) -> bytes:
    """The file's bytes.

    Raises:
        MissingExtra: The ``report`` extra is not installed.
    """
    try:
        from openpyxl import Workbook
    except ImportError:
        purpose = str(message("writing_xlsx", "writing XLSX"))
        raise MissingExtra(extra="report", purpose=purpose) from None
    book = Workbook()
    book.remove(book.worksheets[0])
    _describe(book, document)
    sheets = [
        (_sheet_name(section, place), section, list(_places(document, section, first=not place)))
        for place, section in enumerate(document.sections)
    ]
    where = {
        item.content.key: f"'{name}'!${_letter(item.column)}${item.row}"
        for name, _, items in sheets
        for item in items
        if isinstance(item.content, Amount) and item.content.key
    }
    values: dict[tuple[str, str], float] = {}
    for name, _, items in sheets:
        sheet = book.create_sheet(name)
        for item in items:
            formula = _write(sheet, item, where, name)
            if formula and isinstance(item.content, Amount):
                values[(name, f"{_letter(item.column)}{item.row}")] = item.content.value
        _lay_out(sheet, items)
    written = BytesIO()
    book.save(written)
    names = [name for name, _, _ in sheets]
    return with_values(written.getvalue(), names, values, day=document.as_of)


def _describe(book: Any, document: Document) -> None:
    day = datetime.fromisoformat(document.as_of)
    book.properties.creator = f"tuneplan {document.tuneplan_version}"
    book.properties.title = document.title
    book.properties.created = book.properties.modified = day
    book.calculation.fullCalcOnLoad = True


def _sheet_name(section: Section, place: int) -> str:
    """At most 31 signs, none of those that a sheet's name must not have."""
    name = _FORBIDDEN.sub(" ", section.title).strip()[:31]
    return name or str(place + 1)


def _colors_told() -> str:
    return say("Blue figures are given; black ones are computed from them by formulas.")


def _letter(column: int) -> str:
    """1 is A, 27 is AA."""
    letters = ""
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _places(document: Document, section: Section, *, first: bool) -> Iterator[Placed]:
    row = 1
    if first:
        yield Placed(row=1, column=1, content=document.title, look="title")
        yield Placed(row=2, column=1, content=document.subtitle, look="quiet")
        yield Placed(row=3, column=1, content=made_by(document), look="quiet")
        yield Placed(row=4, column=1, content=_colors_told(), look="given")
        row = 6
    else:
        yield Placed(row=1, column=1, content=section.title, look="title")
        row = 3
    beside_facts = any(isinstance(block, Facts) for block in section.blocks)
    for place, block in enumerate(section.blocks, start=1):
        placed = list(_block(block, row, runs_on=beside_facts))
        yield from placed
        follows = section.blocks[place : place + 1]
        if placed:
            sentences = isinstance(block, Paragraph) and all(
                isinstance(one, Paragraph) for one in follows
            )
            row = max(item.row for item in placed) + (1 if sentences else 2)


def _block(block: Block, row: int, *, runs_on: bool) -> Iterator[Placed]:
    """``runs_on``: words in the last column of a table do not widen it, for facts share it."""
    if isinstance(block, Paragraph):
        yield Placed(row=row, column=1, content=block.text, look=f"line {block.tone}")
    elif isinstance(block, Points):
        yield Placed(row=row, column=1, content=block.title, look="heading")
        for line, item in enumerate(block.items, start=row + 1):
            yield Placed(row=line, column=1, content=item, look="line plain")
    elif isinstance(block, Facts):
        yield from _facts(block, row)
    elif isinstance(block, Table):
        yield from _table(block, row, runs_on=runs_on)
    elif isinstance(block, Chart):
        return


def _facts(block: Facts, row: int) -> Iterator[Placed]:
    yield Placed(row=row, column=1, content=block.title, look="heading")
    numbers = any(fact.cell.amounts for fact in block.rows)
    heads = (say("low"), say("likely"), say("high"), say("unit"), say("remark"))
    if numbers:
        for column, head in enumerate(heads, start=2):
            look = "number head" if column < 5 else "head"
            yield Placed(row=row, column=column, content=head, look=look)
    for line, fact in enumerate(block.rows, start=row + 1):
        yield Placed(row=line, column=1, content=fact.name)
        amounts = fact.cell.amounts
        if not amounts:
            look = "beside" if numbers else "value"
            yield Placed(row=line, column=2, content=fact.cell.text, look=look)
        first = 2 if len(amounts) == 3 else 3
        for column, amount in enumerate(amounts, start=first):
            yield Placed(row=line, column=column, content=amount)
        if amounts and amounts[0].unit:
            yield Placed(row=line, column=5, content=amounts[0].unit, look="quiet")
        if fact.remark:
            yield Placed(row=line, column=6, content=fact.remark, look="quiet")


def _table(block: Table, row: int, *, runs_on: bool) -> Iterator[Placed]:
    yield Placed(row=row, column=1, content=block.title, look="heading")
    place = 1
    starts = []
    for column in block.columns:
        starts.append(place)
        yield from _head(column, row + 1, place)
        place += max(1, column.amounts)
    for line, cells in enumerate(block.rows, start=row + 2):
        for start, column, cell in zip(starts, block.columns, cells, strict=True):
            final = runs_on and len(block.columns) < _MANY and column is block.columns[-1]
            yield from _cell(cell, column, line, start, words="last words" if final else "words")
    if block.note:
        last = row + 2 + len(block.rows)
        yield Placed(row=last, column=1, content=block.note, look="line quiet")


def _head(column: Column, row: int, place: int) -> Iterator[Placed]:
    unit = f" ({column.unit})" if column.unit else ""
    if column.amounts < 3:
        look = "number head" if column.amounts else "head"
        yield Placed(row=row, column=place, content=f"{column.name}{unit}", look=look)
        return
    for offset, part in enumerate((say("low"), say("likely"), say("high"))):
        text = f"{column.name}, {part}{unit}"
        yield Placed(row=row, column=place + offset, content=text, look="number head")


def _cell(cell: Cell, column: Column, row: int, start: int, *, words: str) -> Iterator[Placed]:
    if not cell.amounts:
        place = start + (1 if column.amounts == 3 else 0)
        yield Placed(row=row, column=place, content=cell.text, look=words)
        return
    place = start if len(cell.amounts) == 3 or column.amounts < 3 else start + 1
    for offset, amount in enumerate(cell.amounts):
        yield Placed(row=row, column=place + offset, content=amount)


def _write(sheet: Worksheet, item: Placed, where: Mapping[str, str], name: str) -> bool:
    """Write one cell; whether it is a formula."""
    cell: Any = sheet.cell(row=item.row, column=item.column)
    content = item.content
    _dress(cell, item)
    if isinstance(content, str):
        _write_text(cell, content)
        return False
    cell.number_format = number_format(content)
    formula = _resolved(content.formula, where, name)
    cell.value = content.value if formula is None else f"={formula}"
    if formula is None:
        _color(cell, _GIVEN)
    return formula is not None


def _color(cell: Any, color: str) -> None:
    from copy import copy

    font = copy(cell.font)
    font.color = color.lstrip("#")
    cell.font = font


def _write_text(cell: Any, text: str) -> None:
    """Text that stays text: marked as such, and quoted where a spreadsheet would compute it."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    clean = ILLEGAL_CHARACTERS_RE.sub("", text)
    cell.value = clean
    cell.data_type = "s"
    if clean.lstrip()[:1] in ("=", "+", "-", "@"):
        cell.quotePrefix = True


def _resolved(formula: str, where: Mapping[str, str], name: str) -> str | None:
    """The formula with places for keys; None where one of them is not in the document."""
    if not formula or any(key not in where for key in _KEY.findall(formula)):
        return None
    own = f"'{name}'!"
    return _KEY.sub(lambda found: where[found[1]].removeprefix(own), formula)


def number_format(amount: Amount) -> str:
    """The format that reads as the document's text does."""
    _, point, decimals = amount.text.partition(".")
    digits = "#,##0" + (f".{'0' * len(decimals)}" if point else "")
    return f"+{digits};-{digits};0" if amount.text.startswith("+") else digits


def _dress(cell: Any, item: Placed) -> None:
    from openpyxl.styles import Alignment, Border, Font, Side

    look = item.look
    color = next((c for tone, c in _TONES.items() if look.endswith(tone)), INK).lstrip("#")
    bold = look in ("title", "heading") or look.endswith(
        ("head", "loud", "fits", "tight", "not_fit")
    )
    size = {"title": 15, "heading": 12}.get(look, 11)
    cell.font = Font(name="Calibri", size=size, bold=bold, color=color)
    right = isinstance(item.content, Amount) or look == "number head"
    cell.alignment = Alignment(
        horizontal="right" if right else "left",
        vertical="top",
        wrap_text=look in _WRAPS and isinstance(item.content, str),
        indent=1 if item.column > 1 and not right else 0,
    )
    if look.endswith("head"):
        cell.border = Border(bottom=Side(style="thin", color=MUTED.lstrip("#")))


def _lay_out(sheet: Worksheet, items: list[Placed]) -> None:
    """Widths and heights that suit what is read, a page that prints on one page's width."""
    from openpyxl.worksheet.properties import PageSetupProperties

    widths = _widths(items)
    for column, width in widths.items():
        sheet.column_dimensions[_letter(column)].width = width
    for row, height in _heights(items, widths).items():
        sheet.row_dimensions[row].height = height
    sheet.sheet_view.showGridLines = False
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.paperSize = 9  # A4
    on_one_page = max(item.row for item in items) <= _ROWS_OF_A_PAGE
    sheet.page_setup.fitToWidth, sheet.page_setup.fitToHeight = 1, int(on_one_page)
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)


def _widths(items: Sequence[Placed]) -> dict[int, float]:
    """Columns to their widths, in signs; what runs on to the right asks for nothing."""
    widths: dict[int, float] = {}
    for item in items:
        shown = item.content if isinstance(item.content, str) else item.content.text
        if item.look in _RUNS_ON or item.look.startswith("line"):
            continue
        parts = shown.split() if item.look.endswith("head") else [shown]
        wanted = max(map(_columns, parts), default=0) + 3
        widths[item.column] = max(widths.get(item.column, _NARROWEST), min(wanted, _WIDEST))
    return widths


def _heights(items: Sequence[Placed], widths: Mapping[int, float]) -> dict[int, float]:
    """Rows to their heights in points, so that wrapped text is seen whole."""
    heights: dict[int, float] = {}
    for item in items:
        if isinstance(item.content, str) and item.look in _WRAPS:
            lines = _lines(item.content, int(widths.get(item.column, _NARROWEST)) - 1)
            height = max(1, lines) * _LINE
        else:
            height = _TALL.get(item.look, _LINE)
        heights[item.row] = max(heights.get(item.row, 0.0), height)
    return heights


def _lines(text: str, width: int) -> int:
    """Lines of a text that wraps between words, a long word anywhere."""
    lines, used = 1, 0
    for word in text.split():
        length = _columns(word)
        if used and used + 1 + length > width:
            lines, used = lines + 1, 0
        lines += max(0, length - 1) // width
        used += length + (1 if used else 0)
    return lines


def _columns(text: str) -> int:
    """How wide a text is; signs of Chinese take two columns."""
    return sum(2 if ord(sign) > 0x2E80 else 1 for sign in text)
