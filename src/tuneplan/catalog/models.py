"""What the user calls a model, resolved to its architecture.

Tried in this order: a path (folder or ``config.json``); a catalogue name, alias or hub id; a bare
size such as ``7B``; a variant of a model in the catalogue; the hub, where the caller allows it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.bare_gpt import gpt_config, is_bare_gpt
from tuneplan.catalog.bare_size import parse_bare_size, typical_config
from tuneplan.catalog.model_building import (
    ResolvedModel,
    build_entry,
    default_assumptions,
    resolve_path,
)
from tuneplan.catalog.model_entries import BUNDLED, ModelEntry, bundled_entries, user_entries
from tuneplan.catalog.model_names import (
    base_name,
    names_quantized_weights,
    normalized,
    without_owner,
)
from tuneplan.errors import InvalidRequest, Mistake, UnknownName
from tuneplan.language import Message, message, sentence
from tuneplan.spec.answer import Assumption
from tuneplan.spec.architecture import ModelArchitecture

_BARE_SIZE_SOURCE: Final = "docs/reference/models.md, rule for bare sizes"
_BARE_GPT_SOURCE: Final = "docs/reference/models.md, a GPT by its dimensions"


class ModelCatalog:
    """Entries by every name they are known under; the user's own win over the bundled ones."""

    def __init__(self, bundled: Iterable[ModelEntry], user: Iterable[ModelEntry] = ()) -> None:
        self._entries: dict[str, ModelEntry] = {}
        self._overridden: dict[str, ModelEntry] = {}
        self._by_name: dict[str, ModelEntry] = {}
        self._built: dict[str, tuple[ModelArchitecture, tuple[Assumption, ...]]] = {}
        for entry in sorted(bundled, key=lambda entry: normalized(entry.name)):
            self._entries[normalized(entry.name)] = entry
        for entry in user:
            key = normalized(entry.name)
            if key in self._entries:
                self._overridden[key] = self._entries[key]
            self._entries[key] = entry
        self._index(self._entries.values())

    def names(self) -> tuple[str, ...]:
        """Every entry's name, sorted without regard to case."""
        return tuple(self._entries[key].name for key in sorted(self._entries))

    def entries(self) -> tuple[ModelEntry, ...]:
        """Every entry, in the order of ``names``."""
        return tuple(self._entries[key] for key in sorted(self._entries))

    def entry(self, name: str) -> ModelEntry:
        """The entry under a name, alias or hub id.

        Raises:
            UnknownName: with near matches.
        """
        found = self._by_name.get(normalized(name))
        if found is None:
            raise self._unknown(name)
        return found

    def overridden(self, name: str) -> ModelEntry | None:
        """The bundled entry that a user's entry of this name took the place of."""
        return self._overridden.get(normalized(name))

    def architecture(self, name: str) -> ModelArchitecture:
        """The architecture of a catalogue entry.

        Raises:
            UnknownName: with near matches.
        """
        return build_entry(self.entry(name))[0]

    def resolve(
        self, text: str, *, base_path: str | Path = ".", allow_network: bool = False
    ) -> ResolvedModel:
        """The model that ``text`` means; relative paths start at ``base_path``.

        Raises:
            UnknownName: nothing of that name; near matches are given.
            UnknownArchitecture: a configuration whose layers we cannot describe.
            UnreadableFile: a missing, empty or broken file, or the hub did not answer.
            InvalidRequest: a configuration with missing or impossible fields.
        """
        if not text.strip():
            raise InvalidRequest(
                [Mistake(message=message("model_empty", "the model is not named"), path="model")]
            )
        path = Path(base_path) / Path(text).expanduser()
        if _is_path(text, path):
            return resolve_path(path)
        known = self._by_name.get(normalized(text))
        if known is not None:
            return self._from_entry(known, text)
        if is_bare_gpt(text):
            return _from_dimensions(text)
        size = parse_bare_size(text)
        if size is not None:
            return _from_bare_size(text, size)
        base = self._base_of(text)
        if base is not None:
            return self._from_variant(base, text)
        if allow_network and "/" in text:
            return _from_hub(text)
        raise self._unknown(text)

    def _index(self, entries: Iterable[ModelEntry]) -> None:
        """Names before hub ids before aliases, user's before bundled; ties by entry name."""
        ordered = sorted(entries, key=lambda entry: (_is_bundled(entry), normalized(entry.name)))
        for pick in (_own_names, _hub_names, _alias_names):
            for entry in ordered:
                for name in pick(entry):
                    self._by_name.setdefault(normalized(name), entry)

    def _base_of(self, text: str) -> ModelEntry | None:
        """The entry whose name without variant words equals that of ``text``."""
        wanted = base_name(text)
        direct = self._by_name.get(wanted)
        if direct is not None:
            return direct
        found = {
            id(entry): entry for name, entry in self._by_name.items() if base_name(name) == wanted
        }
        shapes = {tuple(_shape_fields(entry.config)) for entry in found.values()}
        return next(iter(found.values())) if len(shapes) == 1 else None

    def _from_entry(self, entry: ModelEntry, text: str) -> ResolvedModel:
        found = self._built.get(entry.name)
        if found is None:
            found = self._built[entry.name] = build_entry(entry)
        architecture, assumptions = found
        notes = [*_entry_notes(entry), *_quantized_note(text)]
        hidden = self.overridden(entry.name)
        if hidden is not None:
            notes.append(
                message(
                    "model_overridden",
                    "{name} from {origin} takes the place of the bundled entry ({source})",
                    name=entry.name,
                    origin=entry.origin,
                    source=hidden.source,
                )
            )
        return ResolvedModel(
            architecture=architecture, entry=entry, notes=tuple(notes), assumptions=assumptions
        )

    def _from_variant(self, entry: ModelEntry, text: str) -> ResolvedModel:
        resolved = self._from_entry(entry, text)
        taken = Assumption(
            name="model",
            value=entry.name,
            reason=message(
                "model_variant",
                "{text} is not in the catalogue itself; variants of a model share its dimensions",
                text=text,
            ),
            source="catalog/data/models.json",
            how_to_set=sentence("model: a model folder, a config.json, or a file under `models`"),
        )
        architecture = resolved.architecture
        if "/" in text:
            architecture = replace(architecture, hf_id=text)
        assumptions = (taken, *resolved.assumptions)
        return replace(resolved, architecture=architecture, assumptions=assumptions)

    def _unknown(self, text: str) -> UnknownName:
        wanted = normalized(text)
        names = {key: entry.name for key, entry in self._by_name.items()}
        short = {normalized(without_owner(key)): name for key, name in names.items()}
        pool = {**short, **names}
        close = difflib.get_close_matches(wanted, pool, n=12, cutoff=0.55)
        close += difflib.get_close_matches(base_name(text), pool, n=12, cutoff=0.55)
        near = tuple(dict.fromkeys(pool[key] for key in close))[:5]
        return UnknownName(
            message(
                "unknown_model",
                "no model {text!r} in the catalogue: give a catalogue name, the "
                "path of a model folder or config.json, or a bare size such as '7B'",
                text=text,
            ),
            name=text,
            near=near,
        )


