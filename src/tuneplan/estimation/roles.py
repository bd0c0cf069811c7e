"""What each weight is in this job: trained, adapted, quantised or simply there, and its dtype."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tuneplan.spec.architecture import ModelArchitecture, Weight, WeightKind
from tuneplan.spec.recipe import DType, Method, TrainingRecipe


class Place(StrEnum):
    """Where a weight stands."""

    LAYER = "layer"
    TRAINED_LAYER = "trained_layer"  # one of the last layers that ``freeze`` trains
    OUTER = "outer"  # embeddings, final norm, head
    HEAD = "head"
    VISION = "vision"


@dataclass(frozen=True, slots=True)
class Role:
    """What a weight is in this job.

    Attributes:
        dtype: As held (of the unquantised form where ``quantized``).
        adapted: A low-rank adapter stands beside it.
        copied: ``modules_to_save``: a trained copy stands beside the frozen original.
    """

    dtype: DType
    trained: bool = False
    adapted: bool = False
    quantized: bool = False
    copied: bool = False


def head_of(model: ModelArchitecture, recipe: TrainingRecipe) -> Weight | None:
    """The head as a weight of its own; None where it is the token embedding."""
    if model.head is not None or not recipe.unties_head:
        return model.head
    return head_like_embedding(model)


def head_like_embedding(model: ModelArchitecture) -> Weight:
    """A linear of the token embedding's shape."""
    return Weight(name="lm_head", kind=WeightKind.LINEAR, shape=model.token_embedding.shape)


def role_of(weight: Weight, recipe: TrainingRecipe, place: Place) -> Role:
    """The role of one weight of the model."""
    if weight.buffer:
        return Role(recipe.frozen_dtype)
    if recipe.method is Method.FULL:
        if place is Place.VISION and not recipe.trains_vision:
            return Role(recipe.frozen_dtype)
        return Role(recipe.trainable_dtype, trained=True)
    if recipe.method is Method.FREEZE:
        if place is Place.TRAINED_LAYER:
            return Role(recipe.trainable_dtype, trained=True)
        return Role(recipe.frozen_dtype)
    return _frozen_role(weight, recipe, place)


def _frozen_role(weight: Weight, recipe: TrainingRecipe, place: Place) -> Role:
    adapter = recipe.adapter
    copied = adapter is not None and weight.leaf in adapter.modules_to_save
    adapted = (
        adapter is not None
        and not copied
        and weight.kind is WeightKind.LINEAR
        and weight.leaf in adapter.target_modules
        and (place is not Place.VISION or recipe.trains_vision)
    )
    quantized = recipe.quantization is not None and _is_quantized(weight, recipe, place)
    if weight.kind is WeightKind.NORM:
        dtype = recipe.norm_dtype
    elif place in (Place.OUTER, Place.HEAD) or (recipe.quantization is not None and not quantized):
        dtype = recipe.outer_dtype
    else:
        dtype = recipe.frozen_dtype
    return Role(dtype, adapted=adapted, quantized=quantized, copied=copied)


def _is_quantized(weight: Weight, recipe: TrainingRecipe, place: Place) -> bool:
    quantization = recipe.quantization
    if quantization is None:
        return False
    if place is Place.HEAD:
        return quantization.quantizes_head
    if place is Place.OUTER:
        return False
    if weight.kind is WeightKind.EXPERTS:
        return quantization.quantizes_experts
    return weight.kind is WeightKind.LINEAR
