"""What stays from step to step: weights, quantisation constants, gradients, optimizer states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import lru_cache

from tuneplan.estimation.optimizer_memory import (
    TrainedTensor,
    adapter_pieces,
    state_bytes,
    step_temporaries,
    trained_pieces,
)
from tuneplan.estimation.roles import Place, Role, as_trained, head_of, role_of, with_expert_targets
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import LayerGroup, ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import Method, Quantization, TrainingRecipe
from tuneplan.spec.weights import Weight

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
        trained: Every trained tensor and how many of it there are; ``num_trained`` parameters.
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
    trained: list[tuple[TrainedTensor, int]] = field(default_factory=list)
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


@lru_cache(maxsize=128)
def persistent(model: ModelArchitecture, recipe: TrainingRecipe) -> Persistent:
    """Add up every weight and what it brings with it; the sum is shared: nobody changes it."""
    model = as_trained(model, recipe)
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
        _add_copy(total, head, Place.HEAD, 1, recipe)
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
        _add_trained(total, trained_pieces(weight, role.dtype, held.place), count, recipe)
    else:
        total.frozen_bytes += size
    if role.copied:
        _add_copy(total, weight, held.place, count, recipe)
    if role.adapted:
        _add_adapter(total, weight, role, count, recipe)


def _add_copy(
    total: Persistent, weight: Weight, place: Place, count: int, recipe: TrainingRecipe
) -> None:
    dtype = recipe.trainable_dtype
    total.trained_bytes += weight.num_parameters * dtype.num_bytes * count
    _add_trained(total, trained_pieces(weight, dtype, place), count, recipe)


def _add_adapter(
    total: Persistent, weight: Weight, role: Role, count: int, recipe: TrainingRecipe
) -> None:
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    pieces = adapter_pieces(weight, role, adapter)
    total.adapter_bytes += sum(one.elements for one in pieces) * adapter.dtype.num_bytes * count
    _add_trained(total, pieces, count, recipe)


def _add_trained(
    total: Persistent, pieces: list[TrainedTensor], count: int, recipe: TrainingRecipe
) -> None:
    optimizer = recipe.optimizer
    for one in pieces:
        total.trained.append((one, count))
        total.num_trained += one.elements * count
        total.num_trained_tensors += count
        gradient = recipe.gradient_dtype or one.dtype
        total.gradient_bytes += one.elements * gradient.num_bytes * count
        states = state_bytes(one, optimizer) * count
        if optimizer.paged and one.elements >= _PAGED_FROM:
            total.paged_state_bytes += states
        else:
            total.state_bytes += states
        if optimizer.master_weights:
            total.master_bytes += 4 * one.elements * count


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


def step_temporary_bytes(
    held: Persistent, recipe: TrainingRecipe, *, flat_masters: bool = False
) -> float:
    """What the optimizer step allocates in passing (``optimizer_memory.step_temporaries``).

    ``flat_masters``: half gradients are cast to fp32 and laid flat for the master weights, two
    copies beside the gradients themselves, which end before the update (DeepSpeed 0.18
    ``runtime/fp16/fused_optimizer.py step``).
    """
    found = step_temporaries(held.trained, recipe.optimizer, recipe.gradient_dtype)
    total = sum(size * count for size, count in found)
    if recipe.optimizer.master_weights and flat_masters:
        flat = 4.0 * held.num_trained
        return max(2 * flat, flat + total - held.gradient_bytes)
    return total


def shards_of(parallelism: Parallelism) -> tuple[int, int, int]:
    """Over how many ranks weights, gradients and optimizer states are split."""
    shards = parallelism.shards
    return (
        shards if parallelism.shards_parameters else 1,
        shards if parallelism.shards_gradients else 1,
        shards if parallelism.shards_optimizer else 1,
    )
