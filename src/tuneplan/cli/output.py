"""What a command prints, and for how wide a page."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tuneplan.errors import UnreadableFile
from tuneplan.language import message
from tuneplan.report.page import Page

if TYPE_CHECKING:
    from rich.console import Console

_NARROWEST: Final = 40
_NARROWEST_PIPED: Final = 60
_WIDEST: Final = 160


def page() -> Page:
    """The terminal's width and colours.

    Where stdout is no terminal: no colours, and 80 columns or what ``COLUMNS`` says (60 to 160).
    """
    if not sys.stdout.isatty():
        written = os.environ.get("COLUMNS", "")
        known = written.isascii() and written.isdigit() and len(written) <= 4
        width = int(written) if known else 0
        return Page(width=width) if _NARROWEST_PIPED <= width <= _WIDEST else Page()
    width = shutil.get_terminal_size((80, 24)).columns
    colors = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return Page(width=min(max(width, _NARROWEST), _WIDEST), colors=colors)


@contextmanager
def console() -> Iterator[Console]:
    """A console of rich, laid out for ``page()``; what it holds is printed at the end."""
    from io import StringIO

    from rich.console import Console

    shown, written = page(), StringIO()
    yield Console(
        file=written,
        width=shown.width,
        force_terminal=shown.colors,
        no_color=not shown.colors,
        highlight=False,
        emoji=False,
    )
    print_text("\n".join(line.rstrip() for line in written.getvalue().splitlines()))


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Within the block a file is written that the user asked for.

    Raises:
        UnreadableFile: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        text_of_error = message(
            "cannot_write",
            "{path} cannot be written: {reason}",
            path=name,
            reason=error.strerror or str(error),
        )
        raise UnreadableFile(text_of_error, path=name) from None


def write_file(name: str, text: str) -> None:
    """Write a file that the user asked for.

    Raises:
        UnreadableFile: It cannot be written.
    """
    with writing(name):
        Path(name).write_text(text, encoding="utf-8")


def write_bytes(name: str, content: bytes) -> None:
    """Write a file that the user asked for.

    Raises:
        UnreadableFile: It cannot be written.
    """
    with writing(name):
        Path(name).write_bytes(content)


def refuse_own_source(output: str | None, sources: Iterable[str]) -> None:
    """Refuse to write over a file that the answer was read from.

    Raises:
        UnreadableFile: It is one of them.
    """
    if output is None:
        return
    for source in sources:
        with suppress(OSError, ValueError):
            if Path(source).samefile(output):
                text = message(
                    "own_source",
                    "{path} was read for this answer and is not written over; name another file",
                    path=output,
                )
                raise UnreadableFile(text, path=output)


def make_folder(name: str) -> None:
    """Make the folder that a user wants files in, with those around it.

    Raises:
        UnreadableFile: It cannot be made.
    """
    with writing(name):
        Path(name).mkdir(parents=True, exist_ok=True)


def print_json(answer: Mapping[str, Any]) -> None:
    """An answer as JSON on stdout."""
    import json

    click.echo(json.dumps(answer, ensure_ascii=False, indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """A report on stdout."""
    click.echo(text.rstrip("\n"))


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr that is told ``(done, total)``; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def told(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield told
