"""Counting parameters: by part, active per token, trained by a method.

What an adapter reaches is in ``adapters.py``; its names are offered here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.estimation.adapters import adapted_modules, resolve_target_modules
from tuneplan.estimation.model_modules import LinearModule, feed_forward_weights, linear_modules
from tuneplan.estimation.peft_names import default_target_modules
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import Attention, MixtureOfExperts
from tuneplan.spec.recipe import Adapter, Method
from tuneplan.spec.weights import Weight, WeightKind

__all__ = [
    "LinearModule",
    "ParameterCounts",
    "adapted_modules",
    "default_target_modules",
    "linear_modules",
    "parameter_counts",
    "resolve_target_modules",
    "saved_module_parameters",
    "trainable_parameters",
]


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
    reached = adapted_modules(architecture, adapter, vision=trains_vision)
    use_dora = adapter.use_dora or method is Method.DORA
    if use_dora and any(module.stacked for module in reached):
        raise InvalidRequest([_dora_on_experts(architecture)])
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
        for weight in feed_forward_weights(layer.feed_forward):
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


def _dora_on_experts(architecture: ModelArchitecture) -> Mistake:
    return Mistake(
        message=message(
            "dora_on_experts",
            "PEFT has no DoRA for the stacked experts of {model}: use lora, or target the "
            "attention alone",
            model=architecture.name,
        ),
        path="adapter.target_modules",
    )
