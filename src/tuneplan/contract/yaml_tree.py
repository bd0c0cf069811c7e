"""YAML to a tree, with the line of every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tuneplan.contract.trees import DEEPEST, plain, stands_twice, too_deep
from tuneplan.contract.values import WrittenNumber
from tuneplan.errors import Mistake, UnreadableFile
from tuneplan.language import message

_MOST_VALUES: Final = 20_000
_EXPONENT: Final = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def parse_yaml(
    text: str, name: str, tags: dict[str, str] | None = None
) -> tuple[Any, dict[str, int], list[Mistake]]:
    """The tree of a YAML text, the line of every key, and keys that stand twice.

    ``tags``, where given, is filled with the tags of other software.
    """
    loader = yaml.SafeLoader(text) if _printable(text, name) else yaml.SafeLoader("")
    try:
        node = loader.get_single_node()
        walk = _Walk(loader, name, tags)
        return walk.value(node, "", 0), walk.lines, walk.mistakes
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it does not read"
        told = message("broken_yaml", "broken YAML: {problem}", problem=problem)
        if "another document" in problem:
            told = message(
                "second_document",
                "a second document begins here (---), and a configuration is one; keep one of them",
            )
        if "'\\t'" in problem:
            told = message(
                "tab_in_yaml", "broken YAML: a tab indents this line, and YAML takes spaces only"
            )
        raise UnreadableFile(
            told, path=name, line=mark.line + 1 if mark is not None else None
        ) from None
    finally:
        loader.dispose()


def _printable(text: str, name: str) -> bool:
    match = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if match is not None:
        raise UnreadableFile(
            message(
                "odd_character",
                "{path} holds the character {character}, which is no text",
                path=name,
                character=f"U+{ord(match.group()):04X}",
            ),
            path=name,
            line=text.count("\n", 0, match.start()) + 1,
        )
    return True


class _Walk:
    """Turns YAML nodes into values, noting lines and keys that stand twice."""

    def __init__(self, loader: yaml.SafeLoader, name: str, tags: dict[str, str] | None) -> None:
        self.loader = loader
        self.name = name
        self.tags = tags
        self.lines: dict[str, int] = {}
        self.mistakes: list[Mistake] = []
        self.count = 0

    def value(self, node: yaml.Node | None, path: str, depth: int) -> Any:
        self._count()
        if depth > DEEPEST:
            raise too_deep(self.name)
        if node is not None and node.tag.startswith("tag:yaml.org,2002:python/"):
            raise self._code(node)
        if self.tags is not None and node is not None and node.tag.startswith("!"):
            self.tags[path] = node.tag
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, path, depth + 1) for item in node.value]
        if not isinstance(node, yaml.ScalarNode):
            return None
        return str(node.value) if path in (self.tags or {}) else self._scalar(node)

    def _code(self, node: yaml.Node) -> UnreadableFile:
        return UnreadableFile(
            message(
                "python_tag",
                "{path} names Python code to be run while it is read ({tag}); nothing of it was "
                "run, and no framework reads such a file",
                path=self.name,
                tag="!!" + node.tag.removeprefix("tag:yaml.org,2002:")[:100],
            ),
            path=self.name,
            line=node.start_mark.line + 1,
        )

    def _count(self) -> None:
        """Anchors let a short text stand for endless values: there is an end to it here."""
        self.count += 1
        if self.count > _MOST_VALUES:
            raise UnreadableFile(
                message(
                    "too_many_values",
                    "{path} stands for more than {limit:,} values once its anchors are written "
                    "out: it holds too much for a configuration",
                    path=self.name,
                    limit=_MOST_VALUES,
                ),
                path=self.name,
            )

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in self._pairs(node, depth):
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            inner = f"{path}.{key}" if path else key
            if key in seen and seen[key] != line:
                self.mistakes.append(stands_twice(inner, line, seen[key], self.name))
            seen.setdefault(key, line)
            self.lines.setdefault(inner, line)
            found[key] = self.value(value_node, inner, depth + 1)
        return found

    def _pairs(self, node: yaml.MappingNode, depth: int) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The pairs of a mapping; ``<<: *base`` brings those that it does not say itself."""
        own = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                yield key, value
                continue
            bases = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for base in bases:
                self._count()
                if not isinstance(base, yaml.MappingNode) or depth > DEEPEST:
                    raise yaml.constructor.ConstructorError(
                        None, None, "<< needs a mapping", value.start_mark
                    )
                for inherited_key, inherited in self._pairs(base, depth + 1):
                    if inherited_key.value not in own:
                        own.add(inherited_key.value)
                        yield inherited_key, inherited

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        if node.style is None and _EXPONENT.fullmatch(text):  # YAML 1.1 reads 1e-5 as text
            return float(text)
        if node.tag.endswith((":timestamp", ":value")):
            return text
        try:
            value = self.loader.construct_object(node, deep=True)
        except ValueError:  # a number that Python refuses, such as one of 5,000 digits
            return text
        if isinstance(value, float) and re.fullmatch(r"\d+\.\d+", text):
            return WrittenNumber(text)
        return plain(value, name=self.name)
