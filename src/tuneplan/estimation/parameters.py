"""Counting parameters: by part, active per token, reached by adapters, trained by a method.

Adapters follow PEFT 0.21.2: ``target_modules`` names match a module whose path equals the name or
ends with ``.name`` (``tuners_utils.check_target_module_exists``); ``all-linear`` takes every linear
except the output head (``_maybe_include_all_linear_layers``). Routed experts are stacked parameters
and routers are no plain linears in transformers 5, so neither is reached.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message
from tuneplan.spec.architecture import (
    Attention,
    FeedForward,
    LayerGroup,
    MixtureOfExperts,
    ModelArchitecture,
    Recurrence,
    Weight,
    WeightKind,
)
from tuneplan.spec.recipe import Adapter, Method

ALL_LINEAR: Final = "all-linear"

# PEFT 0.21.2, utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
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
    "mixtral": _QUERY_AND_VALUE,
    "mpt": ("Wqkv",),
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "opt": _QUERY_AND_VALUE,
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "qwen2": _QUERY_AND_VALUE,
    "qwen3": _QUERY_AND_VALUE,
}
_ADAPTABLE: Final = (WeightKind.LINEAR, WeightKind.EMBEDDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModule:
    """One kind of linear of a model and how often it stands in it.

    Attributes:
        path: Full name with ``*`` for the layer number.
        count: How many of them the model has.
        vision: Whether it belongs to the image tower.
    """

    path: str
    weight: Weight
    count: int
    vision: bool = False

    @property
    def leaf(self) -> str:
        """Last part of the name."""
        return self.weight.leaf

    def matches(self, name: str) -> bool:
        """Whether PEFT would take ``name`` for this module."""
        return self.path == name or self.path.endswith(f".{name}")

    def adapter_parameters(self, r: int, *, use_dora: bool = False) -> int:
        """LoRA's two matrices, r x in and out x r (Hu et al. 2021); DoRA's magnitude is out more.

        Over all layers that hold the module.
        """
        one = r * (self.weight.in_features + self.weight.out_features)
        return self.count * (one + (self.weight.out_features if use_dora else 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters by part, each with its biases; the parts sum to ``total``.

    Attributes:
        attention: Softmax attention without q/k norms; ``recurrence`` the linear-time mixers.
        feed_forward: Dense blocks and shared experts; ``experts`` the routed ones.
        other: Bare parameters and buffers that belong to no part above.
        active: Total less the routed experts that a token does not visit.
        matmul_active: Weights (no biases) that multiply each text token: linears, routers, visited
            experts, and the head even where it is tied. The image tower is left out.
    """

    embeddings: int
    attention: int
    recurrence: int
    feed_forward: int
    experts: int
    routers: int
    norms: int
    head: int
    vision: int
    other: int
    total: int
    active: int
    matmul_active: int


