"""A configuration file that a launch line names: its keys, with the line's own over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.formats.carrying import leaves
from tuneplan.formats.foreign import Companion, ForeignDocument

_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml")
_OPTIONS: Final = ("config", "config_file", "config_path", "train_config")


def with_file_behind(document: ForeignDocument, companion: Companion) -> ForeignDocument:
    """The document, or the file that it names with what the line says laid over it.

    Keys that the line says have no line of the file; ``shell`` stays as the line has it.
    """
    shell = document.tree.get("shell")
    if document.form != "shell" or (isinstance(shell, Mapping) and "configuration" in shell):
        return document  # ``formats.reading`` has laid the line over its file already
    below = next(
        (found for name in _named(document.tree) if (found := companion(name)) is not None), None
    )
    if below is None or below.form == "shell":
        return document
    said = {path for path, _ in leaves(document.tree)}
    return replace(
        below,
        tree=_merged(below.tree, document.tree),
        lines={path: line for path, line in below.lines.items() if path not in said},
        form="shell",
        mistakes=(*below.mistakes, *document.mistakes),
        unknown={**below.unknown, **document.unknown},
        notices=(*below.notices, *document.notices),
    )


def _named(tree: Mapping[str, Any]) -> Iterator[str]:
    """Files that the line names, by an option or as a plain word."""
    for option in _OPTIONS:
        if isinstance(tree.get(option), str):
            yield tree[option]
    shell = tree.get("shell")
    words = shell.get("words") if isinstance(shell, Mapping) else None
    for word in words if isinstance(words, list) else ():
        if isinstance(word, str) and word.lower().endswith(_ENDINGS):
            yield word


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for name, value in above.items():
        held = found.get(name)
        inner = isinstance(held, Mapping) and isinstance(value, Mapping)
        found[name] = _merged(held, value) if inner else value  # type: ignore[arg-type]
    return found
