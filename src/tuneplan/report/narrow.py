"""What tables become on a narrow page: lists, so that no name and no number is cut in two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.frozen import dataclass

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_NARROW: Final = 72  # from so many columns on a table stays a table
_TOO_NARROW: Final = 60  # names beside their values need so many
_GAP: Final = 3  # a space on each side and the rule between two columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOrList:
    """A table; below ``_NARROW`` columns a list where its words do not fit side by side.

    Attributes:
        drawn: The table.
        heads: Name of each column, whether its cells are never broken, and its fixed width.
    """

    drawn: RenderableType
    heads: Sequence[tuple[str, bool, int | None]]
    rows: Sequence[Sequence[str]]
    title: str | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Rich's protocol: what to draw on a page of this width."""
        width = options.max_width
        if width >= _NARROW or self._needed() <= width:
            yield self.drawn
            return
        yield from _titled(self.title)
        for first, *others in self.rows:
            yield _indented(_on_one_line(first), 0)
            for (head, _, _), cell in zip(self.heads[1:], others, strict=True):
                if head and cell:
                    yield _indented(f"{head}: {_on_one_line(cell)}", 1)

    def _needed(self) -> int:
        """Columns that the table takes when no word is cut."""
        total = 0
        for place, (head, keep, fixed) in enumerate(self.heads):
            cells = [head, *(row[place] for row in self.rows)]
            parts = [
                part for cell in cells for part in (cell.split("\n") if keep else cell.split())
            ]
            total += max(*map(len, parts), fixed or 0)
        return total + _GAP * (len(self.heads) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOrList:
    """Names beside their values; below ``_TOO_NARROW`` columns each value under its name."""

    drawn: RenderableType
    rows: Sequence[tuple[str, str]]
    title: str | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Rich's protocol: what to draw on a page of this width."""
        if options.max_width >= _TOO_NARROW:
            yield self.drawn
            return
        yield from _titled(self.title)
        for name, text in self.rows:
            yield _indented(name, 0)
            yield _indented(text, 1)


def _on_one_line(cell: str) -> str:
    return ", ".join(cell.split("\n"))


def _titled(title: str | None) -> Iterator[RenderableType]:
    from rich.text import Text

    if title:
        yield Text(title, style="bold")


def _indented(text: str, depth: int) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, overflow="fold"), (0, 0, 0, 2 * depth))
