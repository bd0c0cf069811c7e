"""JSON and TOML to a tree, with the line of every key."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Final

from tuneplan.contract.file_text import unreadable
from tuneplan.contract.trees import plain, stands_twice, written_number
from tuneplan.contract.yaml_tree import parse_yaml
from tuneplan.errors import Mistake, UnreadableFile
from tuneplan.language import message

_TOML_LINE: Final = re.compile(r"at line (\d+)")
_TOML_KEY: Final = re.compile(r"""^\s*(\[?)\s*["']?([\w.\-]+)["']?\s*(=|\])""")


def parse_json(text: str, name: str) -> tuple[Any, dict[str, int], list[Mistake]]:
    """The tree of a JSON text, the line of every key, and keys that stand twice."""
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [key for key, _ in items]
        twice.extend(key for key in dict.fromkeys(names) if names.count(key) > 1)
        return dict(items)

    try:
        tree = json.loads(text, object_pairs_hook=pairs, parse_float=written_number)
    except json.JSONDecodeError as error:
        raise UnreadableFile(
            message("broken_json", "broken JSON: {problem}", problem=error.msg),
            path=name,
            line=error.lineno,
        ) from None
    except ValueError:  # Python's limit to the digits of whole numbers
        raise UnreadableFile(
            message("too_many_digits", "{path} holds a number of thousands of digits", path=name),
            path=name,
        ) from None
    try:  # JSON is YAML but for tabs, and the YAML nodes know their lines
        _, lines, mistakes = parse_yaml(text.replace("\t", " "), name)
    except UnreadableFile:
        lines, mistakes = {}, []
    if twice and not mistakes:
        mistakes = [stands_twice(key, lines.get(key, 1), 1, name) for key in twice]
    return plain(tree, name=name), lines, mistakes


def parse_toml(text: str, name: str) -> tuple[Any, dict[str, int], list[Mistake]]:
    """The tree of a TOML text and the line of every key."""
    try:
        tree = tomllib.loads(text, parse_float=written_number)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        raise UnreadableFile(
            message("broken_toml", "broken TOML: {problem}", problem=str(error)),
            path=name,
            line=int(match[1]) if match else None,
        ) from None
    except ValueError as error:
        raise unreadable(name, error) from None
    return plain(tree, name=name), _toml_lines(text), []


def _toml_lines(text: str) -> dict[str, int]:
    """Lines of the keys of a TOML text; ``tomllib`` does not tell them."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = _TOML_KEY.match(line)
        if match is None or bool(match[1]) != (match[3] == "]"):
            continue
        path = match[2] if match[1] else f"{section}.{match[2]}".lstrip(".")
        lines.setdefault(path, number)
        section = match[2] if match[1] else section
    return lines