def load_models(user_files: Sequence[str | Path] = ()) -> ModelCatalog:
    """The bundled catalogue with the user's files before it; of two files the later one wins.

    Raises:
        UnreadableFile, InvalidRequest: a user's file is absent, broken or wrong.
        CatalogError: the bundled file is damaged.
    """
    user = [entry for file in user_files for entry in user_entries(Path(file))]
    return ModelCatalog(bundled_entries(), user)


def _from_bare_size(text: str, num_parameters: float) -> ResolvedModel:
    config = typical_config(num_parameters)
    architecture, _ = build_architecture(config, name=text.strip(), source=_BARE_SIZE_SOURCE)
    assumed = tuple(key for key in config if key != "model_type")
    assumptions = tuple(
        Assumption(
            name=f"model.{key}",
            value=config[key],
            reason=message(
                "typical_dimension", "typical of a decoder of {size} parameters", size=text.strip()
            ),
            source=_BARE_SIZE_SOURCE,
            how_to_set=sentence("model: a catalogue name or the path of a config.json"),
        )
        for key in ("model_type", *assumed)
    )
    return ResolvedModel(
        architecture=replace(architecture, assumed_fields=assumed), assumptions=assumptions
    )


def _from_dimensions(text: str) -> ResolvedModel:
    config, assumed = gpt_config(text)
    architecture, _ = build_architecture(config, name=text.strip(), source=_BARE_GPT_SOURCE)
    assumptions = tuple(
        Assumption(
            name=f"model.{field}",
            value=config[field],
            reason=message("gpt_dimension", "usual for a GPT of Megatron-LM's"),
            source=_BARE_GPT_SOURCE,
            how_to_set="model: gpt:num_layers=...,hidden_size=...,num_attention_heads=...",
        )
        for field in assumed
    )
    return ResolvedModel(
        architecture=replace(architecture, assumed_fields=assumed), assumptions=assumptions
    )


def _from_hub(hub_id: str) -> ResolvedModel:
    from tuneplan.catalog.hub import fetch_config

    config = fetch_config(hub_id)
    architecture, defaults = build_architecture(
        config, name=hub_id, hf_id=hub_id, source=f"hub configuration of {hub_id}"
    )
    note = message(
        "model_from_hub", "the configuration of {name} was read from the hub", name=hub_id
    )
    return ResolvedModel(
        architecture=architecture, notes=(note,), assumptions=default_assumptions(defaults)
    )


def _is_path(text: str, path: Path) -> bool:
    looks_like_one = text.startswith((".", "~", "/")) or text.endswith(".json")
    try:
        return looks_like_one or (path.is_dir() and (path / "config.json").is_file())
    except OSError:  # longer than a file name may be
        return False


def _is_bundled(entry: ModelEntry) -> bool:
    return entry.origin == BUNDLED


def _own_names(entry: ModelEntry) -> Sequence[str]:
    return (entry.name,)


def _hub_names(entry: ModelEntry) -> Sequence[str]:
    return (entry.hf_id, without_owner(entry.hf_id)) if entry.hf_id else ()


def _alias_names(entry: ModelEntry) -> Sequence[str]:
    return entry.aliases


def _shape_fields(config: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What decides a model's size, for comparing entries that share a base name."""
    ignored = ("max_position_embeddings", "rope_theta", "dtype", "rope_parameters")
    return sorted((key, repr(value)) for key, value in config.items() if key not in ignored)


def _entry_notes(entry: ModelEntry) -> list[Message]:
    notes = []
    if entry.confidence == "low":
        notes.append(
            message(
                "model_dimensions_uncertain",
                "the dimensions of {name} are less certain than most ({source}); give its "
                "config.json to be sure",
                name=entry.name,
                source=entry.source,
            )
        )
    if entry.note:
        notes.append(message("model_remark", "{name}: {note}", name=entry.name, note=entry.note))
    return notes


def _quantized_note(text: str) -> list[Message]:
    if not names_quantized_weights(text):
        return []
    return [
        message(
            "model_published_quantized",
            "{text} is published with quantised weights; its dimensions are those of the base "
            "model, and the training method decides how the base is held",
            text=text,
        )
    ]
