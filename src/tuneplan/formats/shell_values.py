"""Variables of a launch script: assignments in their order, and words with them filled in.

Within this module a part of a text that is only known when the script runs stands between two
marks, its spaces replaced by a third, so that it survives joining and splitting.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

from tuneplan.errors import UnreadableFile
from tuneplan.formats.shell_words import Command, Kind, Piece, Word, commands_of
from tuneplan.frozen import dataclass
from tuneplan.language import message

_LONGEST: Final = 64 * 1024
_DEEPEST: Final = 12
_OPEN, _CLOSE, _SPACE = "\ue000", "\ue001", "\ue002"  # characters that no language uses
_UNKNOWN_ONLY: Final = re.compile(f"(?:{_OPEN}[^{_CLOSE}]*{_CLOSE})+")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_PARAMETER: Final = re.compile(
    r"(?P<name>[A-Za-z_]\w*|[0-9@*#?!$-])(?P<index>\[[^\]]*\])?(?P<rest>.*)", re.DOTALL
)
# $(expr 16 / $N) and $(echo $((16 / N))): sums that scripts make of the number of cards
_EXPR: Final = re.compile(r"(?:expr\s+|echo\s+\$\(\()([\w\s$+*/%{}-]+?)(?:\)\))?")
_DECLARES: Final = frozenset(("export", "local", "declare", "readonly", "typeset"))
_ARITHMETIC: Final[dict[type, Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Token:
    """A word with its variables filled in.

    Attributes:
        known: False where a part of it is only known when the script runs; the text then shows
            that part as it is written.
        given: False where nothing but such a part stands in it, unquoted: it may be no word at
            all, or several.
    """

    text: str
    line: int
    known: bool = True
    given: bool = True


@dataclass(slots=True)
class Scope:
    """What the variables hold so far.

    Attributes:
        variables: Name to the words of an array; a plain variable is an array of one.
        exported: Variables that programs see, with the line.
        name: Of the script, for people.
    """

    variables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    exported: dict[str, int] = field(default_factory=dict)
    name: str = "script"

    def held(self, name: str, line: int) -> Token:
        """What a variable holds, as one word."""
        return _token(" ".join(self.variables.get(name, ())), line, quoted=True)

    # --- assignments ----------------------------------------------------------------------------

    def assign(self, word: Word, *, guarded: bool) -> str | None:
        """Take an assignment: the name of the variable, None where the word is no assignment.

        A guarded one stands in a block that may not run: it only fills in what is not known yet.
        """
        match = _ASSIGNMENT.match(word.bare)
        if match is None:
            return None
        name, adds, skip = match[1], match[2] == "+", len(match[0])
        array = word.pieces[-1].kind is Kind.ARRAY and len(word.pieces[0].text) == skip
        value = self._elements(word) if array else (self._flat(_from(word, skip), 0),)
        before = self.variables.get(name)
        if adds and before:
            value = (*before, *value) if array else (*before[:-1], before[-1] + value[0])
        settled = before is not None and (not _marked(before) or _marked(value))
        if not (guarded and settled):
            self._keep(name, value)
        return name

    def _keep(self, name: str, value: tuple[str, ...]) -> None:
        if sum(map(len, value)) > _LONGEST:
            raise _too_much(self.name)
        self.variables[name] = value

    def _elements(self, word: Word) -> tuple[str, ...]:
        inner = word.pieces[-1].text.replace("\n", " \\\n")
        return tuple(
            text
            for command in commands_of(inner)
            for item in command.words
            for text in self._words(item)
        )

    # --- expansion ------------------------------------------------------------------------------

    def expand(self, word: Word) -> tuple[Token, ...]:
        """The words that a word stands for: several, where an unquoted variable holds several."""
        quoted = any(piece.quoted for piece in word.pieces) and self._array(word) is None
        return tuple(_token(text, word.line, quoted=quoted) for text in self._words(word))

    def _words(self, word: Word) -> Iterator[str]:
        whole = self._array(word)
        if whole is not None:
            yield from whole
            return
        current, started = "", False
        for piece in word.pieces:
            part = self._piece(piece, 0)
            if piece.kind is not Kind.VARIABLE or piece.quoted:
                current, started = current + part, True
                continue
            for at, item in enumerate(re.split(r"\s+", part)):
                if at and started:
                    yield current
                    current, started = "", False
                current, started = current + item, started or bool(item)
            if len(current) > _LONGEST:
                raise _too_much(self.name)
        if started:
            yield current

    def _array(self, word: Word) -> tuple[str, ...] | None:
        """``"${NAME[@]}"`` and ``"$@"``: all elements, each a word of its own."""
        pieces = [piece for piece in word.pieces if piece.text or piece.kind is not Kind.TEXT]
        if len(pieces) != 1 or pieces[0].kind is not Kind.VARIABLE:
            return None
        match = _PARAMETER.fullmatch(pieces[0].text)
        if match is None or match["rest"]:
            return None
        if match["name"] in "@*":
            return (_unknown(f"${match['name']}"),)
        if match["index"] not in ("[@]", "[*]"):
            return None
        return self.variables.get(match["name"], (_unknown(f"${match['name']}"),))

    def _flat(self, pieces: tuple[Piece, ...], depth: int) -> str:
        """The text of pieces."""
        text = ""
        for piece in pieces:
            text += self._piece(piece, depth)
            if len(text) > _LONGEST:
                raise _too_much(self.name)
        return text

    def _piece(self, piece: Piece, depth: int) -> str:
        if piece.kind is Kind.COMMAND:
            added = _EXPR.fullmatch(piece.text.strip())
            return (
                self._arithmetic(added[1], depth)
                if added is not None
                else _unknown(f"$({piece.text.strip()})")
            )
        if piece.kind is Kind.ARITHMETIC:
            return self._arithmetic(piece.text, depth)
        if piece.kind is Kind.VARIABLE:
            return self._parameter(piece.text, depth)
        return piece.text.translate({ord(mark): None for mark in (_OPEN, _CLOSE, _SPACE)})

    def _parameter(self, text: str, depth: int) -> str:
        match = _PARAMETER.fullmatch(text)
        unknown = _unknown(f"${text}" if text.isidentifier() or len(text) == 1 else f"${{{text}}}")
        if match is None or depth > _DEEPEST:
            return unknown
        held, rest = self.variables.get(match["name"]), match["rest"]
        otherwise = re.match(r":?[-=]", rest)
        if held is None:
            return self._otherwise(rest[otherwise.end() :], depth) if otherwise else unknown
        if rest and not otherwise and not rest.startswith((":?", "?")):
            return unknown
        index = match["index"]
        whole = " ".join(held if index in ("[@]", "[*]") else _element(held, index))
        if not whole and rest.startswith((":-", ":=")):
            return self._otherwise(rest[2:], depth)
        return whole

    def _otherwise(self, text: str, depth: int) -> str:
        """What stands after ``:-`` in a variable."""
        commands = commands_of(text if text[:1] in "\"'" else f'"{text}"')
        return self._flat(commands[0].words[0].pieces, depth + 1) if text and commands else ""

    def _arithmetic(self, text: str, depth: int) -> str:
        def filled(match: re.Match[str]) -> str:
            value = self._parameter(match[1] or match[2], depth + 1)
            return value if re.fullmatch(r"-?\d{1,12}", value) else "?"

        plain = re.sub(r"\$\{([^{}]+)\}|\$?([A-Za-z_]\w*)", filled, text)[:200]
        try:
            return str(_computed(ast.parse(plain.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
            return _unknown(f"$(({text.strip()}))")


def _from(word: Word, skip: int) -> tuple[Piece, ...]:
    return (Piece(Kind.TEXT, word.pieces[0].text[skip:]), *word.pieces[1:])


def _element(held: tuple[str, ...], index: str | None) -> tuple[str, ...]:
    number = int(index[1:-1]) if index and index[1:-1].isdecimal() and len(index) < 8 else 0
    return held[number : number + 1]


def _marked(texts: tuple[str, ...]) -> bool:
    return any(_OPEN in text for text in texts)


def _unknown(text: str) -> str:
    shown = re.sub(f"[{_OPEN}{_CLOSE}{_SPACE}]", "", text)[:120]
    return _OPEN + re.sub(r"\s+", _SPACE, shown) + _CLOSE


def _token(text: str, line: int, *, quoted: bool) -> Token:
    known = _OPEN not in text
    shown = text.replace(_SPACE, " ").replace(_OPEN, "").replace(_CLOSE, "")
    given = known or quoted or _UNKNOWN_ONLY.fullmatch(text) is None
    return Token(shown, line, known, given)


def _computed(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value < 10**12:
        return int(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_computed(node.left), _computed(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand)
    raise ValueError


def _too_much(name: str) -> UnreadableFile:
    return UnreadableFile(
        message(
            "shell_too_long",
            "{path}: its variables grow beyond {limit} kB of text; no launch line is that long",
            path=name,
            limit=_LONGEST // 1024,
        ),
        path=name,
    )


def declared(command: Command) -> tuple[tuple[Word, ...], bool]:
    """The words after ``export`` and its kin, and whether programs will see the variables."""
    if command.words[0].bare not in _DECLARES:
        return command.words, False
    exports = command.words[0].bare == "export"
    return tuple(word for word in command.words[1:] if not word.bare.startswith("-")), exports
