"""A job as the text of a job file, each key with a remark on where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tuneplan.contract.job import keys, sections
from tuneplan.contract.plain_json import json_value

_WIDE = 10_000  # a value stays on its line
_PAGE = 80  # a remark that reaches further stands above its key


def job_yaml(tree: Mapping[str, Any], remarks: Mapping[str, str], head: str = "") -> str:
    """The keys of a job in the order of the reference, one a line.

    Args:
        tree: Keys of the job file, as sections.
        remarks: Key path to what stands behind it as a comment.
        head: Lines of comment above, without their signs.
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    lines += list(_lines(tree, "", remarks, 0))
    return "\n".join(lines) + "\n"


def _lines(
    tree: Mapping[str, Any], path: str, remarks: Mapping[str, str], depth: int
) -> Iterator[str]:
    order = {name: place for place, name in enumerate(_names(path))}
    for name in sorted(tree, key=lambda name: order.get(name, len(order))):
        value, inner = tree[name], f"{path}.{name}".lstrip(".")
        indent = "  " * depth
        if isinstance(value, Mapping) and value and inner in sections():
            yield f"{indent}{name}:"
            yield from _lines(value, inner, remarks, depth + 1)
        else:
            line, remark = f"{indent}{name}: {_flow(value)}", _remark(inner, remarks)
            if remark and len(line) + len(remark) > _PAGE:
                yield indent + remark.strip()
                remark = ""
            yield line + remark


def _names(path: str) -> list[str]:
    """Keys and sections below a path, in the order of the reference."""
    prefix = f"{path}." if path else ""
    below = [key.removeprefix(prefix) for key in keys() if key.startswith(prefix)]
    return list(dict.fromkeys(name.partition(".")[0] for name in below))


def _flow(value: Any) -> str:
    text = yaml.safe_dump(
        json_value(value), default_flow_style=True, width=_WIDE, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()


def _remark(path: str, remarks: Mapping[str, str]) -> str:
    remark = " ".join(remarks.get(path, "").split())
    return f"  # {remark}" if remark else ""
