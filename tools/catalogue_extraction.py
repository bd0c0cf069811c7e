"""Every sentence of the source code that people read, for the message catalogues.

Extractors for Babel: one for Python, one for Jinja templates. What a person reads is a literal in
the call of one of ``SPEAKERS``, the help of a click command, option or argument, or the docstring
of a command.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final, TypeAlias

from babel.messages.extract import extract_from_dir

from tuneplan.frozen import dataclass

# What Babel asks of an extractor: line, function, text, comments.
Found: TypeAlias = tuple[int, str, str, list[str]]

# Functions that take a template: the position of the template among their arguments.
SPEAKERS: Final[Mapping[str, int]] = {
    "say": 0,
    "sentence": 0,
    "phrase": 0,
    "translate": 0,
    "message": 1,
    "Message": 1,
    "skip": 1,
    "known": 0,  # symbols of an explained formula
    "figure": 1,  # the formula of an explained figure
    "Entry": 1,  # the line of a command in the list of commands
}
_CLICK: Final = ("command", "group", "option", "argument", "version_option")
_CLICK_TEXTS: Final = ("help", "short_help", "epilog")
# A key of a job file, a figure's path, a name in code: the same in every language.
_NAME: Final = re.compile(r"[a-z0-9]+([_.][a-z0-9*]+)+")
_FIELD: Final = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One text of the catalogues.

    Attributes:
        text: English, the key of the translation.
        modules: Where it is said, in alphabetical order.
        codes: The codes of the messages that it is the template of.
    """

    text: str
    modules: tuple[str, ...]
    codes: tuple[str, ...]


def sentences(package: str) -> tuple[Sentence, ...]:
    """Every sentence of a source tree, in alphabetical order."""
    modules: dict[str, set[str]] = {}
    codes: dict[str, set[str]] = {}
    methods = [("**.py", from_python), ("**.html", from_template), ("**.jinja", from_template)]
    keywords = dict.fromkeys([*SPEAKERS, *_CLICK])
    found = extract_from_dir(package, method_map=methods, options_map={}, keywords=keywords)  # type: ignore[arg-type]
    for path, _, text, comments, _ in found:
        modules.setdefault(str(text), set()).add(path)
        codes.setdefault(str(text), set()).update(comments)
    return tuple(
        Sentence(text=text, modules=tuple(sorted(where)), codes=tuple(sorted(codes[text])))
        for text, where in sorted(modules.items())
    )


def from_python(
    fileobj: IO[bytes],
    keywords: Any,  # noqa: ARG001 - Babel's signature
    comment_tags: Any,  # noqa: ARG001
    options: Any,  # noqa: ARG001
) -> Iterator[Found]:
    """The sentences of one Python file."""
    tree = ast.parse(fileobj.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.FunctionDef):
            yield from _of_command(node)


def from_template(
    fileobj: IO[bytes],
    keywords: Any,  # noqa: ARG001 - Babel's signature
    comment_tags: Any,  # noqa: ARG001
    options: Any,  # noqa: ARG001
) -> Iterator[Found]:
    """The sentences of one Jinja template: ``say("...")``."""
    from jinja2 import Environment, nodes

    tree = Environment(autoescape=True).parse(fileobj.read().decode())
    for call in tree.find_all(nodes.Call):
        named = isinstance(call.node, nodes.Name) and call.node.name == "say"
        if named and call.args and isinstance(call.args[0], nodes.Const):
            yield call.lineno, "say", call.args[0].value, []


def is_translated(text: str) -> bool:
    """Whether a text has words of a language: neither a name of code nor fields alone."""
    if _NAME.fullmatch(text):
        return False
    words = _FIELD.sub("" if "~" not in text else "x", text)
    return any(letter.isalpha() for letter in words)


def _of_call(call: ast.Call) -> Iterator[Found]:
    name = name_of(call)
    position = SPEAKERS.get(name)
    if position is not None:
        for text in literals(template_of(call, position)):
            if is_translated(text):
                yield call.lineno, name, text, _codes(call, name)
    if name in _CLICK:
        for keyword in call.keywords:
            if keyword.arg in _CLICK_TEXTS:
                for text in literals(keyword.value):
                    yield call.lineno, name, text, []


def template_of(call: ast.Call, position: int) -> ast.expr | None:
    """The argument that holds the template."""
    if len(call.args) > position:
        return call.args[position]
    return next((word.value for word in call.keywords if word.arg in ("template", "summary")), None)


def literals(node: ast.expr | None) -> Iterator[str]:
    """The texts that an expression may be; none where it is not made of literals."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
        for value in node.value.values:
            yield from literals(value)


def _of_command(function: ast.FunctionDef) -> Iterator[Found]:
    """The docstring of a click command whose decorator gives no help."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and name_of(decorator) in ("command", "group"):
            given = any(word.arg == "help" for word in decorator.keywords)
            written = ast.get_docstring(function, clean=False)
            if written and not given:
                yield function.lineno, "command", inspect.cleandoc(written).partition("\f")[0], []


def _codes(call: ast.Call, name: str) -> list[str]:
    if name not in ("message", "Message", "skip"):
        return []
    return list(literals(call.args[0]) if call.args else ())


def name_of(call: ast.Call) -> str:
    """The last name of what is called."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
