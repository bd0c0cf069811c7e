"""What an optimizer keeps of a trained tensor, and what its step allocates in passing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from tuneplan.estimation.roles import Place, Role
from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import Adapter, DType, Optimizer, OptimizerFamily, OptimizerImplementation
from tuneplan.spec.weights import Weight, WeightKind

_SMALL_TENSOR: Final = 4096  # bitsandbytes keeps states of smaller tensors in fp32
_EIGHT_BIT: Final = (OptimizerFamily.ADAMW_8BIT, OptimizerFamily.LION_8BIT)
_SGD: Final = (OptimizerFamily.SGD, OptimizerFamily.SGD_MOMENTUM)
_HALF_BYTES: Final = 2
_FP32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TrainedTensor:
    """One trained tensor.

    Attributes:
        elements: Of the tensor.
        dtype: Of the tensor.
        shorter_side: Of a matrix between embedding and head, which Muon updates; 0 of all others.
    """

    elements: int
    dtype: DType
    shorter_side: int = 0


def trained_pieces(weight: Weight, dtype: DType, place: Place) -> list[TrainedTensor]:
    """Weight and bias as the optimizer sees them."""
    matrix = len(weight.shape) == 2 and place not in (Place.OUTER, Place.HEAD)
    matrix = matrix and weight.kind is not WeightKind.EMBEDDING
    pieces = (
        TrainedTensor(weight.num_weight_elements, dtype, min(weight.shape) if matrix else 0),
        TrainedTensor(weight.num_bias_elements, dtype),
    )
    return [piece for piece in pieces if piece.elements]


def adapter_pieces(weight: Weight, role: Role, adapter: Adapter) -> list[TrainedTensor]:
    """A, B and DoRA's magnitude; the low-rank matrices of experts are two-dimensional as well."""
    found = []
    for index, elements in enumerate(role.adapter_parameters(weight, adapter)):
        side = 0
        if index < 2:
            width = weight.in_features if index == 0 else weight.out_features
            side = min(width, elements // width)
        found.append(TrainedTensor(elements, adapter.dtype, side))
    return found


def moment_width(tensor: TrainedTensor, optimizer: Optimizer) -> int:
    """Bytes of one element of a moment.

    PyTorch's own optimizers make moments like what they update (``torch.zeros_like``).
    """
    if optimizer.master_weights:
        return _FP32_BYTES
    return (tensor.dtype if optimizer.follows_weights else optimizer.state_dtype).num_bytes


def state_bytes(tensor: TrainedTensor, optimizer: Optimizer) -> float:
    """Bytes of optimizer state for one trained tensor.

    8-bit states: a byte each and an fp32 scale per 256 (bitsandbytes 0.44 and later); tensors
    under 4096 elements stay fp32. Adafactor: a row and a column in fp32, taken as 2 sqrt(n).
    Muon: one moment of matrices, AdamW's two of the rest (``torch/optim/_muon.py`` takes matrices
    alone; LLaMA-Factory 0.9 ``train/trainer_utils.py _create_muon_optimizer``).
    """
    elements, width = tensor.elements, moment_width(tensor, optimizer)
    if optimizer.family is OptimizerFamily.ADAFACTOR:
        return 8.0 * math.sqrt(elements)
    eight_bit = 1.0 + 4 / 256 if elements >= _SMALL_TENSOR else 4.0
    per_element = {
        OptimizerFamily.ADAMW: 2.0 * width,
        OptimizerFamily.ADAMW_8BIT: 2.0 * eight_bit,
        OptimizerFamily.LION: 1.0 * width,
        OptimizerFamily.LION_8BIT: 1.0 * eight_bit,
        OptimizerFamily.SGD: 0.0,
        OptimizerFamily.SGD_MOMENTUM: 1.0 * width,
        OptimizerFamily.MUON: (1.0 if tensor.shorter_side else 2.0) * width,
    }[optimizer.family]
    return elements * per_element


def moments(tensor: TrainedTensor, optimizer: Optimizer) -> int:
    """Over how many tensors the states are spread."""
    family = optimizer.family
    one = (OptimizerFamily.LION, OptimizerFamily.LION_8BIT, OptimizerFamily.SGD_MOMENTUM)
    if family in one or (family is OptimizerFamily.MUON and tensor.shorter_side):
        return 1
    return 2


def step_temporaries(
    trained: Iterable[tuple[TrainedTensor, int]],
    optimizer: Optimizer,
    gradient_dtype: DType | None,
) -> list[tuple[float, int]]:
    """What the optimizer step allocates in passing: ``(bytes, how many)``, all alive together.

    foreach AdamW makes one list as large as all second moments (``torch/optim/adamw.py
    _multi_tensor_adamw``: ``_foreach_sqrt``); fused none; a loop one tensor at a time; SGD works in
    place (``torch/optim/sgd.py``). Adafactor and Muon: what the largest tensor needs.
    """
    trained = list(trained)
    if optimizer.in_backward or optimizer.family in (*_EIGHT_BIT, *_SGD) or not trained:
        return []
    if optimizer.family is OptimizerFamily.ADAFACTOR:
        return max((_of_adafactor(one, optimizer, gradient_dtype) for one, _ in trained), key=_sum)
    if optimizer.family is OptimizerFamily.MUON:
        return max((_of_muon(one, optimizer, gradient_dtype) for one, _ in trained), key=_sum)
    if optimizer.implementation is OptimizerImplementation.FUSED:
        return []
    if optimizer.implementation is OptimizerImplementation.FOR_LOOP:
        return max((_of_loop(one, optimizer) for one, _ in trained), key=_sum)
    return [(float(one.elements * moment_width(one, optimizer)), n) for one, n in trained]


def _sum(sizes: list[tuple[float, int]]) -> float:
    return sum(size * count for size, count in sizes)


def _of_loop(tensor: TrainedTensor, optimizer: Optimizer) -> list[tuple[float, int]]:
    """``_single_tensor_adamw``: the second moment's root and its quotient."""
    return [(float(tensor.elements * moment_width(tensor, optimizer)), 2)]


def _gradient_width(
    tensor: TrainedTensor, optimizer: Optimizer, gradient_dtype: DType | None
) -> int:
    if optimizer.master_weights:
        return _FP32_BYTES
    return (gradient_dtype or tensor.dtype).num_bytes


def _of_adafactor(
    tensor: TrainedTensor, optimizer: Optimizer, gradient_dtype: DType | None
) -> list[tuple[float, int]]:
    """The update and its negative in fp32; a half gradient and a half weight are cast beside them.

    Source: transformers 5.24 ``optimization.py Adafactor.step``.
    """
    gradient = _gradient_width(tensor, optimizer, gradient_dtype)
    weight = _FP32_BYTES if optimizer.master_weights else tensor.dtype.num_bytes
    copies = 2 + (gradient < _FP32_BYTES) + (weight < _FP32_BYTES)
    return [(float(_FP32_BYTES * tensor.elements), copies)]


def _of_muon(
    tensor: TrainedTensor, optimizer: Optimizer, gradient_dtype: DType | None
) -> list[tuple[float, int]]:
    """The update, two half matrices of an iteration and two products of it with itself.

    Source: torch 2.13 ``torch/optim/_muon.py _single_tensor_muon, _zeropower_via_newtonschulz``.
    """
    if not tensor.shorter_side:
        return _of_loop(tensor, optimizer)
    size = tensor.elements
    gram = float(_HALF_BYTES * tensor.shorter_side**2)
    update = float(size * _gradient_width(tensor, optimizer, gradient_dtype))
    return [(update, 1), (float(_HALF_BYTES * size), 2), (gram, 2)]
