"""The tensors that stay on the card, one by one and in the order they are made."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.estimation.optimizer_memory import (
    TrainedTensor,
    adapter_pieces,
    moments,
    state_bytes,
    step_temporaries,
    trained_pieces,
)
from tuneplan.estimation.persistent import num_trained_layers, quantized_bytes
from tuneplan.estimation.roles import Place, Role, as_trained, head_of, role_of, with_expert_targets
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.recipe import (
    DType,
    OptimizerFamily,
    Quantization,
    QuantizationType,
    TrainingRecipe,
)
from tuneplan.spec.weights import Weight

_PAGED_FROM = 100_000  # bitsandbytes pages states of tensors of at least so many elements
_EIGHT_BIT = (OptimizerFamily.ADAMW_8BIT, OptimizerFamily.LION_8BIT)
_CODE_BYTES = 256 * 4  # bitsandbytes' table of the nested scales' values
HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class LoadedTensor:
    """One parameter on its way to the card, in bytes.

    Attributes:
        sizes: What stays of it (a quantised matrix has packed values, scales and tables).
        staging: What passes through the card first: a quantised matrix in half precision.
        upcast_from: The half-precision form that k-bit preparation replaces, 0 where none.
    """

    sizes: tuple[int, ...]
    staging: int = 0
    upcast_from: int = 0


def in_order(
    model: ModelArchitecture, recipe: TrainingRecipe
) -> Iterator[tuple[Weight, Role, Place]]:
    """Every weight as a Hugging Face model registers them.

    Embeddings, image tower, layers by position, final norm, head.
    """
    model = as_trained(model, recipe)
    recipe = with_expert_targets(model, recipe)
    weights = [(weight, Place.OUTER) for weight in model.embeddings]
    if model.vision is not None:
        layers = [group.layer for group in model.vision.groups for _ in range(group.count)]
        tower = (*model.vision.outer, *(weight for layer in layers for weight in layer.weights()))
        weights += [(weight, Place.VISION) for weight in tower]
    weights += [
        (weight, place) for layer, place in _layers(model, recipe) for weight in layer.weights()
    ]
    weights += [(weight, Place.OUTER) for weight in model.outer]
    head = head_of(model, recipe)
    if head is not None:
        weights.append((head, Place.HEAD))
    for weight, place in weights:
        yield weight, role_of(weight, recipe, place), place


def _layers(model: ModelArchitecture, recipe: TrainingRecipe) -> list[tuple[Layer, Place]]:
    placed: list[tuple[int, Layer, Place]] = []
    for group in model.groups:
        frozen = group.count - num_trained_layers(model, recipe, group)
        positions = group.positions or range(len(placed), len(placed) + group.count)
        for index, position in enumerate(positions):
            place = Place.LAYER if index < frozen else Place.TRAINED_LAYER
            placed.append((position, group.layer, place))
    placed.sort(key=lambda item: item[0])
    return [(layer, place) for _, layer, place in placed]


def loaded_tensors(model: ModelArchitecture, recipe: TrainingRecipe) -> list[LoadedTensor]:
    """The model's parameters in loading order."""
    found: list[LoadedTensor] = []
    for weight, role, _ in in_order(model, recipe):
        width = role.dtype.num_bytes
        prepared = recipe.quantization is not None and role.dtype is DType.FLOAT32
        if role.quantized and recipe.quantization is not None:
            found.append(_quantized(weight.num_weight_elements, recipe.quantization))
            pieces = [weight.num_bias_elements]
        else:
            pieces = [weight.num_weight_elements, weight.num_bias_elements]
        found += [
            LoadedTensor((n * width,), upcast_from=n * HALF_BYTES if prepared else 0)
            for n in pieces
            if n
        ]
    return found


def _quantized(elements: int, quantization: Quantization) -> LoadedTensor:
    """Source: bitsandbytes 0.43-0.50 ``functional.py quantize_4bit``, ``nn/modules.py``."""
    packed, constants = quantized_bytes(elements, quantization)
    sizes = [int(packed)]
    groups = elements // quantization.block_size
    if quantization.type is QuantizationType.GPTQ:
        return LoadedTensor((*sizes, groups * HALF_BYTES, groups // 2))  # scales, packed zeros
    if quantization.double_quant and quantization.bits == 4:
        sizes += [groups, max(groups // 256, 1) * 4, _CODE_BYTES, _CODE_BYTES // 16, 4]
    elif constants:
        sizes += [int(constants), _CODE_BYTES // 16]
    return LoadedTensor(tuple(sizes), staging=elements * HALF_BYTES)


def adapter_tensors(model: ModelArchitecture, recipe: TrainingRecipe) -> list[TrainedTensor]:
    """What PEFT adds, in its order: A, B (and magnitude) of each module, whole copies."""
    model, adapter = as_trained(model, recipe), recipe.adapter
    found: list[TrainedTensor] = []
    weights = list(in_order(model, recipe))
    if head_of(model, recipe) is None:  # a tied head is a module, if not a weight
        head = model.head_weight
        weights.append((head, role_of(head, recipe, Place.HEAD), Place.HEAD))
    for weight, role, place in weights:
        if role.copied:
            found += trained_pieces(weight, recipe.trainable_dtype, place)
        if role.adapted and adapter is not None:
            found += adapter_pieces(weight, role, adapter)
    return found


def trained_tensors(model: ModelArchitecture, recipe: TrainingRecipe) -> list[TrainedTensor]:
    """Every trained tensor in the order of the model's parameters."""
    if recipe.method.uses_adapter:
        return adapter_tensors(model, recipe)
    found: list[TrainedTensor] = []
    for weight, role, place in in_order(model, recipe):
        if role.trained:
            found += trained_pieces(weight, role.dtype, place)
    return found


def optimizer_state_sizes(tensor: TrainedTensor, recipe: TrainingRecipe) -> list[int]:
    """Bytes of the state tensors that one trained tensor gets in the first step."""
    optimizer = recipe.optimizer
    if optimizer.paged and tensor.elements >= _PAGED_FROM:
        return []
    total = state_bytes(tensor, optimizer)
    parts = moments(tensor, optimizer)
    if optimizer.family in _EIGHT_BIT and total < 4 * parts * tensor.elements:
        return [tensor.elements, tensor.elements // 256 * 4] * parts  # values and their scales
    return [int(total / parts)] * parts if total else []


def step_temporary_sizes(trained: list[TrainedTensor], recipe: TrainingRecipe) -> list[int]:
    """Bytes of what the step allocates in passing (``persistent.step_temporary_bytes``)."""
    if recipe.optimizer.master_weights:
        return [4 * tensor.elements for tensor in trained] * 2
    found = step_temporaries(
        ((tensor, 1) for tensor in trained), recipe.optimizer, recipe.gradient_dtype
    )
    return [int(size) for size, count in found for _ in range(count)]
