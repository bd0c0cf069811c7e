"""Reading model entries: the bundled ``data/models.json`` and the user's own YAML or JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from tuneplan.catalog.documents import bounded_bytes, check_size, too_deep
from tuneplan.errors import CatalogError, InvalidRequest, Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message

BUNDLED: Final = "tuneplan/catalog/data/models.json"
_TEXT_KEYS: Final = ("hf_id", "source", "as_of", "confidence", "note")
_COUNT_KEYS: Final = (
    "total_parameters",
    "active_parameters",
    "embedding_parameters",
    "vision_parameters",
)
_KEYS: Final = (
    "name",
    "aliases",
    "config",
    "config_file",
    "counts_router_bias",
    *_TEXT_KEYS,
    *_COUNT_KEYS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """What the catalogue knows of one model; fields as in ``docs/reference/models.md``.

    Attributes:
        config: The Hugging Face configuration fields that decide its shape.
        total_parameters: As published (or computed independently); the description is checked
            against it. None where nobody stated it.
        counts_router_bias: Whether the published total counts the router's bias buffers.
        confidence: ``high``, ``medium``, ``low``, or ``user``.
        origin: The file it comes from.
    """

    name: str
    config: Mapping[str, Any] = field(hash=False)
    hf_id: str | None = None
    aliases: tuple[str, ...] = ()
    total_parameters: int | None = None
    active_parameters: int | None = None
    embedding_parameters: int | None = None
    vision_parameters: int | None = None
    counts_router_bias: bool = True
    source: str = ""
    as_of: str = ""
    confidence: str = ""
    note: str = ""
    origin: str = BUNDLED

    @property
    def all_names(self) -> tuple[str, ...]:
        """Name, hub id and aliases."""
        return (self.name, *((self.hf_id,) if self.hf_id else ()), *self.aliases)


def bundled_entries() -> tuple[ModelEntry, ...]:
    """The entries that come with the package.

    Raises:
        CatalogError: the bundled file is damaged.
    """
    file = Path(__file__).with_name("data") / "models.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return tuple(
            ModelEntry(**{**entry, "aliases": tuple(entry.get("aliases", ()))})
            for entry in document["models"]
        )
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise CatalogError(
            message(
                "bundled_models_damaged",
                "{path} cannot be read: {problem}",
                path=BUNDLED,
                problem=problem,
            )
        ) from problem


def user_entries(path: Path) -> tuple[ModelEntry, ...]:
    """The entries of a user's file (YAML or JSON): a list under ``models``.

    Raises:
        UnreadableFile: absent, empty or not YAML.
        InvalidRequest: every entry that is wrong, with its path and line.
    """
    document, lines = _load(path)
    listed = document.get("models") if isinstance(document, Mapping) else document
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise UnreadableFile(
            message(
                "no_models_in_file",
                "{path} holds no list of models: start it with 'models:' and one '- name: ...' "
                "for each (docs/reference/models.md)",
                path=str(path),
            ),
            path=str(path),
        )
    mistakes: list[Mistake] = []
    entries = [
        _user_entry(raw, index, path, lines.get(index), mistakes)
        for index, raw in enumerate(listed)
    ]
    if mistakes:
        raise InvalidRequest(mistakes)
    return tuple(entry for entry in entries if entry is not None)


def read_text(path: Path) -> str:
    """The text of a file that must exist and not be empty.

    Raises:
        UnreadableFile: it is absent, a folder, not text, or empty.
    """
    try:
        text = bounded_bytes(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
        raise UnreadableFile(
            message(
                "unreadable_file",
                "{path} cannot be read: {problem}",
                path=str(path),
                problem=reason,
            ),
            path=str(path),
        ) from problem
    if not text.strip():
        raise UnreadableFile(
            message("empty_file", "{path} is empty", path=str(path)), path=str(path), line=1
        )
    return text


def _load(path: Path) -> tuple[Any, dict[int, int]]:
    """The document, and the line on which each list entry starts."""
    import yaml

    text = read_text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            check_size(node, str(path))
        document = yaml.safe_load(text)
    except RecursionError:
        raise too_deep(str(path)) from None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        raise UnreadableFile(
            message(
                "broken_yaml",
                "{path} is not valid YAML: {problem}",
                path=str(path),
                problem=getattr(problem, "problem", None) or problem,
            ),
            path=str(path),
            line=None if mark is None else mark.line + 1,
        ) from problem
    return document, _entry_lines(node)


def _entry_lines(node: Any) -> dict[int, int]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        node = next((value for key, value in node.value if key.value == "models"), None)
    if not isinstance(node, yaml.SequenceNode):
        return {}
    return {index: item.start_mark.line + 1 for index, item in enumerate(node.value)}


def _user_entry(
    raw: Any, index: int, path: Path, line: int | None, mistakes: list[Mistake]
) -> ModelEntry | None:
    where = f"models[{index}]"
    found = _entry_mistakes(raw, where, line)
    mistakes += [replace(mistake, file=str(path)) for mistake in found]
    if found:
        return None
    config = raw.get("config")
    if config is None:
        config = read_config(path.parent / str(raw["config_file"]))
    stated: dict[str, Any] = {key: raw.get(key) for key in _COUNT_KEYS}
    stated |= {key: str(raw[key]) for key in _TEXT_KEYS if raw.get(key) is not None}
    return ModelEntry(
        name=str(raw["name"]),
        config=config,
        aliases=tuple(str(alias) for alias in raw.get("aliases") or ()),
        counts_router_bias=bool(raw.get("counts_router_bias", True)),
        origin=str(path),
        **{"confidence": "user", **stated},
    )


def _entry_mistakes(raw: Any, where: str, line: int | None) -> list[Mistake]:
    """What is wrong with one entry of a user's file."""
    if not isinstance(raw, Mapping):
        return [
            Mistake(
                message=message(
                    "model_entry_not_mapping", "a model entry must be a mapping with 'name:'"
                ),
                path=where,
                line=line,
                value=raw,
            )
        ]
    mistakes = [_unknown_key(key, where, line) for key in raw if key not in _KEYS]
    if not raw.get("name"):
        mistakes.append(
            Mistake(
                message=message("model_entry_lacks_name", "the entry has no name"),
                path=f"{where}.name",
                line=line,
            )
        )
    if (raw.get("config") is None) == (raw.get("config_file") is None):
        mistakes.append(
            Mistake(
                message=message(
                    "model_entry_needs_config",
                    "state either 'config' (Hugging Face configuration fields) or 'config_file' "
                    "(path of a config.json), not both",
                ),
                path=f"{where}.config",
                line=line,
            )
        )
    elif raw.get("config") is not None and not isinstance(raw["config"], Mapping):
        mistakes.append(
            Mistake(
                message=message("model_config_not_mapping", "'config' must be a mapping of fields"),
                path=f"{where}.config",
                line=line,
                value=raw["config"],
            )
        )
    mistakes += [
        Mistake(
            message=message(
                "model_count_not_positive",
                "{key} must be a positive whole number, not {value!r}",
                key=key,
                value=raw[key],
            ),
            path=f"{where}.{key}",
            line=line,
            value=raw[key],
        )
        for key in _COUNT_KEYS
        if raw.get(key) is not None and not _is_count(raw[key])
    ]
    return mistakes


def _unknown_key(key: Any, where: str, line: int | None) -> Mistake:
    import difflib

    return Mistake(
        message=message("unknown_model_key", "{key!r} is not a key of a model entry", key=key),
        path=f"{where}.{key}",
        line=line,
        near=tuple(difflib.get_close_matches(str(key), _KEYS, n=3)),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_config(path: Path) -> Mapping[str, Any]:
    """A ``config.json`` as a mapping.

    Raises:
        UnreadableFile: absent, empty, not JSON (with its line), or not a mapping.
    """
    try:
        config = json.loads(read_text(path))
    except RecursionError:
        raise too_deep(str(path)) from None
    except json.JSONDecodeError as problem:
        raise UnreadableFile(
            message(
                "broken_json",
                "{path} is not valid JSON: {problem} (column {column})",
                path=str(path),
                problem=problem.msg,
                column=problem.colno,
            ),
            path=str(path),
            line=problem.lineno,
        ) from problem
    if not isinstance(config, Mapping):
        raise UnreadableFile(
            message(
                "config_not_mapping",
                "{path} is not a model configuration: it must be a JSON object with 'model_type'",
                path=str(path),
            ),
            path=str(path),
            line=1,
        )
    return config
