"""The text of a shell script as commands of words; nothing is ever run.

Only what launch scripts are made of is told apart: words, quotes, variables, command
substitutions, comments, continuation lines, here-documents. Blocks (``if``, ``for``, functions)
are flattened; a command knows how deep in them it stands. Rules of quoting: POSIX.1-2024, Shell
Command Language, sections 2.2 to 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from tuneplan.frozen import dataclass

_NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_CONTINUED: Final = re.compile(r"\\[ \t]*\n")
_HERE: Final = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_REDIRECTION: Final = re.compile(r"\d*(?:>>|>&|>\||<&|&>>|&>|<>|<|>)\s*(?:&?\d+\b|&-)?")
_BLOCK_OPENS: Final = frozenset(("if", "for", "while", "until", "case", "{", "select"))
_BLOCK_ENDS: Final = frozenset(("fi", "done", "esac", "}"))
_LEADING: Final = frozenset(("then", "do", "else", "elif", "!", "time", "$", ">", "%"))


class Kind(StrEnum):
    """What a piece of a word is."""

    TEXT = "text"
    VARIABLE = "variable"  # the text is what stands in ${...}
    ARITHMETIC = "arithmetic"  # the text is what stands in $((...))
    COMMAND = "command"  # the text is what stands in $(...)
    ARRAY = "array"  # the text is what stands in NAME=(...)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word; ``quoted`` ones are never split into several words."""

    kind: Kind
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word with the line on which it starts."""

    pieces: tuple[Piece, ...]
    line: int

    @property
    def bare(self) -> str:
        """Its unquoted text, as far as it is plain; keywords and assignments show in it."""
        text = ""
        for piece in self.pieces:
            if piece.quoted or piece.kind is not Kind.TEXT:
                break
            text += piece.text
        return text


@dataclass(frozen=True, slots=True)
class Command:
    """The words of a simple command, keywords taken off; ``depth`` counts the blocks around it."""

    words: tuple[Word, ...]
    depth: int


def commands_of(text: str) -> list[Command]:
    """The simple commands of a script in their order."""
    found: list[Command] = []
    depth = 0
    for words in _Reader(text.replace("\r\n", "\n")).commands():
        keyword = words[0].bare
        if keyword in _BLOCK_ENDS:
            depth = max(0, depth - 1)
        words, inner = _without_keywords(words)
        if words:
            found.append(Command(tuple(words), depth))
        depth += inner
    return found


def open_quote_of(text: str) -> int | None:
    """The line on which a quote begins that is never closed; None where all are."""
    reader = _Reader(text.replace("\r\n", "\n"))
    for _ in reader.commands():
        pass
    return next(iter(reader.open_quotes), None)


def _without_keywords(words: list[Word]) -> tuple[list[Word], int]:
    """The words without the keywords in front, and how many blocks these open."""
    opened = 0
    while words and (words[0].bare in _LEADING | _BLOCK_OPENS | _BLOCK_ENDS):
        if words[0].bare in ("for", "case"):
            return words, opened + 1
        opened += words[0].bare in _BLOCK_OPENS
        words = words[1:]
    if words and words[0].bare == "function":
        return [], opened
    return words, opened


class _Reader:
    """Walks over the text once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.here: list[str] = []
        self.open_quotes: list[int] = []  # lines on which a quote begins that never ends

    def commands(self) -> Iterator[list[Word]]:
        words: list[Word] = []
        while self.at < len(self.text):
            ended = self._separator()
            if ended is None:
                word = self._word()
                if word is not None:
                    words.append(word)
                continue
            if ended and words:
                yield words
                words = []
        if words:
            yield words

    # --- between words --------------------------------------------------------------------------

    def _separator(self) -> bool | None:
        """Skip what is no word: whether a command ends there; None where a word starts."""
        rest = self.text[self.at]
        continued = _CONTINUED.match(self.text, self.at)
        if continued is not None:
            self._step(len(continued[0]))
            return False
        if rest in " \t":
            self._step(1)
            return False
        if rest == "\n":
            self._step(1)
            self._skip_here_documents()
            return True
        if rest == "#":
            end = self.text.find("\n", self.at)
            self._step((end if end >= 0 else len(self.text)) - self.at)
            return False
        if rest in "<>&0123456789" and self._redirection():
            return False
        if rest in ";&|()":
            self._step(1)
            return True
        return None

    def _redirection(self) -> bool:
        """Skip a redirection with its file; here-documents are noted and skipped at line end."""
        here = _HERE.match(self.text, self.at)
        if here is not None:
            self.here.append(here[2])
            self._step(len(here[0]))
            return True
        match = _REDIRECTION.match(self.text, self.at)
        if match is None:
            return False
        self._step(len(match[0]))
        if not re.search(r"&\s*(\d+|-)$", match[0]) and self.at < len(self.text):
            if self.text.startswith("(", self.at):  # <(command)
                self._balanced("(", ")")
            elif self.text[self.at] not in "\n;&|()":
                self._word()
        return True

    def _skip_here_documents(self) -> None:
        for mark in self.here:
            end = re.compile(rf"^\t*{re.escape(mark)}\s*$", re.MULTILINE).search(self.text, self.at)
            self._step((end.end() if end else len(self.text)) - self.at)
        self.here = []

    def _step(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    # --- words ----------------------------------------------------------------------------------

    def _word(self) -> Word | None:
        line, pieces = self.line, list[Piece]()
        while self.at < len(self.text):
            char = self.text[self.at]
            continued = _CONTINUED.match(self.text, self.at)
            if continued is not None:
                self._step(len(continued[0]))
                continue
            if char in " \t\n;&|<>)":
                break
            if char == "(":
                if not self._array_or_function(pieces):
                    break
                continue
            pieces.extend(self._pieces(char))
        if not pieces:
            self._step(1)
            return None
        return Word(tuple(pieces), line)

    def _array_or_function(self, pieces: list[Piece]) -> bool:
        """``NAME=(a b)`` is one word; ``name()`` is none. Whether the word goes on."""
        before = pieces[-1].text if pieces else ""
        if before.endswith("="):
            inner = self._balanced("(", ")")
            pieces.append(Piece(Kind.ARRAY, inner))
            return True
        return False

    def _pieces(self, char: str) -> list[Piece]:
        if char == "\\":
            escaped = self.text[self.at + 1 : self.at + 2]
            self._step(2)
            return [Piece(Kind.TEXT, escaped, quoted=True)]
        if char == "'":
            return [self._single_quoted()]
        if char == '"':
            return self._double_quoted()
        if char in "$`":
            return [self._expansion(quoted=False)]
        match = re.compile(r"[^\s;&|<>()\\'\"$`]+").match(self.text, self.at)
        taken = match[0] if match else char
        self._step(len(taken))
        return [Piece(Kind.TEXT, taken)]

    def _single_quoted(self) -> Piece:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.open_quotes.append(self.line)
        end = len(self.text) if end < 0 else end
        inner = self.text[self.at + 1 : end]
        self._step(end + 1 - self.at)
        return Piece(Kind.TEXT, inner, quoted=True)

    def _double_quoted(self) -> list[Piece]:
        pieces, began = [Piece(Kind.TEXT, "", quoted=True)], self.line
        self._step(1)
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                text = {"\n": ""}.get(escaped, escaped if escaped in '$`"\\' else char + escaped)
                pieces.append(Piece(Kind.TEXT, text, quoted=True))
                self._step(2)
            elif char in "$`":
                pieces.append(self._expansion(quoted=True))
            else:
                match = re.compile(r'[^"\\$`]+').match(self.text, self.at)
                taken = match[0] if match else char
                pieces.append(Piece(Kind.TEXT, taken, quoted=True))
                self._step(len(taken))
        if self.at >= len(self.text):
            self.open_quotes.append(began)
        self._step(1)
        return pieces

    def _expansion(self, *, quoted: bool) -> Piece:
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            end = len(self.text) if end < 0 else end
            inner = self.text[self.at + 1 : end]
            self._step(end + 1 - self.at)
            return Piece(Kind.COMMAND, inner, quoted)
        self._step(1)
        if self.text.startswith("((", self.at):
            inner = self._balanced("(", ")")
            return Piece(Kind.ARITHMETIC, inner.strip().removeprefix("(").removesuffix(")"), quoted)
        if self.text.startswith("(", self.at):
            return Piece(Kind.COMMAND, self._balanced("(", ")"), quoted)
        if self.text.startswith("{", self.at):
            return Piece(Kind.VARIABLE, self._balanced("{", "}"), quoted)
        if self.text.startswith("'", self.at) and not quoted:
            return self._single_quoted()
        name = _NAME.match(self.text, self.at)
        if name is None:
            return Piece(Kind.TEXT, "$", quoted)
        self._step(len(name[0]))
        return Piece(Kind.VARIABLE, name[0], quoted)

    def _balanced(self, opening: str, closing: str) -> str:
        """What stands between the bracket here and its partner; quotes inside are heeded."""
        start, depth, quote = self.at + 1, 0, ""
        at = self.at
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"" and opening == "(":
                quote = char
            elif char == "#" and opening == "(" and self.text[at - 1] in " \t\n":
                end = self.text.find("\n", at)
                at = end if end >= 0 else len(self.text)
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    break
            at += 1
        inner = self.text[start:at]
        self._step(min(at + 1, len(self.text)) - self.at)
        return inner
