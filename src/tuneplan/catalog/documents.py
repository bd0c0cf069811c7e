"""The user's own fact files: YAML with the line of every value, and all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tuneplan.errors import InputError, InvalidRequest, Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")

LARGEST_BYTES: Final = 64 * 2**20
_DEEPEST: Final = 64
_MOST_VALUES: Final = 500_000


@dataclass(frozen=True, slots=True, repr=False)
class Located:
    """A value and where it stands.

    Attributes:
        value: A scalar, a list of ``Located`` or a dict of ``Located``.
        path: Key path within the file, e.g. ``offers[2].price``.
        line: Counted from 1.
    """

    value: Any
    path: str
    line: int

    def __repr__(self) -> str:
        """The value alone: a list or a mapping of them is quoted in messages."""
        return repr(self.value)


@dataclass(slots=True)
class Mistakes:
    """Collects what is wrong with one file, so that all of it is reported at once."""

    file: str
    found: list[Mistake] = field(default_factory=list)

    def add(
        self,
        text: Message,
        at: Located,
        *,
        near: Iterable[str] = (),
        how_to_fix: Message | None = None,
    ) -> None:
        """One mistake at a value."""
        self.found.append(
            Mistake(
                message=text,
                path=at.path or self.file,
                line=at.line,
                file=self.file,
                value=at.value if isinstance(at.value, str | int | float | bool) else None,
                near=tuple(near),
                how_to_fix=how_to_fix,
            )
        )

    def raise_if_any(self) -> None:
        """InvalidRequest with every mistake, or nothing."""
        if self.found:
            raise InvalidRequest(self.found)


@dataclass(slots=True)
class Section:
    """A mapping that is read key by key; keys nobody asked for are mistakes."""

    at: Located
    mistakes: Mistakes
    known: list[str] = field(default_factory=list)

    def get(self, key: str) -> Located | None:
        """The value of a key, None where it is absent or empty."""
        self.known.append(key)
        found = self.at.value.get(key)
        return None if found is None or found.value is None or found.value == "" else found

    def read(self, key: str, parse: Callable[[Any], T], *, default: T) -> T:
        """The parsed value; the default where the key is absent; a mistake where it is wrong."""
        found = self.get(key)
        return default if found is None else self.parsed(found, parse, default)

    def require(self, key: str, parse: Callable[[Any], T], *, default: T) -> T:
        """Like ``read``, but an absent key is a mistake too."""
        found = self.get(key)
        if found is None:
            self.mistakes.add(
                message("missing_key", "{key} is missing", key=key),
                Located(None, _join(self.at.path, key), self.at.line),
            )
            return default
        return self.parsed(found, parse, default)

    def parsed(self, found: Located, parse: Callable[[Any], T], default: T) -> T:
        """What ``parse`` makes of a value, or a mistake and the default."""
        try:
            return parse(found.value)
        except InputError as error:
            for mistake in error.mistakes:
                self.mistakes.add(mistake.message, found, near=mistake.near)
            return default

    def finish(self) -> None:
        """Report every key that was never asked for, with the nearest one that exists."""
        from difflib import get_close_matches

        for key, value in self.at.value.items():
            if key not in self.known:
                self.mistakes.add(
                    message("unknown_key", "{key} is not a key here", key=key),
                    Located(key, value.path, value.line),
                    near=get_close_matches(key, self.known, n=3),
                )


def read_yaml(path: Path) -> Located:
    """A YAML file with the line of every value.

    Raises:
        UnreadableFile: Absent, empty, not text, not YAML (with the line), or nested too deeply.
    """
    import yaml

    text = read_text(path)
    loader = None
    try:
        loader = yaml.SafeLoader(text)  # refuses characters already
        node = loader.get_single_node()
        if node is None:
            raise UnreadableFile(
                message("empty_file", "{path} holds nothing", path=str(path)), path=str(path)
            )
        check_size(node, str(path))
        return _located(loader, node, "")
    except RecursionError:
        raise too_deep(str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise UnreadableFile(
            message(
                "broken_yaml",
                "{path} is not valid YAML: {problem}",
                path=str(path),
                problem=getattr(error, "problem", None) or str(error),
            ),
            path=str(path),
            line=mark.line + 1 if mark else None,
        ) from error
    finally:
        if loader is not None:
            loader.dispose()


def check_size(node: yaml.Node, file: str) -> None:
    """Refuse a tree whose anchors stand for endless values, or that is nested too deeply.

    Raises:
        UnreadableFile: More than 500,000 values, each alias counted with all it stands for, or
            more than 64 levels.
    """
    import yaml

    count = 0
    waiting = [(node, 0)]
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if count > _MOST_VALUES or depth > _DEEPEST:
            raise too_deep(file)
        if isinstance(one, yaml.MappingNode):
            waiting += [(part, depth + 1) for pair in one.value for part in pair]
        elif isinstance(one, yaml.SequenceNode):
            waiting += [(part, depth + 1) for part in one.value]


def too_deep(file: str) -> UnreadableFile:
    """The error of a file that holds too much to be one of facts."""
    text = message("too_deep", "{path} holds too much, or is nested too deeply", path=file)
    return UnreadableFile(text, path=file)


def bounded_bytes(path: Path) -> bytes:
    """The bytes of a file, at most 64 MiB: a device file would have no end.

    Raises:
        OSError: Absent, a folder, or not readable.
        UnreadableFile: Larger.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        text = message(
            "too_large", "{path} is larger than {limit} MiB",
            path=str(path), limit=LARGEST_BYTES // 2**20,
        )  # fmt: skip
        raise UnreadableFile(text, path=str(path))
    return content


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        UnreadableFile: Absent, empty, a folder, larger than 64 MiB, or not UTF-8.
    """
    try:
        text = bounded_bytes(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UnreadableFile(
            message(
                "unreadable_file", "cannot read {path}: {problem}", path=str(path), problem=problem
            ),
            path=str(path),
        ) from error
    if not text.strip():
        raise UnreadableFile(
            message("empty_file", "{path} holds nothing", path=str(path)), path=str(path)
        )
    return text


def sections(document: Located, key: str, mistakes: Mistakes) -> list[Section]:
    """The mappings in the list under a top-level key; anything else there is a mistake."""
    if not isinstance(document.value, dict):
        mistakes.add(
            message("not_a_mapping", "the file must be a mapping with the key {key}", key=key),
            document,
        )
        return []
    listed = document.value.get(key)
    if listed is None:
        return []
    if not isinstance(listed.value, list):
        mistakes.add(message("not_a_list", "{key} must be a list", key=key), listed)
        return []
    found = []
    for item in listed.value:
        if isinstance(item.value, dict):
            found.append(Section(item, mistakes))
        else:
            mistakes.add(
                message("not_a_mapping_item", "each entry of {key} must be a mapping", key=key),
                item,
            )
    return found


def check_top_level(document: Located, keys: tuple[str, ...], mistakes: Mistakes) -> None:
    """Report top-level keys other than ``keys``, and a file that has none of them."""
    if not isinstance(document.value, dict):
        return
    top = Section(document, mistakes, list(keys))
    top.finish()
    if not any(key in document.value for key in keys):
        mistakes.add(
            message("nothing_to_read", "the file has none of: {keys}", keys=", ".join(keys)),
            document,
        )


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _located(loader: yaml.SafeLoader, node: yaml.Node, path: str) -> Located:
    import yaml

    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return Located(_mapping(loader, node, path), path, line)
    if isinstance(node, yaml.SequenceNode):
        items = [
            _located(loader, child, f"{path}[{index}]") for index, child in enumerate(node.value)
        ]
        return Located(items, path, line)
    try:
        return Located(loader.construct_object(node), path, line)
    except ValueError:  # a date such as 2026-02-30: left as text for whoever reads the key
        return Located(str(node.value), path, line)


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode, path: str) -> dict[str, Located]:
    import yaml

    entries: dict[str, Located] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        if key in entries:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
            )
        entries[key] = _located(loader, value_node, _join(path, key))
    return entries
