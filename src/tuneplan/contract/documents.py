"""Files and text to trees: YAML, JSON and TOML, with the line of every key."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final

import yaml

from tuneplan.contract.values import WrittenNumber
from tuneplan.errors import Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message

LARGEST_BYTES: Final = 128 * 1024
_DEEPEST: Final = 32
_PIPE_PATIENCE_S: Final = 5.0
_OWN_PIPES: Final = ("/dev/", "/proc/")  # those of the shell, <(command), have their writer
_MOST_VALUES: Final = 20_000
_PRINTABLE_BITS: Final = 10_000  # Python refuses to write longer numbers in decimal
_EXPONENT: Final = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_TOML_LINE: Final = re.compile(r"at line (\d+)")
_TOML_KEY: Final = re.compile(r"""^\s*(\[?)\s*["']?([\w.\-]+)["']?\s*(=|\])""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The key of somebody else's configuration that a key of the job comes from.

    Attributes:
        path: As written there, e.g. ``cutoff_len``.
        line: Counted from 1, where it is known.
    """

    path: str
    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A job as written.

    Attributes:
        tree: Sections and values; every key is a string.
        lines: Key path to line, counted from 1, where it is known.
        file: Its name, for people; None where the job is not a file.
        mistakes: What is wrong with its form (a key that stands twice).
        origins: Where the job was made from another configuration: key path to the key there.
        tags: Key path to a YAML tag of other software (``!function``), whose value is text here.
    """

    tree: dict[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: str | None = None
    mistakes: tuple[Mistake, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def origin(self, path: str) -> Origin | None:
        """Where a key path, what lies below it, or the nearest section around it comes from."""
        while path and self.origins:
            below = [key for key in self.origins if key == path or key.startswith(f"{path}.")]
            if below:
                return self.origins[min(below, key=lambda key: (key != path, self._line_of(key)))]
            path = path.rpartition(".")[0]
        return None

    def _line_of(self, path: str) -> int:
        return self.origins[path].line or 0


def read_document(source: str | Path) -> Document:
    """Read a job file; ``-`` is standard input. The ending decides: .json, .toml, else YAML.

    Raises:
        UnreadableFile: Absent, a folder, empty, too large, not text, or broken.
    """
    name = str(source)
    text = decoded_file(name)
    return parse_document(text, name=name, form=Path(name).suffix.lower().lstrip("."))


def decoded_file(name: str) -> str:
    """The text of a file; ``-`` is standard input.

    Raises:
        UnreadableFile: Absent, a folder, too large, or not text.
    """
    return _decode(_read_bytes(name), name)


def parse_document(
    text: str, *, name: str, form: str = "yaml", foreign_tags: bool = False
) -> Document:
    """A document from its text; ``form`` is ``json``, ``toml`` or anything else for YAML.

    Args:
        text: What is in the file.
        name: Of the file, for people.
        form: Of the text.
        foreign_tags: YAML tags of other software make their values text instead of a mistake;
            ``!!python/...`` stays one.

    Raises:
        UnreadableFile: Empty or broken, with the line.
    """
    if not text.strip():
        raise UnreadableFile(
            message("empty_file", "{path} is empty: it needs at least a model", path=name),
            path=name,
        )
    tags: dict[str, str] | None = {} if foreign_tags else None
    try:
        if form in ("json", "toml"):
            tree, lines, mistakes = (_parse_json if form == "json" else _parse_toml)(text, name)
        else:
            tree, lines, mistakes = _parse_yaml(text, name, tags)
    except RecursionError:
        raise _too_deep(name) from None
    if not isinstance(tree, dict):
        raise UnreadableFile(
            message(
                "not_a_mapping",
                "{path} holds no keys: a job file is made of lines such as "
                "model: Qwen/Qwen2.5-7B-Instruct",
                path=name,
            ),
            path=name,
            line=1,
        )
    return Document(tree=tree, lines=lines, file=name, mistakes=tuple(mistakes), tags=tags or {})


def plain(value: Any, *, name: str, depth: int = 0) -> Any:
    """A tree made of dict, list and scalars only; keys become strings, huge whole numbers text.

    Raises:
        UnreadableFile: Nested too deeply.
    """
    if depth > _DEEPEST:
        raise _too_deep(name)
    if isinstance(value, Mapping):
        return {str(key): plain(item, name=name, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, name=name, depth=depth + 1) for item in value]
    if isinstance(value, int) and value.bit_length() > 64:
        return (str(value) if value.bit_length() < _PRINTABLE_BITS else hex(value))[:40]
    if isinstance(value, PathLike):
        return str(value)
    return value


def _too_deep(name: str) -> UnreadableFile:
    return UnreadableFile(
        message(
            "too_deep", "{path} holds too much, or is nested too deeply, for a job file", path=name
        ),
        path=name,
    )


def _read_bytes(name: str) -> bytes:
    if not name.strip():
        raise UnreadableFile(
            message("blank_name", "nothing stands where a file is to be named"), path=name
        )
    if name == "-" and sys.stdin is None:
        raise UnreadableFile(message("stdin_closed", "standard input is closed"), path=name)
    try:
        if name == "-":
            content = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with opened(name) as file:
                content = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    if len(content) > LARGEST_BYTES:
        raise UnreadableFile(
            message(
                "too_large",
                "{path} is larger than {limit} kB, too large for a job file; a data set belongs "
                "under data.path",
                path=name,
                limit=LARGEST_BYTES // 1024,
            ),
            path=name,
        )
    return content


def opened(name: str) -> IO[bytes]:
    """A file to read from; a pipe (``mkfifo``) that nobody writes into is not waited for.

    Raises:
        OSError: It cannot be read, or is such a pipe.
    """
    if not Path(name).is_fifo() or name.startswith(_OWN_PIPES):
        return Path(name).open("rb")
    import select

    pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    if not select.select([pipe], [], [], _PIPE_PATIENCE_S)[0]:
        os.close(pipe)
        told = message(
            "pipe_without_writer",
            "it is a pipe, and nothing was written into it for {seconds:.0f} s",
            seconds=_PIPE_PATIENCE_S,
        )
        raise TimeoutError(str(told))
    os.set_blocking(pipe, True)
    return os.fdopen(pipe, "rb")


def _unreadable(name: str, error: Exception) -> UnreadableFile:
    reasons: dict[type, Message] = {
        FileNotFoundError: message("no_such_file", "there is no file {path}", path=name),
        IsADirectoryError: message(
            "is_a_folder", "{path} is a folder, a job is one file", path=name
        ),
        PermissionError: message("no_permission", "{path} may not be read", path=name),
    }
    fallback = message(
        "cannot_read", "{path} cannot be read: {reason}", path=name[:200], reason=str(error)[:200]
    )
    return UnreadableFile(reasons.get(type(error), fallback), path=name[:200])


def _decode(content: bytes, name: str) -> str:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UnreadableFile(
            message("not_utf8", "{path} is not UTF-8 text; save it as UTF-8", path=name),
            path=name,
            line=line,
        ) from None


# --- YAML ---------------------------------------------------------------------------------------


def _parse_yaml(
    text: str, name: str, tags: dict[str, str] | None = None
) -> tuple[Any, dict[str, int], list[Mistake]]:
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
        if depth > _DEEPEST:
            raise _too_deep(self.name)
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
                self.mistakes.append(_twice(inner, line, seen[key], self.name))
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
                if not isinstance(base, yaml.MappingNode) or depth > _DEEPEST:
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


def _twice(path: str, line: int, first: int, name: str) -> Mistake:
    return Mistake(
        message=message(
            "key_twice", "{key} stands twice, first on line {first}", key=path, first=first
        ),
        path=path,
        line=line,
        file=name,
        how_to_fix=message("keep_one", "keep one of them"),
    )


# --- JSON and TOML ------------------------------------------------------------------------------


def _parse_json(text: str, name: str) -> tuple[Any, dict[str, int], list[Mistake]]:
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [key for key, _ in items]
        twice.extend(key for key in dict.fromkeys(names) if names.count(key) > 1)
        return dict(items)

    try:
        tree = json.loads(text, object_pairs_hook=pairs, parse_float=_written)
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
        _, lines, mistakes = _parse_yaml(text.replace("\t", " "), name)
    except UnreadableFile:
        lines, mistakes = {}, []
    if twice and not mistakes:
        mistakes = [_twice(key, lines.get(key, 1), 1, name) for key in twice]
    return plain(tree, name=name), lines, mistakes


def _parse_toml(text: str, name: str) -> tuple[Any, dict[str, int], list[Mistake]]:
    try:
        tree = tomllib.loads(text, parse_float=_written)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        raise UnreadableFile(
            message("broken_toml", "broken TOML: {problem}", problem=str(error)),
            path=name,
            line=int(match[1]) if match else None,
        ) from None
    except ValueError as error:
        raise _unreadable(name, error) from None
    return plain(tree, name=name), _toml_lines(text), []


def _written(text: str) -> float:
    return WrittenNumber(text)


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