def linear_modules(
    architecture: ModelArchitecture, *, vision: bool = False
) -> tuple[LinearModule, ...]:
    """Every linear that ``all-linear`` reaches, in the order of the model.

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
) -> tuple[str, ...]:
    """The names an adapter targets: checked, without doubles, in the order of the model.

    Args:
        architecture: The model.
        stated: ``all-linear``, names (or one name), or None for PEFT's default of this model type.
        vision: As in ``linear_modules``.

    Raises:
        InvalidRequest: names that the model lacks, each with near ones; or nothing is stated for a
            model type that PEFT has no default for.
    """
    if stated is None:
        default = default_target_modules(architecture.model_type)
        if default is None:
            raise InvalidRequest([_no_default(architecture)])
        return default
    if isinstance(stated, str) and stated.lower() == ALL_LINEAR:
        leaves = (module.leaf for module in linear_modules(architecture, vision=vision))
        return tuple(dict.fromkeys(leaves))
    names = (stated,) if isinstance(stated, str) else tuple(stated)
    modules = _adaptable(architecture, vision=vision)
    mistakes = [
        _unknown_target(architecture, name, modules)
        for name in names
        if not any(module.matches(name) for module in modules)
    ]
    if mistakes or not names:
        raise InvalidRequest(mistakes or [_no_default(architecture)])
    first = {
        name: next(i for i, module in enumerate(modules) if module.matches(name)) for name in names
    }
    return tuple(sorted(first, key=lambda name: first[name]))


def adapted_modules(
    architecture: ModelArchitecture, target_modules: Sequence[str], *, vision: bool = False
) -> tuple[LinearModule, ...]:
    """The modules that (resolved) names reach: linears, embeddings, the head if it is named."""
    return tuple(
        module
        for module in _adaptable(architecture, vision=vision)
        if any(module.matches(name) for name in target_modules)
    )


def trainable_parameters(
    architecture: ModelArchitecture,
    method: Method,
    adapter: Adapter | None = None,
    *,
    trained_layers: int = 0,
    trains_vision: bool = False,
) -> int:
    """Parameters that receive gradients.

    Args:
        architecture: The model.
        method: Full trains all but buffers; freeze the last ``trained_layers`` layers (as
            LLaMA-Factory's ``freeze_trainable_layers`` does); the others the adapter alone.
        adapter: With resolved targets; needed by the methods that use one.
        trained_layers: For freeze.
        trains_vision: Whether the image tower takes part.

    Raises:
        InvalidRequest: an adapter method without adapter, or more trained layers than layers.
    """
    if method is Method.FULL:
        excluded = 0 if architecture.vision is None or trains_vision else _vision(architecture)
        return architecture.total_parameters - _buffers(architecture) - excluded
    if method is Method.FREEZE:
        return _last_layers(architecture, trained_layers)
    if adapter is None:
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "adapter_missing", "method {method} needs an adapter", method=str(method)
                    ),
                    path="adapter",
                )
            ]
        )
    reached = adapted_modules(architecture, adapter.target_modules, vision=trains_vision)
    use_dora = adapter.use_dora or method is Method.DORA
    low_rank = sum(module.adapter_parameters(adapter.r, use_dora=use_dora) for module in reached)
    return low_rank + saved_module_parameters(architecture, adapter.modules_to_save)


def saved_module_parameters(architecture: ModelArchitecture, modules_to_save: Sequence[str]) -> int:
    """Parameters of the full copies PEFT trains; a tied head is copied whole when it is named."""
    copied = sum(
        count * weight.num_parameters
        for path, weight, count in architecture.weights()
        if any(path == name or path.endswith(f".{name}") for name in modules_to_save)
    )
    if architecture.head is None and "lm_head" in modules_to_save:
        copied += architecture.token_embedding.num_weight_elements
    return copied


def parameter_counts(architecture: ModelArchitecture) -> ParameterCounts:
    """Parameters by part; a partition of ``total_parameters``."""
    part: dict[str, int] = dict.fromkeys(
        ("attention", "recurrence", "feed_forward", "experts", "routers", "norms", "other"), 0
    )
    for name, weight, count in _parts(architecture):
        part[name] += count * weight.num_parameters
    head = architecture.head
    return ParameterCounts(
        embeddings=sum(weight.num_parameters for weight in architecture.embeddings),
        head=0 if head is None else head.num_parameters,
        vision=_vision(architecture),
        total=architecture.total_parameters,
        active=architecture.active_parameters,
        matmul_active=_matmul_active(architecture),
        **part,
    )


def _parts(architecture: ModelArchitecture) -> Iterator[tuple[str, Weight, int]]:
    """Every weight of the layers and of ``outer``, with the part it belongs to."""
    for weight in architecture.outer:
        yield _part_of(weight, "other"), weight, 1
    for group in architecture.groups:
        layer = group.layer
        for weight in layer.norms:
            yield _part_of(weight, "norms"), weight, group.count
        if layer.mixer is not None:
            home = "attention" if isinstance(layer.mixer, Attention) else "recurrence"
            for weight in layer.mixer.weights:
                yield _part_of(weight, home), weight, group.count
        for weight in _feed_forward_weights(layer.feed_forward):
            yield _part_of(weight, "feed_forward"), weight, group.count
        for weight in layer.extra:
            yield _part_of(weight, "other"), weight, group.count


def _part_of(weight: Weight, home: str) -> str:
    """Norms, experts, routers and buffers are parts of their own wherever they stand."""
    if weight.buffer:
        return "other"
    own = {
        WeightKind.NORM: "norms",
        WeightKind.EXPERTS: "experts",
        WeightKind.ROUTER: "routers",
    }
    return own.get(weight.kind, home)


def _feed_forward_weights(block: FeedForward | MixtureOfExperts | None) -> Iterator[Weight]:
    if block is None:
        return
    yield from block.weights
    if isinstance(block, MixtureOfExperts) and block.shared is not None:
        yield from block.shared.weights


def _matmul_active(architecture: ModelArchitecture) -> int:
    total = 0
    for group in architecture.groups:
        for weight in group.layer.weights():
            total += group.count * _multiplied(weight, group)
    total += sum(w.num_weight_elements for w in architecture.outer if w.kind is WeightKind.LINEAR)
    head = architecture.head or architecture.token_embedding
    return total + head.num_weight_elements


def _multiplied(weight: Weight, group: LayerGroup) -> int:
    """Elements of the weight that multiply one token."""
    if weight.kind in (WeightKind.LINEAR, WeightKind.ROUTER):
        return weight.num_weight_elements
    mixture = group.layer.feed_forward
    if weight.kind is WeightKind.EXPERTS and isinstance(mixture, MixtureOfExperts):
        return weight.num_weight_elements * mixture.num_experts_per_tok // mixture.num_experts
    return 0


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
    for weight in (*mixer, *_feed_forward_weights(layer.feed_forward), *layer.extra):
        yield LinearModule(
            path=f"{group.prefix}.*.{weight.name}", weight=weight, count=group.count, vision=vision
        )


def _adaptable(architecture: ModelArchitecture, *, vision: bool) -> tuple[LinearModule, ...]:
    return tuple(
        module
        for module in _modules(architecture, vision=vision)
        if module.weight.kind in _ADAPTABLE
    )


def _vision(architecture: ModelArchitecture) -> int:
    return 0 if architecture.vision is None else architecture.vision.num_parameters


def _buffers(architecture: ModelArchitecture) -> int:
    return sum(
        count * weight.num_parameters
        for _, weight, count in architecture.weights()
        if weight.buffer
    )


def _last_layers(architecture: ModelArchitecture, trained_layers: int) -> int:
    num_layers = architecture.num_layers
    if not 0 < trained_layers <= num_layers:
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "trained_layers_out_of_range",
                        "training.trained_layers is {value}, but {model} has {count} layers",
                        value=trained_layers,
                        model=architecture.name,
                        count=num_layers,
                    ),
                    path="training.trained_layers",
                    value=trained_layers,
                )
            ]
        )
    first = num_layers - trained_layers
    return sum(
        _trainable_of_layer(group)
        * sum(position >= first for position in group.positions or range(group.count))
        for group in architecture.groups
    )


def _trainable_of_layer(group: LayerGroup) -> int:
    return sum(weight.num_parameters for weight in group.layer.weights() if not weight.buffer)


def _leaves(modules: Sequence[LinearModule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(module.leaf for module in modules))


def _unknown_target(
    architecture: ModelArchitecture, name: str, modules: Sequence[LinearModule]
) -> Mistake:
    leaves = _leaves(modules)
    if _is_expert(architecture, name):
        text = message(
            "target_is_expert",
            "{name!r} names the routed experts or their router, which transformers 5 holds as "
            "stacked parameters that PEFT's target_modules does not reach; {model} offers {leaves}",
            name=name,
            model=architecture.name,
            leaves=", ".join(leaves),
        )
    else:
        text = message(
            "unknown_target_module",
            "{model} has no module {name!r} for an adapter; it offers {leaves}",
            name=name,
            model=architecture.name,
            leaves=", ".join(leaves),
        )
    return Mistake(
        message=text,
        path="adapter.target_modules",
        value=name,
        near=tuple(difflib.get_close_matches(name, leaves, n=3)),
        how_to_fix=message(
            "use_known_target",
            "write all-linear, or one or more of: {leaves}",
            leaves=", ".join(leaves),
        ),
    )


def _is_expert(architecture: ModelArchitecture, name: str) -> bool:
    kinds = (WeightKind.EXPERTS, WeightKind.ROUTER)
    return any(
        module.weight.kind in kinds and (module.matches(name) or f".{name}." in module.path)
        for module in _modules(architecture, vision=False)
    )


def _no_default(architecture: ModelArchitecture) -> Mistake:
    leaves = _leaves(linear_modules(architecture))
    return Mistake(
        message=message(
            "target_modules_needed",
            "PEFT has no default target_modules for model type {model_type!r}: state them",
            model_type=architecture.model_type,
        ),
        path="adapter.target_modules",
        near=leaves[:3],
        how_to_fix=message(
            "use_known_target",
            "write all-linear, or one or more of: {leaves}",
            leaves=", ".join(leaves),
        ),
    )
