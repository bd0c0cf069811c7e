"""A job as written: a file or text as a tree, the line of every key, and where a key came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tuneplan.contract.file_text import decoded_file
from tuneplan.contract.json_and_toml import parse_json, parse_toml
from tuneplan.contract.trees import too_deep
from tuneplan.contract.yaml_tree import parse_yaml
from tuneplan.errors import Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message


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
            tree, lines, mistakes = (parse_json if form == "json" else parse_toml)(text, name)
        else:
            tree, lines, mistakes = parse_yaml(text, name, tags)
    except RecursionError:
        raise too_deep(name) from None
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
