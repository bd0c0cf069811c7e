"""Seconds of one operation on one chip: curves for products and attention, bytes for the rest.

Each constant names the kernel-level measurement, datasheet or paper it comes from. One was read
off training runs, for want of a kernel's timing: ``_TRITON_SHARE``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.errors import NotSupported
from tuneplan.estimation.operations import AttentionShape, Number, Operation, OperationKind
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.kernels import AttentionCurve, ChipCurves, GemmCurve
from tuneplan.spec.recipe import AttentionKernel, DType

Floats = NDArray[np.float64]

# Time of the backward kernel per operation, over that of the forward: 2.5 times the operations
# (five products instead of two) in 2.75 times the time. FlashAttention-2 (Dao 2023, section 4.1)
# reports 73 % of the A100's peak forward and 63 % backward, FlashAttention-3 (Shah et al. 2024,
# section 4.1) 648 and 561 TFLOP/s: factors of 1.16; C1 of the project's notes used 1.1.
BACKWARD_SLOWDOWN: Final = 1.1

# xFormers' / PyTorch's memory-efficient kernel: FlashAttention-2 is "2x faster" (Dao 2023, 4.1).
_EFFICIENT_SHARE: Final = 0.5
# FlexAttention: 0.90 of FlashAttention-2 forward, 0.85 backward (PyTorch blog, August 2024).
_FLEX_SHARE: Final = (0.90, 0.85)
# The 2022 Triton kernel that llm-foundry ran: share of peak on causal work, forward and backward
# together (A100, H100), read from llm-foundry's published throughput tables.
_TRITON_SHARE: Final = {"flash_attention_2": 0.32, "flash_attention_3": 0.185}
# Eager attention writes and reads its score matrix: bytes per score element in half precision.
# Forward: scores 2, scaling 4, mask 4, softmax in fp32 read 2 + 4 and write 4, cast 6, product 2.
# Backward: product 4, cast 6, softmax 12, scaling 4, products 4. Counted from modeling_llama's
# eager_attention_forward (transformers 4.48) and PyTorch's softmax kernels.
_EAGER_FORWARD_BYTES: Final = 28.0
_EAGER_BACKWARD_BYTES: Final = 30.0
# Megatron's fused scale, mask and softmax stays in half precision, dropout after it: scores written
# 2, read 2, probabilities written 2, dropped 2 + 1 + 2, read 2; backward: their gradient written 2,
# dropped 2 + 1 + 2, read 2 with the probabilities 2, that of the scores written 2, read twice 4,
# dropped probabilities for the values 2 (megatron/fused_kernels/
# scaled_upper_triang_masked_softmax.h, megatron/model/transformer.py CoreAttention).
_FUSED_SOFTMAX_BYTES: Final = (13.0, 19.0)
# Half-precision operands whose inner size is no multiple of eight do not suit tensor cores (NVIDIA,
# "Matrix Multiplication Background", tensor core requirements); published runs that differ in the
# number of heads alone lose as much as batched products at the rate of fp32 units.
_TENSOR_CORE_MULTIPLE: Final = 8


def operation_time_s(operation: Operation, curves: ChipCurves) -> Number:
    """Seconds of ONE run of an operation's kernels (not times ``count``), launches left out.

    Scalars and arrays are both accepted in the operation's shapes; the result has their shape.

    Raises:
        NotSupported: The chip has no rate for the operation's dtype.
    """
    return _PRICES[operation.kind](operation, curves)


def operation_times_s(operations: Sequence[Operation], curves: ChipCurves) -> list[Number]:
    """Seconds of each operation times its ``count``, products of one dtype priced together."""
    times: list[Number] = [0.0] * len(operations)
    products: dict[DType, list[int]] = {}
    for index, operation in enumerate(operations):
        if is_product(operation):
            products.setdefault(operation.dtype, []).append(index)
        else:
            times[index] = operation_time_s(operation, curves) * operation.count
    for dtype, indices in products.items():
        shapes = [product_shape(operations[index]) for index in indices]
        common = np.broadcast_shapes(*(np.shape(size) for shape in shapes for size in shape))
        stacked = [
            np.stack([np.broadcast_to(np.asarray(size, dtype=float), common) for size in axis])
            for axis in zip(*shapes, strict=True)
        ]
        found = gemm_time_s(gemm_curve(curves, dtype), *stacked)
        for index, shape, seconds in zip(indices, shapes, found, strict=True):
            operation = operations[index]
            single = all(np.ndim(size) == 0 for size in shape)
            one = seconds.flat[0] if single else seconds
            times[index] = _plain(one * operation.count * slowdown(operation, curves))
    return times


def gemm_time_s(curve: GemmCurve, m: Number, n: Number, k: Number) -> Floats:
    """Seconds of ``(m x k)(k x n)``: log-log interpolation, proportional beyond the table.

    Below the table's smallest shape the time stays that of the smallest; an empty product (m, n
    or k of 0) takes no time.
    """
    sizes = np.broadcast_arrays(*(np.asarray(axis, dtype=float) for axis in (m, n, k)))
    grids = (curve.log_m, curve.log_n, curve.log_k)
    place, beyond = _product_place(_as_bytes(grids), _as_bytes(sizes), sizes[0].shape)
    return np.exp(place.read(curve.log_time_s)) * beyond


@dataclass(frozen=True, slots=True)
class _Place:
    """Where points lie in a table of three axes.

    Attributes:
        index: Of the corners around each point in the flattened table, ``(corners, *points)``.
        weight: Of each corner.
    """

    index: NDArray[np.intp]
    weight: Floats

    def read(self, table: Floats) -> Floats:
        """The table between its points."""
        return np.asarray((self.weight * table.reshape(-1)[self.index]).sum(axis=0))


def _as_bytes(arrays: Iterable[Floats]) -> tuple[bytes, ...]:
    return tuple(array.tobytes() for array in arrays)


# A search looks the same shapes up on every chip, and tables share their axes.
@lru_cache(maxsize=256)
def _product_place(
    grids: tuple[bytes, ...], sizes: tuple[bytes, ...], shape: tuple[int, ...]
) -> tuple[_Place, Floats]:
    """Where products lie, and how many times larger than the table each is; 0 for none."""
    axes, points, beyond = [], [], np.ones(shape)
    for grid, size in zip(map(np.frombuffer, grids), map(np.frombuffer, sizes), strict=True):
        at = np.log(np.maximum(size, 1.0)).reshape(shape)
        beyond = beyond * np.exp(np.maximum(at - grid[-1], 0.0))
        beyond = np.where(size.reshape(shape) <= 0, 0.0, beyond)
        axes.append(grid)
        points.append(at)
    return _place(axes, points), beyond


def _place(axes: Sequence[Floats], points: Sequence[Floats]) -> _Place:
    index, weight = np.zeros((1, 1), dtype=np.intp), np.ones((1, 1))
    for axis, at in zip(axes, points, strict=True):
        low, above = _between(axis, at.reshape(1, -1))
        two = np.concatenate([low, np.minimum(low + 1, len(axis) - 1)])
        index = (index[:, None] * len(axis) + two[None]).reshape(-1, at.size)
        both = np.concatenate([1.0 - above, above])
        weight = (weight[:, None] * both[None]).reshape(-1, at.size)
    shape = points[0].shape
    return _Place(index.reshape(-1, *shape), weight.reshape(-1, *shape))


def attention_flop(shape: AttentionShape) -> Number:
    """Floating-point operations of one call, causality and window taken off.

    Forward: two products of head_dim (scores) and v_head_dim (values) per visible pair. Backward:
    the scores again, then gradients of values, scores, queries and keys.
    """
    pairs = visible_pairs(shape) * shape.num_sequences * shape.num_heads
    if shape.backward:
        return 2.0 * (3 * shape.head_dim + 2 * shape.v_head_dim) * pairs
    return 2.0 * (shape.head_dim + shape.v_head_dim) * pairs


def visible_pairs(shape: AttentionShape) -> Number:
    """(Query, key) pairs of one sequence and head that attention computes.

    Kernels that hold the score matrix compute all of them, masked or not.
    """
    length = np.asarray(shape.length, dtype=float)
    if shape.kernel.keeps_scores:
        return _plain(length * length)
    window = length if shape.window is None else np.minimum(length, float(shape.window))
    if shape.causal:
        return _plain(window * length - window * (window - 1.0) / 2.0)
    return _plain(np.where(window < length, window, length) * length)


def attention_time_s(
    shape: AttentionShape, curves: ChipCurves, dtype: DType = DType.BFLOAT16
) -> Number:
    """Seconds of one attention call on this chip with this kernel."""
    flop = attention_flop(shape)
    if shape.kernel.keeps_scores:
        return _eager_attention_s(shape, curves, dtype, flop)
    seconds = np.asarray(flop) / _attention_rate(shape, curves)
    if dtype is DType.FLOAT32 and curves.half_flop_per_s:
        seconds = seconds * curves.half_flop_per_s / _peak_flop_per_s(curves, dtype)
    return _plain(seconds)


def _attention_rate(shape: AttentionShape, curves: ChipCurves) -> Floats:
    """FLOP/s of a fused attention kernel at this shape."""
    length = np.maximum(np.asarray(shape.length, dtype=float), 1.0)
    # A windowed query sees fewer keys: the kernel is as efficient as at the causal length with
    # as many keys per query.
    effective = 2.0 * np.asarray(visible_pairs(shape)) / length if shape.causal else length
    heads = np.asarray(shape.num_sequences, dtype=float) * shape.num_heads
    if shape.kernel is AttentionKernel.TRITON:
        return _triton_rate(curves, shape, effective, heads)
    own = shape.kernel in (AttentionKernel.FLASH_3, AttentionKernel.CUDNN)
    curve = curves.attention if own else curves.flash_attention_2
    share = 1.0 / BACKWARD_SLOWDOWN if shape.backward else 1.0
    if shape.kernel is AttentionKernel.SDPA_EFFICIENT:
        share *= _EFFICIENT_SHARE
    if shape.kernel is AttentionKernel.FLEX:
        share *= _FLEX_SHARE[1 if shape.backward else 0]
    return _table_rate(curve, shape.head_dim, effective, heads) * share


def _triton_rate(
    curves: ChipCurves, shape: AttentionShape, effective: Floats, heads: Floats
) -> Floats:
    """The share of peak, less below 2,048 tokens as for FlashAttention-2.

    The shares are averages over runs of 2,048 tokens and more.
    """
    share = _TRITON_SHARE.get(curves.attention.family, min(_TRITON_SHARE.values()))
    curve = curves.flash_attention_2
    here = _table_rate(curve, shape.head_dim, effective, heads)
    there = _table_rate(curve, shape.head_dim, np.full_like(effective, 2048.0), heads)
    return np.asarray(share * curves.half_flop_per_s * np.minimum(here / there, 1.0))


def _table_rate(curve: AttentionCurve, head_dim: int, length: Floats, heads: Floats) -> Floats:
    """Interpolated forward rate; head dims between two measured ones are weighted linearly."""
    points = np.broadcast_arrays(length, heads)
    grids = (np.asarray(curve.head_dims, dtype=float), curve.log_lengths, curve.log_heads)
    place = _rate_place(_as_bytes(grids), float(head_dim), _as_bytes(points), points[0].shape)
    return np.exp(place.read(curve.log_flop_per_s))


@lru_cache(maxsize=256)
def _rate_place(
    grids: tuple[bytes, ...], head_dim: float, points: tuple[bytes, ...], shape: tuple[int, ...]
) -> _Place:
    logs = [
        np.log(np.maximum(np.frombuffer(point), 1.0)).reshape(shape) for point in points
    ]  # fmt: skip
    return _place([np.frombuffer(grid) for grid in grids], [np.full(shape, head_dim), *logs])


def _eager_attention_s(
    shape: AttentionShape, curves: ChipCurves, dtype: DType, flop: Number
) -> Number:
    """Two (five backward) batched products at the chip's product rate, then the score traffic."""
    elements = visible_pairs(shape) * shape.num_sequences * shape.num_heads
    per_element = _EAGER_BACKWARD_BYTES if shape.backward else _EAGER_FORWARD_BYTES
    if shape.kernel is AttentionKernel.FUSED_SOFTMAX:
        per_element = _FUSED_SOFTMAX_BYTES[1 if shape.backward else 0]
    curve = gemm_curve(curves, dtype)
    length = np.asarray(shape.length, dtype=float)
    rate = (
        2.0
        * length
        * length
        * shape.head_dim
        / gemm_time_s(curve, length, length, float(shape.head_dim))
    )
    # One launch covers all heads, so that the rate is at least that of a product as large.
    batch = np.asarray(shape.num_sequences, dtype=float) * shape.num_heads
    wide = gemm_time_s(curve, length * batch, length, float(shape.head_dim))
    rate = np.maximum(rate, 2.0 * length * length * batch * shape.head_dim / wide)
    if shape.kernel is AttentionKernel.FUSED_SOFTMAX and shape.head_dim % _TENSOR_CORE_MULTIPLE:
        rate = np.minimum(rate, _peak_flop_per_s(curves, DType.FLOAT32))
    traffic = np.asarray(elements) * per_element / curves.streaming_bytes_per_s
    return _plain(np.asarray(flop) / rate + traffic)


