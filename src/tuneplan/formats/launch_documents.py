"""Launch files of SkyPilot and dstack: the script that they run, with what they ask for.

Sources: skypilot 0.14 ``utils/schemas.py get_task_schema``; dstack 0.22
``core/models/configurations.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.shell_lines import parse_shell

_PLACES: Final = {"nodes": "num_nodes", "gres": "resources"}


def launched(document: ForeignDocument) -> ForeignDocument:
    """The launch line inside a launch file; any other document is returned as it is.

    Raises:
        UnreadableFile: Its script starts no training that is known here.
    """
    script = _script(document)
    if script is None:
        return document
    text, asks, rest = script
    inner = parse_shell(text, name=document.file)
    shell: dict[str, Any] = dict(inner.tree["shell"])
    scheduler = {**asks, **shell.get("scheduler", {})}
    if rest:
        scheduler["file"] = rest
    if scheduler:
        shell["scheduler"] = scheduler
    told = dict(inner.lines)
    if isinstance(document.tree.get("commands"), list):  # nothing tells where an item stands
        told = dict.fromkeys(told, document.lines.get("commands") or 1)
    lines = {f"shell.scheduler.file.{path}": line for path, line in document.lines.items()}
    first = {f"shell.scheduler.{name}": document.lines.get(key) for name, key in _PLACES.items()}
    found = {path: line for path, line in first.items() if line is not None}
    return replace(
        inner,
        tree={**inner.tree, "shell": shell},
        lines={**lines, **found, **told},
        mistakes=(*document.mistakes, *inner.mistakes),
        notices=(*document.notices, *inner.notices),
    )


def _script(document: ForeignDocument) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """The script, at the lines that it has in the file; what is asked for; the other keys."""
    tree = document.tree
    resources = tree.get("resources")
    if isinstance(tree.get("run"), str) and ("resources" in tree or "setup" in tree):
        text = _at_line(document, "run", str(tree["run"]))
        cards = resources.get("accelerators") if isinstance(resources, Mapping) else None
        asks = _asks(tree.get("num_nodes"), cards)
        return text, asks, _others(tree, "run", "num_nodes", "resources")
    commands = tree.get("commands")
    if tree.get("type") in ("task", "dev-environment") and isinstance(commands, list):
        text = "\n".join(str(one) for one in commands)
        cards = resources.get("gpu") if isinstance(resources, Mapping) else None
        asks = _asks(tree.get("nodes"), cards)
        return text, asks, _others(tree, "commands", "nodes", "resources")
    return None


def _at_line(document: ForeignDocument, key: str, text: str) -> str:
    """The text moved down to where it stands: a block begins on the line after its key."""
    line = document.lines.get(key) or 1
    return "\n" * (line if "\n" in text else line - 1) + text


def _asks(nodes: Any, cards: Any) -> dict[str, Any]:
    """Machines and cards in Slurm's words: ``{nodes: 2, gres: gpu:H100:8}``."""
    asks: dict[str, Any] = {}
    if isinstance(nodes, int) and not isinstance(nodes, bool):
        asks["nodes"] = nodes
    if isinstance(cards, Mapping) and len(cards) == 1 and "count" not in cards:
        cards = ":".join(str(part) for part in next(iter(cards.items())))
    elif isinstance(cards, Mapping):
        cards = f"{cards.get('name', 'any')}:{cards.get('count', 1)}"
    if isinstance(cards, str | int) and not isinstance(cards, bool):
        counted = isinstance(cards, int) or ":" in cards
        asks["gres"] = f"gpu:{cards}" if counted else f"gpu:{cards}:1"
    return asks


def _others(tree: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name not in taken}
