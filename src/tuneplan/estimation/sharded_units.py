"""The model as the units that sharding gathers and reduces together."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.estimation.roles import Place, role_of, with_expert_targets
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture
from tuneplan.spec.recipe import Method, TrainingRecipe
from tuneplan.spec.weights import Weight, WeightKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is gathered and reduced together: one layer, or everything outside the layers.

    Attributes:
        count: Equal units.
        gathered_bytes: Of all its parameters, as communicated.
        trained_parameters: Whose gradients are reduced.
        adapter_matrices: Matrices that PEFT's wrap policy makes units of their own.
        is_root: Gathered once and kept from the first forward to the end of backward.
    """

    count: float
    gathered_bytes: float
    trained_parameters: float
    adapter_matrices: float = 0.0
    is_root: bool = False


def communication_units(model: ModelArchitecture, recipe: TrainingRecipe) -> tuple[Unit, ...]:
    """The model as units: one per layer (groups of equal layers together), and the root."""
    recipe = with_expert_targets(model, recipe)
    units = [
        _layer_unit(group.layer, recipe, count=count, trained=trained, language=language)
        for group, language in _groups(model)
        for count, trained in _trained_split(model, group, recipe, language=language)
        if count
    ]
    outer = [*model.embeddings, *model.outer, *((model.head,) if model.head else ())]
    vision_outer = list(model.vision.outer) if model.vision else []
    parameters = sum(weight.num_parameters for weight in (*outer, *vision_outer))
    trained = 0.0
    if recipe.method is Method.FULL:
        trained += sum(weight.num_parameters for weight in outer)
        trained += recipe.trains_vision * sum(weight.num_parameters for weight in vision_outer)
    elif recipe.adapter is not None:
        saved = [weight for weight in outer if weight.leaf in recipe.adapter.modules_to_save]
        trained += sum(weight.num_parameters for weight in saved)
        parameters += trained
    gathered = parameters * float(recipe.compute_dtype.num_bytes)
    root = Unit(count=1, gathered_bytes=gathered, trained_parameters=trained, is_root=True)
    return (*units, root)


def _groups(model: ModelArchitecture) -> Iterator[tuple[LayerGroup, bool]]:
    for group in model.groups:
        yield group, True
    if model.vision is not None:
        for group in model.vision.groups:
            yield group, False


def _trained_split(
    model: ModelArchitecture, group: LayerGroup, recipe: TrainingRecipe, *, language: bool
) -> tuple[tuple[int, bool], ...]:
    """``(layers, whether their own weights train)`` of a group."""
    if recipe.method is Method.FULL:
        return ((group.count, language or recipe.trains_vision),)
    if recipe.method is not Method.FREEZE or not language:
        return ((group.count, False),)
    first = model.num_layers - recipe.trained_layers
    if group.positions:
        trained = sum(position >= first for position in group.positions)
    else:
        trained = min(group.count, recipe.trained_layers)
    return ((group.count - trained, False), (trained, True))


def _layer_unit(
    layer: Layer, recipe: TrainingRecipe, *, count: int, trained: bool, language: bool
) -> Unit:
    weights = list(layer.weights())
    gathered = sum(_stored_bytes(weight, recipe) for weight in weights)
    adapters = matrices = 0.0
    if recipe.adapter is not None and (language or recipe.trains_vision):
        for weight in weights:
            role = role_of(weight, recipe, Place.LAYER)
            if role.adapted:
                pieces = role.adapter_parameters(weight, recipe.adapter)
                adapters += sum(pieces)
                matrices += 2
    own = sum(weight.num_parameters for weight in weights if not weight.buffer)
    return Unit(
        count=count,
        gathered_bytes=gathered + adapters * recipe.compute_dtype.num_bytes,
        trained_parameters=(own if trained else 0.0) + adapters,
        adapter_matrices=matrices,
    )


def _is_linear(weight: Weight) -> bool:
    return weight.kind in (WeightKind.LINEAR, WeightKind.EXPERTS)


def _stored_bytes(weight: Weight, recipe: TrainingRecipe) -> float:
    """Bytes of one weight as it travels: packed where quantised, else in the compute dtype."""
    quantization = recipe.quantization
    full = float(weight.num_parameters * recipe.compute_dtype.num_bytes)
    if quantization is None or not _is_linear(weight):
        return full
    if weight.kind is WeightKind.EXPERTS and not quantization.quantizes_experts:
        return full
    if weight.own_class and not quantization.quantizes_subclasses:
        return full
    return weight.num_parameters * quantization.bits / 8