def _matmul_s(operation: Operation, curves: ChipCurves) -> Number:
    seconds = gemm_time_s(gemm_curve(curves, operation.dtype), *product_shape(operation))
    return _plain(seconds * slowdown(operation, curves))


def slowdown(operation: Operation, curves: ChipCurves) -> float:
    """Of a grouped product against the whole one it is looked up as."""
    grouped = operation.kind is OperationKind.GROUPED_MATMUL
    return curves.grouped_slowdown if grouped else 1.0


def product_shape(operation: Operation) -> tuple[Number, Number, Number]:
    """What is looked up: a grouped product is one product over all groups' weights.

    Its rows per group decide how well a tile is filled, its groups how many tiles run side by
    side; operations and weight bytes of ``(m / groups, n * groups, k)`` are exactly its own. The
    measured CUTLASS kernels take 0.9-1.0 of that time on Hopper and later, 1.6 on the A100
    (``ChipCurves.grouped_slowdown``).
    """
    if operation.kind is not OperationKind.GROUPED_MATMUL:
        return operation.m, operation.n, operation.k
    groups = max(operation.num_groups, 1)
    return operation.m / groups, operation.n * groups, operation.k


def gemm_curve(curves: ChipCurves, dtype: DType) -> GemmCurve:
    """The table of a dtype; ``NotSupported`` where the chip has none."""
    found = curves.gemm.get(dtype)
    if found is None:
        raise _no_rate(curves, dtype)
    return found


