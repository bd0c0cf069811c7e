"""What is wrong with a job as written: at which path, in which line, and what is near."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuneplan.contract.documents import Document
from tuneplan.contract.job import keys, sections
from tuneplan.contract.rewriting import Rewritten, Tree
from tuneplan.contract.spellings import near_keys
from tuneplan.contract.values import Refused, kind_of
from tuneplan.errors import Mistake
from tuneplan.language import Message, message


def places_of(
    document: Document, of_file: Rewritten, of_flags: Rewritten
) -> dict[str, tuple[str, int]]:
    """File and line of every key that the file says and no flag overrides."""
    by_flags = set(leaves_of(of_flags.tree))
    found = {}
    for path in leaves_of(of_file.tree):
        file, line = document.file, _line(of_file.written.get(path, path), document.lines)
        origin = document.origin(path)
        if origin is not None:
            file, line = origin.file, origin.line
        if file is not None and line is not None and path not in by_flags:
            found[path] = (file, line)
    return found


def leaves_of(tree: Tree, path: str = "") -> Iterable[str]:
    """Every key path of a tree that holds a value."""
    for name, value in tree.items():
        inner = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict):
            yield from leaves_of(value, inner)
        else:
            yield inner


def told_by_pydantic(detail: Any) -> Mistake:
    """What pydantic found, in the words of a job file."""
    path = ".".join(str(part) for part in detail["loc"])
    value = detail.get("input")
    refused = detail.get("ctx", {}).get("error")
    if isinstance(refused, Refused):
        return Mistake(
            message=refused.message,
            path=path,
            value=value,
            near=refused.near,
            how_to_fix=refused.how_to_fix,
        )
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, value)
    if detail["type"] == "missing":
        return Mistake(
            message=message("no_model", "the job names no model"),
            path=path,
            how_to_fix=message(
                "add_model", "write model: Qwen/Qwen2.5-7B-Instruct, or use --model"
            ),
        )
    return Mistake(
        message=message(
            "not_a_section", "expects keys with values below it, got {kind}", kind=kind_of(value)
        ),
        path=path,
        value=value,
        how_to_fix=_example_of(path),
    )


def _example_of(path: str) -> Message | None:
    section = sections().get(path)
    if section is None:
        return None
    return message(
        "section_keys", "its keys are {names}", names=", ".join(list(section.model_fields)[:8])
    )


def _unknown_key(path: str, value: Any) -> Mistake:
    near = near_keys(path, keys())
    fix = message("use_near_key", "write {key}", key=near[0]) if near else None
    return Mistake(
        message=message("unknown_key", "there is no key {key}", key=path),
        path=path,
        value=value if not isinstance(value, dict | list) else None,
        near=near,
        how_to_fix=fix,
    )


def located_mistake(
    mistake: Mistake, document: Document, of_file: Rewritten, of_flags: Rewritten
) -> Mistake:
    """The mistake with the key as written, its line and its file."""
    path = mistake.path or ""
    file = document.file
    if mistake.line is not None or path in set(leaves_of(of_flags.tree)) | {"--set"}:
        written, line = of_flags.written.get(path, path), mistake.line
    else:
        written = of_file.written.get(path, path)
        line = _line(written, document.lines)
        origin = document.origin(path)
        if origin is not None:
            written, file, line = origin.path, origin.file, origin.line
    return replace(
        mistake, path=written or None, line=line, file=file if line is not None else None
    )


def _line(path: str, lines: Mapping[str, int]) -> int | None:
    """The line of a key path, or of the nearest section around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path.rpartition(".")[0]
    return None


def without_repeats(mistakes: list[Mistake]) -> list[Mistake]:
    """Each mistake once."""
    seen: dict[tuple[str, str | None, int | None], Mistake] = {}
    for mistake in mistakes:
        seen.setdefault((mistake.message.code, mistake.path, mistake.line), mistake)
    return list(seen.values())
