"""Trees as the text of a file: YAML in sections, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuneplan.language import Message

Section = tuple[Message | None, Mapping[str, Any]]


class block(str):  # noqa: N801 - reads as a word where a tree is written
    """Text that stands over several lines of a YAML file (``|``)."""

    __slots__ = ()


def yaml_text(*sections: Section) -> str:
    """YAML with a comment above each section; empty sections are left out.

    Ends with a newline; the keys stand in the order given.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Repeats what stands twice instead of pointing to it; blocks as blocks."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - yaml's signature
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - yaml's signature
            super().increase_indent(flow, False)  # noqa: FBT003 - yaml takes it by position

    Dumper.add_representer(
        block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|")
    )
    parts = []
    for comment, tree in sections:
        if not tree:
            continue
        head = f"# {comment}\n" if comment is not None else ""
        body = yaml.dump(plain(tree), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=96)
        parts.append(head + body)
    return "\n".join(parts)


def json_text(tree: Mapping[str, Any]) -> str:
    """JSON, indented by two, with a newline at the end."""
    return json.dumps(plain(tree), indent=2, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """Mappings, sequences and scalars as the writers of YAML and JSON know them."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, str) and type(value) not in (str, block):
        return str(value)
    return value
