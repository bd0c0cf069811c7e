"""``${path.of.another.key}`` filled in, as OmegaConf does it for torchtune's files.

Source: omegaconf 2.3 ``grammar_parser.py``: ``${key}`` alone keeps the type of the other value,
inside a text it becomes text. Resolvers (``${eval:...}``, ``${oc.env:HOME}``) run code or read the
machine, so what they give is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.formats.foreign import ForeignDocument

_REFERENCE: Final = re.compile(r"\$\{\s*(\.*[\w.\[\]-]+)\s*\}")
_DEEPEST: Final = 8
_LONGEST: Final = 4096


def interpolated(document: ForeignDocument) -> ForeignDocument:
    """The document with its references filled in; those that cannot be are noted as unknown."""
    unknown = dict(document.unknown)

    def filled(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return {
                name: filled(item, f"{path}.{name}" if path else name)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [filled(item, path) for item in value]
        if isinstance(value, str) and "${" in value:
            found = _filled(document.tree, value, 0)
            if found is None:
                unknown[path] = value
            return found
        return value

    tree = filled(document.tree, "")
    return replace(document, tree=tree, unknown=unknown)


def _filled(tree: Mapping[str, Any], text: str, depth: int) -> Any:
    """The text with its references filled in; None where one of them is not known."""
    if depth > _DEEPEST or len(text) > _LONGEST:
        return None
    whole = _REFERENCE.fullmatch(text.strip())
    if whole is not None:
        return _target(tree, whole[1], depth)
    parts = _REFERENCE.split(text)
    for at in range(1, len(parts), 2):
        found = _target(tree, parts[at], depth)
        if not isinstance(found, str | int | float):
            return None
        parts[at] = str(found)
    joined = "".join(parts)
    return None if "${" in joined or len(joined) > _LONGEST else joined


def _target(tree: Mapping[str, Any], path: str, depth: int) -> Any:
    found: Any = tree
    for name in path.strip(".").split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    if isinstance(found, Mapping | list):
        return None
    return _filled(tree, found, depth + 1) if isinstance(found, str) and "${" in found else found