def _peak_flop_per_s(curves: ChipCurves, dtype: DType) -> float:
    found = curves.peak_flop_per_s.get(dtype)
    if found is None:
        raise _no_rate(curves, dtype)
    return found


def _no_rate(curves: ChipCurves, dtype: DType) -> NotSupported:
    return NotSupported(
        message(
            "no_rate_for_dtype",
            "{chip} has no rate for products in {dtype}; it computes in {known}",
            chip=curves.accelerator,
            dtype=str(dtype),
            known=", ".join(sorted(curves.gemm)),
        )
    )


def _attention_s(operation: Operation, curves: ChipCurves) -> Number:
    if operation.attention is None:
        return _streaming_s(operation, curves)
    return attention_time_s(operation.attention, curves, operation.dtype)


def _streaming_s(operation: Operation, curves: ChipCurves) -> Number:
    """Bytes over the bandwidth that their kernels reach."""
    plain = operation.bytes_moved - operation.cast_bytes - operation.strided_bytes
    return (
        plain / curves.streaming_bytes_per_s
        + operation.cast_bytes / curves.cast_bytes_per_s
        + operation.strided_bytes / curves.strided_bytes_per_s
    )


def _host_copy_s(operation: Operation, curves: ChipCurves) -> Number:
    return operation.bytes_moved / curves.host_bytes_per_s


