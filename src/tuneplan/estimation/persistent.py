"""What stays from step to step: weights, quantisation constants, gradients, optimizer states."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tuneplan.estimation.roles import Place, Role, head_of, role_of, with_expert_targets
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture, Weight
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import (
    DType,
    Method,
    Optimizer,
    OptimizerFamily,
    OptimizerImplementation,
    Quantization,
    TrainingRecipe,
)

_SMALL_TENSOR = 4096  # bitsandbytes keeps states of smaller tensors in fp32
_PAGED_FROM = 100_000  # bitsandbytes pages states of tensors of at least so many elements


@dataclass(frozen=True, slots=True)
class Held:
    """One weight of the model, how many of it there are, and its role."""

    weight: Weight
    count: int
    role: Role
    place: Place


@dataclass(slots=True)
class Persistent:
    """Bytes of one rank before sharding, by kind, and the sizes the optimizer works on.

    Attributes:
        frozen_bytes: Frozen weights in their held dtype (not the quantised ones).
        quantized_bytes: Packed weights; ``constants_bytes`` their scales.
        trained_bytes: Trained weights (copies of ``modules_to_save`` included).
        adapter_bytes: Adapters.
        gradient_bytes: Gradients of everything trained.
        state_bytes: Optimizer states in the allocator; ``paged_state_bytes`` outside it.
        num_trained: Trained parameters; ``largest_trained`` of one tensor.
        outer_bytes: Of embeddings, final norm and head (what FSDP's root unit gathers).
    """

    frozen_bytes: float = 0.0
    quantized_bytes: float = 0.0
    constants_bytes: float = 0.0
    trained_bytes: float = 0.0
    adapter_bytes: float = 0.0
    gradient_bytes: float = 0.0
    state_bytes: float = 0.0
    paged_state_bytes: float = 0.0
    master_bytes: float = 0.0
    num_trained: int = 0
    num_trained_tensors: int = 0
    largest_trained: int = 0
    largest_quantized: int = 0
    outer_parameters: int = 0
    outer_bytes: float = 0.0


def held_weights(model: ModelArchitecture, recipe: TrainingRecipe) -> Iterator[Held]:
    """Every weight with its role; the last ``trained_layers`` of ``freeze`` apart."""
    for weight, place in outer_weights(model, recipe):
        yield _held(weight, 1, recipe, place)
    for group in model.groups:
        trained = num_trained_layers(model, recipe, group)
        yield from _held_layers(group, trained, recipe, Place.TRAINED_LAYER)
        yield from _held_layers(group, group.count - trained, recipe, Place.LAYER)
    if model.vision is not None:
        for weight in model.vision.outer:
            yield _held(weight, 1, recipe, Place.VISION)
        for group in model.vision.groups:
            yield from _held_layers(group, group.count, recipe, Place.VISION)


def outer_weights(
    model: ModelArchitecture, recipe: TrainingRecipe
) -> Iterator[tuple[Weight, Place]]:
    """Embeddings, final norm and head, where the head is a weight of its own."""
    for weight in (*model.embeddings, *model.outer):
        yield weight, Place.OUTER
    head = head_of(model, recipe)
    if head is not None:
        yield head, Place.HEAD


def _held_layers(
    group: LayerGroup, count: int, recipe: TrainingRecipe, place: Place
) -> Iterator[Held]:
    if count:
        for weight in group.layer.weights():
            yield _held(weight, count, recipe, place)


def _held(weight: Weight, count: int, recipe: TrainingRecipe, place: Place) -> Held:
    return Held(weight, count, role_of(weight, recipe, place), place)


def num_trained_layers(model: ModelArchitecture, recipe: TrainingRecipe, group: LayerGroup) -> int:
    """How many layers of a group ``freeze`` trains: those among the model's last ones."""
    if recipe.method is not Method.FREEZE:
        return 0
    frozen = model.num_layers - recipe.trained_layers
    return sum(position >= frozen for position in group.positions or range(group.count))


def persistent(model: ModelArchitecture, recipe: TrainingRecipe) -> Persistent:
    """Add up every weight and what it brings with it."""
    recipe = with_expert_targets(model, recipe)
    total = Persistent()
    for held in held_weights(model, recipe):
        _add_weight(total, held, recipe)
    if head_of(model, recipe) is None:
        _add_tied_head(total, model.head_weight, recipe)
    return total


def _add_tied_head(total: Persistent, head: Weight, recipe: TrainingRecipe) -> None:
    """A tied head has no weight, yet it is a module: it can be adapted or saved whole."""
    role = role_of(head, recipe, Place.HEAD)
    if role.copied:
        _add_copy(total, head.num_parameters, 1, recipe)
    if role.adapted:
        _add_adapter(total, head, role, 1, recipe)


def _add_weight(total: Persistent, held: Held, recipe: TrainingRecipe) -> None:
    weight, role, count = held.weight, held.role, held.count
    elements = weight.num_parameters
    size = elements * role.dtype.num_bytes * count
    if held.place in (Place.OUTER, Place.HEAD):
        total.outer_parameters += elements * count
        total.outer_bytes += size
    if role.quantized:
        quantization = recipe.quantization
        assert quantization is not None  # noqa: S101 - roles promise it
        packed, constants = quantized_bytes(weight.num_weight_elements, quantization)
        total.quantized_bytes += packed * count
        total.constants_bytes += constants * count
        total.frozen_bytes += weight.num_bias_elements * role.dtype.num_bytes * count
        total.largest_quantized = max(total.largest_quantized, weight.num_weight_elements)
    elif role.trained:
        total.trained_bytes += size
        _add_trained(total, elements, count, role.dtype, recipe)
    else:
        total.frozen_bytes += size
    if role.copied:
        _add_copy(total, elements, count, recipe)
    if role.adapted:
        _add_adapter(total, weight, role, count, recipe)


def _add_copy(total: Persistent, elements: int, count: int, recipe: TrainingRecipe) -> None:
    total.trained_bytes += elements * recipe.trainable_dtype.num_bytes * count
    _add_trained(total, elements, count, recipe.trainable_dtype, recipe)


def _add_adapter(
    total: Persistent, weight: Weight, role: Role, count: int, recipe: TrainingRecipe
) -> None:
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    for elements in role.adapter_parameters(weight, adapter):
        total.adapter_bytes += elements * adapter.dtype.num_bytes * count
        _add_trained(total, elements, count, adapter.dtype, recipe)


def _add_trained(
    total: Persistent, elements: int, count: int, dtype: DType, recipe: TrainingRecipe
) -> None:
    total.num_trained += elements * count
    total.num_trained_tensors += count
    total.largest_trained = max(total.largest_trained, elements)
    gradient = recipe.gradient_dtype or dtype
    total.gradient_bytes += elements * gradient.num_bytes * count
    optimizer = recipe.optimizer
    states = state_bytes(elements, optimizer) * count
    if optimizer.paged and elements >= _PAGED_FROM:
        total.paged_state_bytes += states
    else:
        total.state_bytes += states
    if optimizer.master_weights:
        total.master_bytes += 4 * elements * count


def quantized_bytes(elements: int, quantization: Quantization) -> tuple[float, float]:
    """Packed weights and scales of one quantised matrix.

    bitsandbytes 4-bit: half a byte, an fp32 scale per 64 weights; double quantisation: a byte per
    64 weights and an fp32 scale per 64 x 256. GPTQ (group of 128): an fp16 scale and a packed
    4-bit zero per group. int8: a byte, an fp32 scale per row (left out: under 0.1 %).
    Source: bitsandbytes ``functional.py quantize_4bit``; QLoRA paper, section 3.
    """
    if quantization.bits == 8:
        return float(elements), 0.0
    packed = elements / 2
    groups = elements / quantization.block_size
    if quantization.type == "gptq":
        return packed, groups * 2.5
    if quantization.double_quant:
        return packed, groups + groups / 256 * 4
    return packed, groups * 4


def state_bytes(elements: int, optimizer: Optimizer) -> float:
    """Bytes of optimizer state for one tensor of ``elements`` trained parameters.

    8-bit states: a byte each and an fp32 scale per 256 (bitsandbytes 0.44 and later); tensors
    under 4096 elements stay fp32. Adafactor: a row and a column in fp32, taken as 2 sqrt(n).
    """
    width = optimizer.state_dtype.num_bytes
    eight_bit = 1.0 + 4 / 256 if elements >= _SMALL_TENSOR else 4.0
    per_element = {
        OptimizerFamily.ADAMW: 2.0 * width,
        OptimizerFamily.ADAMW_8BIT: 2.0 * eight_bit,
        OptimizerFamily.LION: 1.0 * width,
        OptimizerFamily.LION_8BIT: 1.0 * eight_bit,
        OptimizerFamily.SGD: 0.0,
        OptimizerFamily.SGD_MOMENTUM: 1.0 * width,
        OptimizerFamily.MUON: 1.0 * width,
        OptimizerFamily.ADAFACTOR: 0.0,
    }[optimizer.family]
    if optimizer.family is OptimizerFamily.ADAFACTOR:
        return 8.0 * math.sqrt(elements)
    return elements * per_element


def step_temporary_bytes(held: Persistent, recipe: TrainingRecipe) -> float:
    """What the optimizer step allocates in passing.

    foreach AdamW makes one list as large as all second moments (``torch/optim/adamw.py``
    ``_multi_tensor_adamw``: ``_foreach_sqrt``); fused none; a loop one tensor at a time;
    Adafactor an fp32 update of the largest tensor; Muon's Newton-Schulz two half copies of it.
    """
    optimizer = recipe.optimizer
    largest = held.largest_trained
    if optimizer.in_backward:
        return 0.0
    if optimizer.family is OptimizerFamily.ADAFACTOR:
        return 2.0 * 4 * largest
    if optimizer.family is OptimizerFamily.MUON:
        return 3.0 * 2 * largest
    if optimizer.family in (OptimizerFamily.ADAMW_8BIT, OptimizerFamily.LION_8BIT):
        return 0.0
    width = 4 if optimizer.master_weights else optimizer.state_dtype.num_bytes
    if optimizer.implementation is OptimizerImplementation.FOREACH:
        if optimizer.family is OptimizerFamily.SGD:
            return 0.0
        return float(held.num_trained * width)
    if optimizer.implementation is OptimizerImplementation.FOR_LOOP:
        return 2.0 * largest * width
    return 0.0


def shards_of(parallelism: Parallelism) -> tuple[int, int, int]:
    """Over how many ranks weights, gradients and optimizer states are split."""
    shards = parallelism.shards
    return (
        shards if parallelism.shards_parameters else 1,
        shards if parallelism.shards_gradients else 1,
        shards if parallelism.shards_optimizer else 1,
    )
