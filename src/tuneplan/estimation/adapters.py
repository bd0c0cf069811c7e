"""What a low-rank adapter reaches.

Follows PEFT 0.21.2 over transformers 5.24.0. A name in ``target_modules`` takes every module whose
path equals it or ends with ``.name`` (``tuners_utils.check_target_module_exists``); ``all-linear``
takes every linear but the output head (``_maybe_include_all_linear_layers``).

Routed experts are stacked parameters in transformers 5. For the model types of
``_EXPERT_NAMES`` PEFT turns the names that the experts had as modules into these parameters
(``utils/transformers_weight_conversion.py``): gate and up, which share one matrix, must be named
together and get twice the rank; each expert has matrices of its own; and *dense* blocks and shared
experts of the same names are then no longer reached. For other model types experts are not reached.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.architecture import (
    Attention,
    FeedForward,
    LayerGroup,
    MixtureOfExperts,
    ModelArchitecture,
    Recurrence,
    Weight,
    WeightKind,
    leaf_of,
)
from tuneplan.spec.recipe import Adapter

ALL_LINEAR: Final = "all-linear"

# PEFT 0.21.2, utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING. Mixtral is
# in that table, but its conversion of expert names runs first and leaves no target.
_QUERY_AND_VALUE: Final = ("q_proj", "v_proj")
_DEFAULT_TARGETS: Final = {
    "bloom": ("query_key_value",),
    "chatglm": ("query_key_value",),
    "falcon": ("query_key_value",),
    "gemma": _QUERY_AND_VALUE,
    "gemma2": _QUERY_AND_VALUE,
    "gemma3_text": _QUERY_AND_VALUE,
    "gemma4": _QUERY_AND_VALUE,
    "gpt2": ("c_attn",),
    "gpt_bigcode": ("c_attn",),
    "gpt_neox": ("query_key_value",),
    "llama": _QUERY_AND_VALUE,
    "mistral": _QUERY_AND_VALUE,
    "mpt": ("Wqkv",),
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "opt": _QUERY_AND_VALUE,
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "qwen2": _QUERY_AND_VALUE,
    "qwen3": _QUERY_AND_VALUE,
}
# name as a module of transformers 4 -> stacked parameter (or router) of transformers 5
_LIKE_MIXTRAL: Final = {
    "gate": "gate",
    "w1": "gate_up_proj",
    "w3": "gate_up_proj",
    "w2": "down_proj",
}
_LIKE_QWEN2_MOE: Final = {
    "gate": "gate",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
_EXPERT_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "mixtral": _LIKE_MIXTRAL,
    "minimax": _LIKE_MIXTRAL,
    "minimax_m2": _LIKE_MIXTRAL,
    "deepseek_v2": _LIKE_QWEN2_MOE,
    "deepseek_v3": _LIKE_QWEN2_MOE,
    "deepseek_v32": _LIKE_QWEN2_MOE,
    "glm4_moe": _LIKE_QWEN2_MOE,
    "glm4_moe_lite": _LIKE_QWEN2_MOE,
    "glm_moe_dsa": _LIKE_QWEN2_MOE,
    "qwen3_moe": _LIKE_QWEN2_MOE,
    "qwen3_next": _LIKE_QWEN2_MOE,
}
# PEFT refuses these on Mamba models (tuners_utils._check_lora_target_modules_mamba).
_NOT_ON_MAMBA: Final = {"nemotron_h": ("out_proj",)}
_MODULES: Final = (WeightKind.LINEAR, WeightKind.EMBEDDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModule:
    """One kind of linear of a model and how often it stands in it.

    Attributes:
        path: Full name with ``*`` for the layer number.
        count: How many of them the model has.
        vision: Whether it belongs to the image tower.
        rank_factor: Times the adapter's rank (2 where two fused matrices share one adapter).
    """

    path: str
    weight: Weight
    count: int
    vision: bool = False
    rank_factor: int = 1

    @property
    def leaf(self) -> str:
        """Last part of the name."""
        return self.weight.leaf

    @property
    def stacked(self) -> bool:
        """Whether it holds the matrices of all routed experts."""
        return self.weight.kind is WeightKind.EXPERTS

    def matches(self, name: str) -> bool:
        """Whether PEFT would take ``name`` for this module."""
        return self.path == name or self.path.endswith(f".{name}")

    def adapter_parameters(self, r: int, *, use_dora: bool = False) -> int:
        """LoRA's two matrices, r x in and out x r (Hu et al. 2021); DoRA's magnitude is out more.

        Over all layers that hold the module, and over all its experts.
        """
        matrices = self.weight.shape[0] if self.stacked else 1
        size = r * self.rank_factor * (self.weight.in_features + self.weight.out_features)
        magnitude = self.weight.out_features if use_dora else 0
        return self.count * matrices * (size + magnitude)


def linear_modules(
    architecture: ModelArchitecture, *, vision: bool = False
) -> tuple[LinearModule, ...]:
    """Every plain linear but the output head, in the order of the model.

    Args:
        architecture: The model.
        vision: Whether the image tower's linears are reached as well (PEFT alone does; trainers
            that freeze the tower do not).
    """
    return tuple(
        module
        for module in _modules(architecture, vision=vision)
        if module.weight.kind is WeightKind.LINEAR and module.weight is not architecture.head
    )


def default_target_modules(model_type: str) -> tuple[str, ...] | None:
    """The leaves PEFT 0.21.2 adapts when nothing is stated; None where it demands a statement."""
    return _DEFAULT_TARGETS.get(model_type)


def resolve_target_modules(
    architecture: ModelArchitecture,
    stated: str | Sequence[str] | None,
    *,
    vision: bool = False,
    passes_over_refused: bool = False,
) -> tuple[str, ...]:
    """The names an adapter targets: checked and without doubles.

    Args:
        architecture: The model.
        stated: ``all-linear``, names (or one name), or None for PEFT's default of this model type.
        vision: As in ``linear_modules``.
        passes_over_refused: Whether ``all-linear`` leaves out what PEFT refuses or fails on.

    Raises:
        InvalidRequest: names that the model lacks, each with near ones; names that PEFT refuses;
            or nothing is stated for a model type that PEFT has no default for.
    """
    if stated is None:
        default = default_target_modules(architecture.model_type)
        if default is None:
            raise InvalidRequest([_no_default(architecture)])
        return default
    if isinstance(stated, str) and stated.lower() == ALL_LINEAR:
        names = _all_linear(architecture, vision=vision)
        if passes_over_refused:
            refused = refused_targets(architecture)
            names = tuple(name for name in names if name not in refused)
    else:
        names = (stated,) if isinstance(stated, str) else tuple(dict.fromkeys(stated))
    mistakes = [
        *_unknown_names(architecture, names, vision=vision),
        *mistakes_of_targets(architecture, names),
    ]
    if mistakes or not names:
        raise InvalidRequest(mistakes or [_no_default(architecture)])
    _check_fused(architecture, _expert_names(architecture, names))
    return names


def adapted_modules(
    architecture: ModelArchitecture, adapter: Adapter, *, vision: bool = False
) -> tuple[LinearModule, ...]:
    """What an adapter's (resolved) names reach.

    Linears, embeddings, a head that is named (also a tied one, which is a module of its own), and
    experts where PEFT reaches them.

    Raises:
        InvalidRequest: one of two names is missing whose matrices are fused.
    """
    plain, stacked = split_targets(architecture, adapter)
    reached = []
    for module in _modules(architecture, vision=vision):
        kind = module.weight.kind
        if kind in _MODULES and any(module.matches(name) for name in plain):
            reached.append(module)
        elif kind in (WeightKind.EXPERTS, WeightKind.ROUTER) and module.leaf in stacked:
            reached.append(replace(module, rank_factor=stacked[module.leaf]))
    head = architecture.head_weight
    if architecture.head is None and head.name in plain:
        reached.append(LinearModule(path=head.name, weight=head, count=1))
    return tuple(reached)


def split_targets(
    architecture: ModelArchitecture, adapter: Adapter
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Names of modules, and the stacked parameters with the factor of their rank.

    Raises:
        InvalidRequest: one of two names is missing whose matrices are fused.
    """
    names = adapter.target_modules
    if adapter.expert_targets is not None:
        return names, dict(adapter.expert_targets)
    expert_names = _expert_names(architecture, names)
    _check_fused(architecture, expert_names)
    stacked: dict[str, int] = {}
    for parameter in expert_names.values():
        stacked[parameter] = stacked.get(parameter, 0) + 1
    return tuple(name for name in names if name not in expert_names), stacked


