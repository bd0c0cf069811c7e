"""From what was written to our own keys: other spellings, short forms, keys that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tuneplan.contract.job import JobFile, sections
from tuneplan.contract.spellings import IRRELEVANT, SPELLINGS, Spelling
from tuneplan.contract.values import Refused
from tuneplan.errors import Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message

Tree = dict[str, Any]


@dataclass(slots=True)
class Rewritten:
    """A tree with our keys only (and unknown ones, left where they stood).

    Attributes:
        written: Key path of ours to the key path that was written, where the two differ.
        left_aside: Keys that change nothing.
    """

    tree: Tree
    written: dict[str, str] = field(default_factory=dict)
    left_aside: list[str] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)


def rewrite(tree: Tree) -> Rewritten:
    """Our keys for a tree as written; what contradicts itself is a mistake."""
    result = Rewritten({key: dict(v) if isinstance(v, dict) else v for key, v in tree.items()})
    _expand_short_forms(result)
    for spelling in SPELLINGS:
        _apply(spelling, result)
    _set_irrelevant_aside(result)
    return result


def _expand_short_forms(result: Rewritten) -> None:
    """``data: FILE`` and ``parallelism: zero3`` are sections of one key."""
    for section, key in (("data", "path"), ("parallelism", "strategy")):
        value = result.tree.get(section)
        if isinstance(value, str | list):
            result.tree[section] = {key: value}
            result.written[f"{section}.{key}"] = section


def _places(spelling: Spelling) -> Iterator[str]:
    """Where a spelling may stand: the top level and its section."""
    yield ""
    if spelling.section:
        yield spelling.section


def _apply(spelling: Spelling, result: Rewritten) -> None:
    for place in _places(spelling):
        holder = result.tree if not place else result.tree.get(place)
        if not isinstance(holder, dict):
            continue
        native = sections()[place].model_fields
        found = {
            name: holder.pop(name)
            for name in spelling.written
            if name in holder and name not in native
        }
        if not found:
            continue
        paths = {name: f"{place}.{name}".lstrip(".") for name in found}
        first = next(iter(paths.values()))
        try:
            meant = spelling.means(found)
        except Refused as refused:
            result.mistakes.append(
                Mistake(
                    message=refused.message,
                    path=first,
                    value=next(iter(found.values())),
                    how_to_fix=refused.how_to_fix,
                )
            )
            continue
        for target, value in meant.items():
            _put(result, target, value, written=first)


def _put(result: Rewritten, target: str, value: Any, *, written: str) -> None:
    section, _, leaf = target.rpartition(".")
    holder = result.tree
    if section:
        if result.tree.get(section) is None:
            result.tree[section] = {}
        holder = result.tree[section]
        if not isinstance(holder, dict):  # refused later: the section is no section
            return
    before = holder.get(leaf)
    if before is not None and value is not None and before != value:
        result.mistakes.append(
            Mistake(
                message=message(
                    "said_twice",
                    "{written} and {other} say the same thing differently: {value} and {before}",
                    written=written,
                    other=result.written.get(target, target),
                    value=value,
                    before=before,
                ),
                path=written,
                value=value,
                how_to_fix=message("keep_one", "keep one of them"),
            )
        )
        return
    if before is None:
        holder[leaf] = value
        result.written[target] = written


def _set_irrelevant_aside(result: Rewritten) -> None:
    for place in ("", "training"):
        holder = result.tree.get(place) if place else result.tree
        if isinstance(holder, dict):
            for name in [name for name in holder if name in IRRELEVANT]:
                if name not in JobFile.model_fields:
                    del holder[name]
                    result.left_aside.append(f"{place}.{name}".lstrip("."))