def _adapter_s(operation: Operation, curves: ChipCurves) -> Number:
    """Casts and adds by their bytes; thin products from the measured table.

    The table starts at 32 columns: a product of lower rank takes as long, as all of them are
    bound by the memory of their wide side (0.65 of the A100's bandwidth at ranks up to 64).
    """
    if not is_product(operation):
        return _streaming_s(operation, curves)
    return _matmul_s(operation, curves)


def is_product(operation: Operation) -> bool:
    """A matrix product; of an adapter's operations those that multiply."""
    if operation.kind is OperationKind.ADAPTER:
        return bool(np.any(operation.flops))
    return operation.kind in (OperationKind.MATMUL, OperationKind.GROUPED_MATMUL)


def _recurrence_s(operation: Operation, curves: ChipCurves) -> Number:
    """Chunked scans: their products at half of the peak, or their bytes, whichever is longer.

    The half is an assumption: chunks are small products (64 to 256 rows), which reach about half
    of a large product's rate on the measured chips.
    """
    peak = curves.peak_flop_per_s.get(operation.dtype) or max(curves.peak_flop_per_s.values())
    compute = np.asarray(operation.flops, dtype=float) / (0.5 * peak)
    return _plain(np.maximum(compute, np.asarray(_streaming_s(operation, curves), dtype=float)))


_PRICES: Final[Mapping[OperationKind, Callable[[Operation, ChipCurves], Number]]] = {
    OperationKind.MATMUL: _matmul_s,
    OperationKind.GROUPED_MATMUL: _matmul_s,
    OperationKind.ATTENTION: _attention_s,
    OperationKind.ELEMENTWISE: _streaming_s,
    OperationKind.ADAPTER: _adapter_s,
    OperationKind.LOSS: _streaming_s,
    OperationKind.DEQUANTIZE: _streaming_s,
    OperationKind.RECURRENCE: _recurrence_s,
    OperationKind.EMBEDDING: _streaming_s,
    OperationKind.OPTIMIZER: _streaming_s,
    OperationKind.HOST_COPY: _host_copy_s,
}


def _between(grid: Floats, value: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Index of the grid point below and the weight of the one above, clamped to the grid."""
    clamped = np.clip(value, grid[0], grid[-1])
    if len(grid) == 1:
        return np.zeros(clamped.shape, dtype=np.intp), np.zeros(clamped.shape)
    low = np.clip(np.searchsorted(grid, clamped, side="right") - 1, 0, len(grid) - 2)
    return low, (clamped - grid[low]) / (grid[low + 1] - grid[low])


def _plain(value: Floats | np.float64) -> Number:
    """A float where there was no array."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
