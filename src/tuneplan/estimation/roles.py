"""What each weight is in this job: trained, adapted, quantised or simply there, and its dtype."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from tuneplan.estimation.adapters import split_targets
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Adapter, DType, Method, Objective, TrainingRecipe
from tuneplan.spec.weights import Weight, WeightKind


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
        copy_dtype: Of that copy.
        rank_factor: What the adapter's rank is multiplied by (2 where two matrices are one).
    """

    dtype: DType
    trained: bool = False
    adapted: bool = False
    quantized: bool = False
    copied: bool = False
    rank_factor: int = 1
    copy_dtype: DType | None = None

    @property
    def used_dtype(self) -> DType:
        """Of the weight that products read: the copy's where there is one."""
        return self.copy_dtype or self.dtype

    def adapter_parameters(self, weight: Weight, adapter: Adapter) -> tuple[int, ...]:
        """Elements of each trained tensor of the weight's adapter: A, B and DoRA's magnitude."""
        matrices = weight.shape[0] if weight.kind is WeightKind.EXPERTS else 1
        rank = adapter.r * self.rank_factor * matrices
        low_rank = (rank * weight.in_features, rank * weight.out_features)
        return (*low_rank, weight.out_features) if adapter.use_dora else low_rank


def as_trained(model: ModelArchitecture, recipe: TrainingRecipe) -> ModelArchitecture:
    """The model that the objective trains: a reward model has one score in place of a head.

    Source: transformers ``modeling_layers.py GenericForSequenceClassification``, TRL
    ``trainer/reward_trainer.py`` (``num_labels=1``).
    """
    if recipe.objective is not Objective.RM:
        return model
    score = Weight(name="score", kind=WeightKind.LINEAR, shape=(1, model.hidden_size))
    return replace(model, head=score, logit_scale=False, logit_softcap=False)


def head_of(model: ModelArchitecture, recipe: TrainingRecipe) -> Weight | None:
    """The head as a weight of its own; None where it is the token embedding."""
    return model.head_weight if recipe.unties_head else model.head


def with_expert_targets(model: ModelArchitecture, recipe: TrainingRecipe) -> TrainingRecipe:
    """The recipe with the names of routed experts made into the parameters they reach."""
    adapter = recipe.adapter
    if adapter is None or adapter.expert_targets is not None:
        return recipe
    plain, stacked = split_targets(model, adapter)
    named = replace(adapter, target_modules=plain, expert_targets=tuple(stacked.items()))
    return replace(recipe, adapter=named)


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
    factor = 0
    if adapter is not None and not copied and (place is not Place.VISION or recipe.trains_vision):
        factor = _rank_factor(weight, adapter)
    quantized = recipe.quantization is not None and _is_quantized(weight, recipe, place)
    if weight.kind is WeightKind.NORM:
        dtype = recipe.norm_dtype
    elif place in (Place.OUTER, Place.HEAD) or (recipe.quantization is not None and not quantized):
        dtype = recipe.outer_dtype
    else:
        dtype = recipe.frozen_dtype
    return Role(
        dtype,
        adapted=factor > 0,
        quantized=quantized,
        copied=copied,
        rank_factor=max(factor, 1),
        copy_dtype=recipe.trainable_dtype if copied else None,
    )


def _rank_factor(weight: Weight, adapter: Adapter) -> int:
    """What the rank of this weight's adapter is multiplied by; 0 without one."""
    if weight.kind in (WeightKind.LINEAR, WeightKind.EMBEDDING):
        return int(weight.leaf in adapter.target_modules)
    if weight.kind in (WeightKind.EXPERTS, WeightKind.ROUTER):
        return dict(adapter.expert_targets or ()).get(weight.leaf, 0)
    return 0


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
    if weight.own_class and not quantization.quantizes_subclasses:
        return False
    return weight.kind is WeightKind.LINEAR