def expert_module_names(architecture: ModelArchitecture) -> tuple[str, ...]:
    """Names that routed experts and their router had as modules, where PEFT still takes them."""
    if not _has_experts(architecture):
        return ()
    return tuple(_EXPERT_NAMES.get(architecture.model_type, ()))


def feed_forward_weights(block: FeedForward | MixtureOfExperts | None) -> Iterator[Weight]:
    """Every weight of a feed-forward, the shared expert's last."""
    if block is None:
        return
    yield from block.weights
    if isinstance(block, MixtureOfExperts) and block.shared is not None:
        yield from block.shared.weights


def _all_linear(architecture: ModelArchitecture, *, vision: bool) -> tuple[str, ...]:
    leaves = dict.fromkeys(module.leaf for module in linear_modules(architecture, vision=vision))
    names = _EXPERT_NAMES.get(architecture.model_type, {}) if _has_experts(architecture) else {}
    return tuple(leaves | dict.fromkeys(names))


def _expert_names(architecture: ModelArchitecture, names: Sequence[str]) -> dict[str, str]:
    """Those of ``names`` that PEFT turns into stacked parameters, and into which."""
    known = _EXPERT_NAMES.get(architecture.model_type, {}) if _has_experts(architecture) else {}
    return {name: known[leaf_of(name)] for name in names if leaf_of(name) in known}


