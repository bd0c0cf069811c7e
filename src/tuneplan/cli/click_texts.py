"""What click itself says, in the user's language: its sentences, and help with wide characters.

click asks the standard library's ``gettext`` for its sentences, by the domain and the environment
of the process; within ``click_speaking`` they come from our catalogues.
"""

from __future__ import annotations

import gettext
import os
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from tuneplan.language import catalogue_folder, sentence

# click 8.5's own sentences that our commands can make it say.
CLICK_TEXTS: Final = (
    sentence("Usage:"),
    sentence("Options"),
    sentence("Commands"),
    sentence("Positional arguments"),
    sentence("Show this message and exit."),
    sentence("Show the version and exit."),
    sentence("default: {default}"),
    sentence("required"),
    sentence("Missing command."),
    sentence("Missing argument"),
    sentence("Missing option"),
    sentence("Choose from:\n\t{choices}"),
    sentence("Invalid value: {message}"),
    sentence("Invalid value for {param_hint}: {message}"),
    sentence("No such option {name!r}."),
    sentence("No such command {name!r}."),
    sentence("Option {name!r} does not take a value."),
    sentence("{value!r} is not a valid {number_type}."),
    sentence("{value} is not in the range {range}."),
    sentence("Argument {name!r} takes {nargs} values."),
    sentence("{name} {filename!r} does not exist."),
    sentence("{name} {filename!r} is a file."),
    sentence("{name} {filename!r} is a directory."),
    sentence("{name} {filename!r} is not readable."),
    sentence("{name} {filename!r} is not writable."),
    sentence("Could not open file {filename!r}: {message}"),
)
# Sentences with a form for one and a form for several: Chinese has one for both.
CLICK_PLURALS: Final = {
    "Got unexpected extra argument ({args})": sentence("Got unexpected extra arguments ({args})"),
    "Option {name!r} requires an argument.": sentence(
        "Option {name!r} requires {nargs} arguments."
    ),
    "{value!r} is not {choice}.": sentence("{value!r} is not one of {choices}."),
    "Takes {nargs} values but 1 was given.": sentence("Takes {nargs} values but {len} were given."),
}
_NEVER_FIRST: Final = frozenset("，。、；：！？）」』】,.;:!?)")
_AS_WRITTEN: Final = "\b"  # click's mark of a paragraph that keeps its lines
_WIDE: Final = ("W", "F")


@contextmanager
def click_speaking(language: str) -> Iterator[None]:
    """Within the block click's own sentences are in ``language``."""
    if language == "en":
        yield
        return
    domain, asked = gettext.textdomain(), os.environ.get("LANGUAGE")
    gettext.bindtextdomain("tuneplan", str(catalogue_folder()))
    gettext.textdomain("tuneplan")
    os.environ["LANGUAGE"] = language.replace("-", "_")
    try:
        yield
    finally:
        gettext.textdomain(domain)
        if asked is None:
            del os.environ["LANGUAGE"]
        else:
            os.environ["LANGUAGE"] = asked


class WideFormatter(click.HelpFormatter):
    """Help in which a Chinese character takes two columns and may begin a line."""

    def write_heading(self, heading: str) -> None:
        """A heading with a wide colon."""
        self.write(f"{'':>{self.current_indent}}{heading}：\n")

    def write_text(self, text: str) -> None:
        """Paragraphs, wrapped."""
        indent = " " * self.current_indent
        paragraphs = text.split("\n\n")
        for number, paragraph in enumerate(paragraphs):
            if number:
                self.write("\n")
            lines = paragraph.strip("\n").splitlines()
            if lines[0].strip() == _AS_WRITTEN:
                shown: Iterable[str] = lines[1:]
            else:
                shown = wrapped(joined(lines), self.width - len(indent))
            for line in shown:
                self.write(f"{indent}{line}\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Names and what they mean in two columns."""
        rows = list(rows)
        column = min(max((cells(name) for name, _ in rows), default=0), col_max) + col_spacing
        for name, meaning in rows:
            self.write(f"{'':>{self.current_indent}}{name}")
            lines = list(wrapped(meaning, max(self.width - self.current_indent - column, 10)))
            fits = cells(name) <= column - col_spacing
            margin = " " * (self.current_indent + column)
            first = " " * (column - cells(name)) if fits else "\n" + margin
            self.write((first + f"\n{margin}".join(lines) if lines else "") + "\n")


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(sign) in _WIDE else 1 for sign in text)


def joined(lines: Iterable[str]) -> str:
    """Lines of a paragraph as one: no space between two Chinese characters."""
    text = ""
    for line in map(str.strip, lines):
        both = text and line and cells(text[-1]) == 2 and cells(line[0]) == 2
        text = f"{text}{line}" if both or not text else f"{text} {line}"
    return text


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most ``width`` columns; a line begins at a word or at a Chinese character."""
    line = ""
    for piece in _pieces(text):
        if line and cells(line + piece.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += piece if line else piece.lstrip()
    if line:
        yield line.rstrip()


def _pieces(text: str) -> Iterator[str]:
    """What is not broken: words with the space behind them, single wide characters."""
    piece = ""
    for sign in text:
        wide = cells(sign) == 2
        ends = piece[-1:].isspace() or (piece and cells(piece[-1]) == 2) or wide
        if piece and ends and sign not in _NEVER_FIRST and not (sign.isspace() and not wide):
            yield piece
            piece = ""
        piece += sign
    if piece:
        yield piece
