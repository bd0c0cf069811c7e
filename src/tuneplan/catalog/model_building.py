"""From an entry, a folder or a ``config.json`` to a resolved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.model_entries import ModelEntry, read_config
from tuneplan.catalog.model_files import StoredWeights, find_config, stored_weights
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Assumption
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import MixtureOfExperts

# Constants that older checkpoints store beside the weights: rotary frequencies, causal masks.
_STORED_BUFFERS: Final = ("rotary_emb.inv_freq", ".masked_bias", ".attn.bias", ".attention.bias")
_CLASS_DEFAULT_SOURCE: Final = "configuration classes of transformers 5.24.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """A model and how it was found.

    Attributes:
        entry: The catalogue entry, None for a file, the hub or a bare size.
        notes: What the user should know (a variant taken for its base, counts that differ, ...).
        assumptions: Dimensions that nobody stated.
        stored: The safetensors headers of a model folder.
    """

    architecture: ModelArchitecture
    entry: ModelEntry | None = None
    notes: tuple[Message, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    stored: StoredWeights | None = None


def build_entry(entry: ModelEntry) -> tuple[ModelArchitecture, tuple[Assumption, ...]]:
    """The architecture of an entry, and the sizes its configuration leaves to the class."""
    architecture, defaults = build_architecture(
        entry.config, name=entry.name, hf_id=entry.hf_id, source=entry.source
    )
    if not entry.counts_router_bias:
        architecture = without_buffers(architecture)
    return architecture, default_assumptions(defaults)


def without_buffers(architecture: ModelArchitecture) -> ModelArchitecture:
    """The same model without weights that are counted but never trained (router bias)."""
    return replace(
        architecture, groups=tuple(_group_without_buffers(group) for group in architecture.groups)
    )


def _group_without_buffers(group: LayerGroup) -> LayerGroup:
    layer: Layer = group.layer
    mixture = layer.feed_forward
    if not isinstance(mixture, MixtureOfExperts):
        return group
    kept = tuple(weight for weight in mixture.weights if not weight.buffer)
    return replace(group, layer=replace(layer, feed_forward=replace(mixture, weights=kept)))


def resolve_path(path: Path) -> ResolvedModel:
    """A model folder or a ``config.json``.

    Raises:
        UnreadableFile, UnknownArchitecture, InvalidRequest: as ``ModelCatalog.resolve``.
    """
    folder = path if path.is_dir() else None
    config_path = find_config(path) if folder else path
    config = read_config(config_path)
    try:
        architecture, defaults = build_architecture(
            config, name=config_path.parent.resolve().name or str(path), source=str(config_path)
        )
    except InvalidRequest as problem:
        raise InvalidRequest(_located(problem.mistakes, config_path)) from problem
    stored = stored_weights(folder) if folder else None
    notes: list[Message] = []
    if stored is not None:
        notes += _compare(architecture, stored)
        if stored.dtype and not stored.num_packed:
            architecture = replace(architecture, stored_dtype=stored.dtype)
    if config.get("quantization_config"):
        notes.append(_quantized_message(config_path))
    return ResolvedModel(
        architecture=architecture,
        notes=tuple(notes),
        assumptions=default_assumptions(defaults),
        stored=stored,
    )


def _located(mistakes: Sequence[Mistake], config_path: Path) -> list[Mistake]:
    """The same mistakes with the file and the line where the field stands, if it does."""
    lines = config_path.read_text(encoding="utf-8").splitlines()
    located = []
    for mistake in mistakes:
        key = (mistake.path or "").rsplit(".", 1)[-1]
        found = [number for number, line in enumerate(lines, start=1) if f'"{key}"' in line]
        located.append(
            replace(
                mistake,
                file=str(config_path),
                line=found[0] if found else None,
            )
        )
    return located


def _compare(architecture: ModelArchitecture, stored: StoredWeights) -> list[Message]:
    """What the headers say otherwise than the description."""
    if stored.missing_files:
        return [
            message(
                "weights_incomplete",
                "{count} weight {count:~file/files} named by the index {count:~is/are} absent "
                "({names}), so the parameter count was not checked",
                count=len(stored.missing_files),
                names=", ".join(stored.missing_files[:3]),
            )
        ]
    if stored.num_packed:
        return [
            message(
                "weights_packed",
                "the stored weights are quantised, so the parameter count was not checked "
                "against them",
            )
        ]
    counted = stored.num_parameters - sum(
        size for name, size in stored.names.items() if name.endswith(_STORED_BUFFERS)
    )
    if architecture.head is None:
        counted -= stored.names.get("lm_head.weight", 0)
    bare = without_buffers(architecture).total_parameters
    if counted in (architecture.total_parameters, bare):
        return []
    return [
        message(
            "parameter_count_differs",
            "the files hold {stored} parameters, the description gives {described}: {difference} "
            "more in the files (extra prediction heads or an unknown part would explain it)",
            stored=f"{counted:,}",
            described=f"{architecture.total_parameters:,}",
            difference=f"{counted - architecture.total_parameters:,}",
        )
    ]


def default_assumptions(defaults: Mapping[str, int]) -> tuple[Assumption, ...]:
    """An assumption for each size that the configuration leaves to its class."""
    return tuple(
        Assumption(
            name=f"model.{name}",
            value=value,
            reason=message(
                "configuration_default",
                "not stated by the configuration; this is the value its class takes",
            ),
            source=_CLASS_DEFAULT_SOURCE,
            how_to_set=f"{name} in the model's config.json",
        )
        for name, value in defaults.items()
    )


def _quantized_message(path: Path) -> Message:
    return message(
        "config_quantized",
        "{path} describes quantised weights; the training method decides how the base is held",
        path=str(path),
    )
