"""A launch as a document: options become keys, what the launcher says the section ``shell``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuneplan.contract.trees import plain
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.shell_launch import Launch, option_name, option_value
from tuneplan.formats.shell_values import Scope, Token
from tuneplan.language import Message, message
from tuneplan.spec.answer import Notice

_SETTING: Final = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")
_FRACTION: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "none": None, "null": None}
_SCHEDULERS: Final = frozenset(("srun", "salloc", "sbatch"))


class DocumentBuilder:
    """Collects keys, lines, unknown values and notices of one launch."""

    def __init__(self, name: str, scope: Scope, scheduler: Mapping[str, Token]) -> None:
        self.name = name
        self.scope = scope
        self.scheduler = dict(scheduler)
        self.tree: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.unknown: dict[str, str] = {}
        self.notices: list[Notice] = []

    def document(self, launch: Launch, launches: Sequence[Launch]) -> ForeignDocument:
        """The chosen launch as a document; the others are named in it."""
        words = self._arguments(launch.arguments)
        self._wrapper(launch.wrapper)
        spreading = [name for name in launch.launchers if name != "python"]
        launcher = (spreading or launch.launchers or ("none",))[-1]
        self._put("shell.launcher", launcher, launch.program.line)
        self._put("shell.program", launch.program.text, launch.program.line)
        if words:
            self._put("shell.words", [token.text for token in words], words[0].line)
        for option, token in launch.options.items():
            self._token(f"shell.options.{option.replace('.', '_')}", [token], token.line)
        for option, token in self.scheduler.items():
            self._token(f"shell.scheduler.{option.replace('.', '_')}", [token], token.line)
        self._environment(launch)
        others = [other for other in launches if other is not launch and other.weight]
        if others:
            self._put("shell.also", [_shown(other) for other in others], others[0].program.line)
            self._notice(
                message(
                    "several_launches",
                    "{count} more commands of this script start a program; the one that looks "
                    "most like training is read: {program} on line {line}",
                    count=len(others),
                    program=launch.program.text,
                    line=launch.program.line,
                ),
                others[0].program.line,
            )
        return ForeignDocument(
            tree=self.tree,
            lines=self.lines,
            file=self.name,
            form="shell",
            unknown=self.unknown,
            notices=tuple(self.notices),
        )

    def _arguments(self, arguments: Sequence[Token]) -> list[Token]:
        """Read options and settings; what is left are plain words."""
        words: list[Token] = []
        at = 0
        while at < len(arguments):
            token = arguments[at]
            name = option_name(token.text)
            at += 1
            if name is None:
                if not token.given:
                    self._missing(token)
                elif not self._setting(token):
                    words.append(token)
                continue
            values, at = _values(arguments, at, option_value(token.text), token)
            extras = [extra for extra in values[1:] if self._extra(extra)]
            self._option(name, [*values[:1], *extras], token.line)
        return words

    def _extra(self, token: Token) -> bool:
        """Whether a further word behind an option is a value of it."""
        if not token.given:
            self._missing(token)
            return False
        return not self._setting(token)

    def _setting(self, token: Token) -> bool:
        """``batch_size=4`` behind a program (torchtune, LLaMA-Factory, hydra)."""
        match = _SETTING.fullmatch(token.text.lstrip("+~"))
        if match is None:
            return False
        self._option(match[1], [Token(match[2], token.line, token.known)], token.line)
        return True

    def _option(self, name: str, values: Sequence[Token], line: int) -> None:
        path = name.strip(".")
        before = self.lines.get(path)
        if before is not None:
            self._notice(
                message(
                    "option_twice",
                    "--{name} stands twice, on lines {first} and {line}: the last one counts, as "
                    "argument parsers have it",
                    name=name,
                    first=before,
                    line=line,
                ),
                line,
                path,
            )
        self._token(path, values, line)

    def _token(self, path: str, values: Sequence[Token], line: int) -> None:
        self.unknown.pop(path, None)
        if any(not token.known for token in values):
            self.unknown[path] = " ".join(token.text for token in values)
            self._put(path, None, line)
        else:
            typed = [typed_value(token.text) for token in values] or [True]
            self._put(path, typed[0] if len(typed) == 1 else typed, line)

    def _environment(self, launch: Launch) -> None:
        held = {
            name: self.scope.held(name, line)
            for name, line in self.scope.exported.items()
            if name in self.scope.variables
        }
        for name, token in (held | launch.environment).items():
            self._token(f"shell.environment.{name}", [token], token.line)

    def _wrapper(self, tokens: Sequence[Token]) -> None:
        """Options of srun and its kin in front of the launcher."""
        if not any(token.text.rpartition("/")[2] in _SCHEDULERS for token in tokens):
            return
        for at, token in enumerate(tokens):
            name, value = option_name(token.text), option_value(token.text)
            if name is None:
                continue
            following = tokens[at + 1] if at + 1 < len(tokens) else None
            if value is None and following is not None and option_name(following.text) is None:
                self.scheduler[name] = following
            else:
                self.scheduler[name] = Token(value or "true", token.line, token.known)

    def _missing(self, token: Token) -> None:
        self._notice(
            message(
                "arguments_from_outside",
                "{variable} adds arguments that are only known when the script runs",
                variable=token.text,
            ),
            token.line,
        )

    def _notice(self, text: Message, line: int | None, path: str | None = None) -> None:
        self.notices.append(Notice(message=text, line=line, path=path))

    def _put(self, path: str, value: Any, line: int) -> None:
        holder = self.tree
        *sections, leaf = path.split(".")
        for depth, section in enumerate(sections):
            inner = holder.setdefault(section, {})
            if not isinstance(inner, dict):  # --a 1 --a.b 2: the section wins
                inner = holder[section] = {}
            self.lines.setdefault(".".join(sections[: depth + 1]), line)
            holder = inner
        holder[leaf] = value
        self.lines[path] = line


def _values(
    arguments: Sequence[Token], at: int, inline: str | None, option: Token
) -> tuple[list[Token], int]:
    """The values of an option: what stands behind ``=``, or the words up to the next option."""
    if inline is not None:
        return [Token(inline, option.line, option.known)], at
    values: list[Token] = []
    while at < len(arguments) and option_name(arguments[at].text) is None:
        values.append(arguments[at])
        at += 1
    return values, at


def _shown(launch: Launch) -> str:
    words = (*launch.launchers, launch.program.text, *(t.text for t in launch.arguments[:2]))
    return " ".join(words)[:120]


def typed_value(text: str) -> Any:
    """A word of a command line as the value that an argument parser makes of it."""
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FRACTION.fullmatch(text) and len(text) < 40:
        return float(text)
    if text[:1] in "{[" and text[-1:] in "}]":
        for candidate in (text, text.replace("'", '"')):
            try:
                return plain(json.loads(candidate), name=text[:40])
            except (ValueError, RecursionError):
                continue
    return text
