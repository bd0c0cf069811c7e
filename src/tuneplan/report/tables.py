"""Tables, ranges and bars as text: what every report is laid out with.

Rich does the layout and is imported only when a table is drawn. Without colours the text holds no
control characters, so it reads the same in a file, in a pipe and on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tuneplan.contract.parts import MoneyRange, Range
from tuneplan.frozen import dataclass
from tuneplan.report.narrow import FactsOrList, TableOrList
from tuneplan.report.page import Page
from tuneplan.units import DAY_S, GIB, HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from rich.console import RenderableType

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_DASH: Final = " – "
UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        right: Numbers stand to the right.
        style: A colour or weight of rich's, where colours are wanted.
        keep: Never broken over lines.
        width: Exactly so many columns wide.
    """

    name: str
    right: bool = False
    style: str = ""
    keep: bool = False
    width: int | None = None


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, title: str | None = None
) -> RenderableType:
    """A table with a rule under its head; on a narrow page a list, where words would be cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    if title:
        drawn.title, drawn.title_justify, drawn.title_style = title, "left", "bold"
    for column in columns:
        drawn.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            no_wrap=column.keep,
            style=column.style,
            width=column.width,
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    heads = [(column.name, column.keep, column.width) for column in columns]
    return TableOrList(drawn=drawn, heads=heads, rows=rows, title=title)


def heading(text: str) -> RenderableType:
    """A heading of its own line."""
    from rich.text import Text

    return Text(text, style="bold")


def paragraph(text: str, *, style: str = "") -> RenderableType:
    """Text that wraps at the width of the page."""
    from rich.text import Text

    return Text(text, style=style)


def points(items: Sequence[str], *, mark: str = "-") -> RenderableType:
    """A list of sentences, each behind a mark, wrapped under itself."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for item in items:
        grid.add_row(mark, Text(item))
    return grid


def facts(rows: Sequence[tuple[str, str]], *, title: str | None = None) -> RenderableType:
    """Names and what they are, in two columns without a head."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    if title:
        grid.title, grid.title_justify, grid.title_style = title, "left", "bold"
    grid.add_column(overflow="fold", max_width=38)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name), Text(text))
    return FactsOrList(drawn=grid, rows=rows, title=title)


def hanging(lines: Sequence[tuple[int, str, str]]) -> RenderableType:
    """Lines as (indent, style, text); what wraps goes on under its own beginning."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(
        *(Padding(Text(text, style=style), (0, 0, 0, 2 * indent)) for indent, style, text in lines)
    )


def render(blocks: Sequence[RenderableType], page: Page) -> str:
    """The blocks under each other, a blank line between two."""
    from io import StringIO

    from rich.console import Console

    file = StringIO()
    console = Console(
        file=file,
        width=page.width,
        force_terminal=page.colors,
        color_system="standard" if page.colors else None,
        no_color=not page.colors,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for number, block in enumerate(blocks):
        if number:
            console.print()
        console.print(block)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def bar(fraction: float, *, width: int) -> str:
    """A bar that fills ``fraction`` of ``width`` columns, to an eighth of a column."""
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def number_text(value: float, *, digits: int = 3) -> str:
    """A number with ``digits`` significant digits and thousands separators, never an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    decimals = 0
    while abs(value) * 10**decimals < 10 ** (digits - 1) and decimals < 9:
        decimals += 1
    return f"{value:.{decimals}f}"


def joined_text(parts: Sequence[str], unit: str) -> str:
    """``low – likely – high unit``; one figure where the three read the same."""
    text = parts[1] if len(set(parts)) == 1 else _DASH.join(parts)
    return f"{text} {unit}".rstrip()


def _joined(estimate: Range, *, scale: float, unit: str) -> str:
    parts = [number_text(value / scale) for value in (estimate.low, estimate.likely, estimate.high)]
    return joined_text(parts, unit)


def range_text(estimate: Range | None, unit: str = "") -> str:
    """``low – likely – high``, one figure where the three print the same, a dash for unknown."""
    return UNKNOWN if estimate is None else _joined(estimate, scale=1.0, unit=unit)


def bytes_range_text(estimate: Range | None) -> str:
    """A range of sizes in GiB: ``20.1 – 22.4 – 24.9 GiB``."""
    return UNKNOWN if estimate is None else _joined(estimate, scale=GIB, unit="GiB")


def time_range_text(estimate: Range | None) -> str:
    """A range of durations in the unit that suits the likely one."""
    if estimate is None:
        return UNKNOWN
    unit, scale = duration_scale(estimate.likely)
    return _joined(estimate, scale=scale, unit=unit)


def duration_scale(seconds: float) -> tuple[str, float]:
    """The unit that suits a duration, and how many seconds it has."""
    units = (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", MINUTE_S, 2 * HOUR_S))
    for unit, scale, limit in (*units, ("h", HOUR_S, 3 * DAY_S)):
        if seconds < limit:
            return unit, scale
    return "d", DAY_S


def money_range_text(money: MoneyRange | None) -> str:
    """A range of amounts: ``12.30 – 14.00 – 16.20 USD``."""
    if money is None:
        return UNKNOWN
    amounts = [money.low.amount, money.likely.amount, money.high.amount]
    return joined_text([grouped(amount) for amount in amounts], money.likely.currency)


def grouped(amount: str) -> str:
    """An exact amount with thousands separators: ``12,300.00``."""
    return f"{Decimal(amount):,f}"


def stacked(text: str) -> str:
    """``low – likely – high unit`` on two lines: the likely value, and under it the range."""
    parts = text.split(_DASH)
    if len(parts) != 3:
        return text
    low, likely, high = parts
    number, _, unit = high.partition(" ")
    return f"{likely} {unit}".rstrip() + f"\n{low}{_DASH.strip()}{number}"


def bars_table(
    rows: Sequence[tuple[str, float]],
    *,
    whole: float,
    show: Callable[[float], str],
    page: Page,
    title: str,
    heads: tuple[str, str, str],
    total: tuple[str, float] | None = None,
) -> RenderableType:
    """Addends with their share of ``whole`` as bars, in their order, and their sum below.

    A page of less than 60 columns has no room for the bars.
    """
    width = max(10, page.width - 58)
    shown = 4 if page.width >= 60 else 3
    columns = (
        Column(name=heads[0]),
        Column(name=heads[1], right=True, keep=True),
        Column(name=heads[2], right=True, keep=True),
        Column(name="", style="cyan", keep=True),
    )[:shown]
    every = [*rows, *((total,) if total else ())]
    cells = [
        (name, show(value), f"{value / whole:.0%}", bar(value / whole, width=width))[:shown]
        for name, value in every
        if whole > 0
    ]
    return table(columns, cells, title=title)


def value_text(value: Any) -> str:
    """A value of a job or an assumption as a job file has it."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e16 else f"{value:g}"
    return str(value)