def _has_experts(architecture: ModelArchitecture) -> bool:
    return any(
        isinstance(group.layer.feed_forward, MixtureOfExperts) for group in architecture.groups
    )


def _check_fused(architecture: ModelArchitecture, expert_names: Mapping[str, str]) -> None:
    """Gate and up share one matrix: PEFT refuses one without the other."""
    fused = [name for name, new in expert_names.items() if new == "gate_up_proj"]
    if len(fused) != 1:
        return
    known = _EXPERT_NAMES[architecture.model_type]
    missing = [n for n, new in known.items() if new == "gate_up_proj" and n not in fused]
    raise InvalidRequest(
        [
            Mistake(
                message=message(
                    "fused_expert_targets",
                    "{model} holds {present} and {missing} of its experts in one matrix: target "
                    "both or neither",
                    model=architecture.name,
                    present=fused[0],
                    missing=", ".join(missing),
                ),
                path="adapter.target_modules",
                value=fused[0],
                near=tuple(missing),
            )
        ]
    )


def _modules(architecture: ModelArchitecture, *, vision: bool) -> Iterator[LinearModule]:
    """Every weight with its full path; the image tower only where ``vision``."""
    for weight in architecture.embeddings:
        yield LinearModule(path=weight.name, weight=weight, count=1)
    tower = architecture.vision
    if tower is not None and vision:
        for weight in tower.outer:
            yield LinearModule(path=weight.name, weight=weight, count=1, vision=True)
        for group in tower.groups:
            yield from _group_modules(group, vision=True)
    for group in architecture.groups:
        yield from _group_modules(group, vision=False)
    for weight in (*architecture.outer, *((architecture.head,) if architecture.head else ())):
        yield LinearModule(path=weight.name, weight=weight, count=1)


def _group_modules(group: LayerGroup, *, vision: bool) -> Iterator[LinearModule]:
    """Mixer, feed-forward, then the rest: the order in which they run."""
    layer = group.layer
    mixer: Sequence[Weight] = ()
    if isinstance(layer.mixer, Attention | Recurrence):
        mixer = layer.mixer.weights
    for weight in (*mixer, *feed_forward_weights(layer.feed_forward), *layer.extra):
        yield LinearModule(
            path=f"{group.prefix}.*.{weight.name}", weight=weight, count=group.count, vision=vision
        )


def _adaptable(architecture: ModelArchitecture, *, vision: bool) -> tuple[LinearModule, ...]:
    return tuple(
        module for module in _modules(architecture, vision=vision) if module.weight.kind in _MODULES
    )


def _unknown_names(
    architecture: ModelArchitecture, names: Sequence[str], *, vision: bool
) -> list[Mistake]:
    modules = _adaptable(architecture, vision=vision)
    experts = _expert_names(architecture, names)
    return [
        _unknown_target(architecture, name, modules)
        for name in names
        if name not in experts and not any(module.matches(name) for module in modules)
    ]


def refused_targets(architecture: ModelArchitecture) -> tuple[str, ...]:
    """Leaves of linears that PEFT refuses, or on which its LoRA fails."""
    failing = {weight.leaf for _, weight, _ in architecture.weights() if not weight.takes_lora}
    return (*_NOT_ON_MAMBA.get(architecture.model_type, ()), *sorted(failing))


def mistakes_of_targets(architecture: ModelArchitecture, names: Sequence[str]) -> list[Mistake]:
    """One mistake for each name that PEFT refuses on this model, or on which its LoRA fails."""
    refused = refused_targets(architecture)
    near = tuple(leaf for leaf in _leaves(linear_modules(architecture)) if leaf not in refused)
    return [
        Mistake(
            message=_why_refused(architecture, name),
            path="adapter.target_modules",
            value=name,
            near=near,
            how_to_fix=message(
                "name_the_others", "name the other modules: {leaves}", leaves=", ".join(near)
            ),
        )
        for name in names
        if leaf_of(name) in refused
    ]


def _why_refused(architecture: ModelArchitecture, name: str) -> Message:
    if leaf_of(name) in _NOT_ON_MAMBA.get(architecture.model_type, ()):
        return message(
            "target_refused_on_mamba",
            "PEFT does not adapt {name!r} of a Mamba model such as {model}: name the other "
            "modules instead",
            name=name,
            model=architecture.name,
        )
    return message(
        "target_breaks_lora",
        "PEFT's LoRA fails on {name!r} of {model}, which does not map one tensor to one like a "
        "plain linear",
        name=name,
        model=architecture.name,
    )


def _leaves(modules: Sequence[LinearModule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(module.leaf for module in modules))


def _offered(architecture: ModelArchitecture, modules: Sequence[LinearModule]) -> tuple[str, ...]:
    """Names that would be accepted, experts' included."""
    known = _EXPERT_NAMES.get(architecture.model_type, {}) if _has_experts(architecture) else {}
    return tuple(dict.fromkeys((*_leaves(modules), *known)))


def _unknown_target(
    architecture: ModelArchitecture, name: str, modules: Sequence[LinearModule]
) -> Mistake:
    leaves = _offered(architecture, modules)
    template = "{model} has no module {name!r} for an adapter; it offers {leaves}"
    code = "unknown_target_module"
    if _is_expert(architecture, name):
        code = "target_is_expert"
        template = (
            "{name!r} names routed experts or their router, which transformers 5 holds as stacked "
            "parameters that PEFT does not reach by this name; {model} offers {leaves}"
        )
    return Mistake(
        message=message(
            code, template, name=name, model=architecture.name, leaves=", ".join(leaves)
        ),
        path="adapter.target_modules",
        value=name,
        near=tuple(difflib.get_close_matches(name, leaves, n=3)),
        how_to_fix=_how_to_fix(leaves),
    )


def _is_expert(architecture: ModelArchitecture, name: str) -> bool:
    kinds = (WeightKind.EXPERTS, WeightKind.ROUTER)
    return any(
        module.weight.kind in kinds and (module.matches(name) or f".{name}." in module.path)
        for module in _modules(architecture, vision=False)
    )


def _no_default(architecture: ModelArchitecture) -> Mistake:
    leaves = _offered(architecture, linear_modules(architecture))
    return Mistake(
        message=message(
            "target_modules_needed",
            "PEFT has no default target_modules for model type {model_type!r}: state them",
            model_type=architecture.model_type,
        ),
        path="adapter.target_modules",
        near=leaves[:3],
        how_to_fix=_how_to_fix(leaves),
    )


def _how_to_fix(leaves: Sequence[str]) -> Message:
    return message(
        "use_known_target",
        "write all-linear, or one or more of: {leaves}",
        leaves=", ".join(leaves),
    )
