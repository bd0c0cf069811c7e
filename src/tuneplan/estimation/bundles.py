"""The operations of a micro-batch prepared for pricing on many chips.

Streams are priced by their bytes, so their bytes add up; products and attention calls of one
shape are looked up once. The seconds are those of ``step_time.compute_time``, which prices each
operation by itself; a search prices a walk on every chip, and a walk has many equal layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.kernel_time import (
    gemm_curve,
    gemm_time_s,
    is_product,
    operation_time_s,
    product_shape,
    slowdown,
)
from tuneplan.estimation.operations import Number, Operation, OperationKind, Stage
from tuneplan.estimation.step_time import stretch_of
from tuneplan.frozen import dataclass
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.recipe import DType

Floats = NDArray[np.float64]
Stretch = tuple[str, bool]

_STREAMS = frozenset(
    {
        OperationKind.ELEMENTWISE,
        OperationKind.LOSS,
        OperationKind.DEQUANTIZE,
        OperationKind.EMBEDDING,
        OperationKind.OPTIMIZER,
        OperationKind.ADAPTER,
    }
)


@dataclass(slots=True)
class _Stream:
    """Bytes of one stretch: plain, cast, strided."""

    plain: Number = 0.0
    cast: Number = 0.0
    strided: Number = 0.0


@dataclass(frozen=True, slots=True)
class _Products:
    """Products of one dtype, stacked: shapes ``(products, candidates)``."""

    dtype: DType
    m: Floats
    n: Floats
    k: Floats
    grouped: tuple[Operation, ...]
    weights: dict[Stretch, tuple[Floats, Floats]]  # runs of plain and of grouped products


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything a micro-batch executes, by stretch.

    Attributes:
        launches: Kernel launches of each stretch.
        streams: Bytes of each stretch; ``copies`` bytes that go to the host beside it.
        calls: Attention and scans, each with the runs it has in a stretch.
    """

    launches: dict[Stretch, float]
    streams: dict[Stretch, _Stream]
    copies: dict[Stretch, Operation]
    products: tuple[_Products, ...]
    calls: tuple[tuple[Operation, dict[Stretch, float]], ...]

    def part(self, which: slice) -> Bundle:
        """Of some of the micro-batches, where they were arrays."""

        def some(size: Number) -> Number:
            return size[which] if isinstance(size, np.ndarray) and size.ndim else size

        return Bundle(
            launches=self.launches,
            streams={
                stretch: _Stream(*(some(size) for size in (one.plain, one.cast, one.strided)))
                for stretch, one in self.streams.items()
            },
            copies={
                stretch: replace(copy, bytes_moved=some(copy.bytes_moved))
                for stretch, copy in self.copies.items()
            },
            products=tuple(
                replace(group, m=group.m[:, which], n=group.n[:, which], k=group.k[:, which])
                if group.m.ndim > 1
                else group
                for group in self.products
            ),
            calls=tuple((_some_of(call, some), runs) for call, runs in self.calls),
        )


def _some_of(call: Operation, some: Callable[[Number], Number]) -> Operation:
    shape = call.attention and replace(
        call.attention,
        num_sequences=some(call.attention.num_sequences),
        length=some(call.attention.length),
    )
    return replace(
        call, attention=shape, flops=some(call.flops), bytes_moved=some(call.bytes_moved),
        cast_bytes=some(call.cast_bytes), strided_bytes=some(call.strided_bytes),
    )  # fmt: skip


def bundle(operations: Iterable[tuple[Operation, float]]) -> Bundle:
    """Put operations, each with how often it runs, together; independent of any chip."""
    launches: dict[Stretch, float] = {}
    streams: dict[Stretch, _Stream] = {}
    copies: dict[Stretch, Operation] = {}
    products: dict[DType, dict[Any, tuple[Operation, dict[Stretch, float]]]] = {}
    calls: dict[Any, tuple[Operation, dict[Stretch, float]]] = {}
    for operation, count in operations:
        stretch = stretch_of(operation)
        if operation.kind is OperationKind.HOST_COPY:
            copies[stretch] = _more(copies.get(stretch), operation, count)
            continue
        launches[stretch] = launches.get(stretch, 0.0) + count * operation.launches
        if is_product(operation):
            found = products.setdefault(operation.dtype, {})
            _count(found, _product_key(operation), operation, stretch, count)
        elif operation.kind in _STREAMS:
            _pour(streams.setdefault(stretch, _Stream()), operation, count)
        else:
            _count(calls, _call_key(operation), operation, stretch, count)
    return Bundle(
        launches=launches,
        streams=streams,
        copies=copies,
        products=tuple(_stack(dtype, list(found.values())) for dtype, found in products.items()),
        calls=tuple(calls.values()),
    )


def _more(before: Operation | None, operation: Operation, count: float) -> Operation:
    size = operation.bytes_moved * count
    if before is not None:
        size = size + before.bytes_moved
    return replace(operation, count=1.0, bytes_moved=size)


def _pour(stream: _Stream, operation: Operation, count: float) -> None:
    plain = operation.bytes_moved - operation.cast_bytes - operation.strided_bytes
    stream.plain = stream.plain + plain * count
    stream.cast = stream.cast + operation.cast_bytes * count
    stream.strided = stream.strided + operation.strided_bytes * count


def _count(
    found: dict[Any, tuple[Operation, dict[Stretch, float]]],
    key: Any,
    operation: Operation,
    stretch: Stretch,
    count: float,
) -> None:
    _, runs = found.setdefault(key, (operation, {}))
    runs[stretch] = runs.get(stretch, 0.0) + count


def _bytes(*sizes: Number) -> tuple[bytes, ...]:
    return tuple(np.asarray(size, dtype=float).tobytes() for size in sizes)


def _product_key(operation: Operation) -> Any:
    grouped = operation.kind is OperationKind.GROUPED_MATMUL
    sizes = _bytes(operation.m, operation.n, operation.k)
    return (grouped, operation.num_groups if grouped else 1, *sizes)


def _call_key(operation: Operation) -> Any:
    call = operation.attention
    if call is None:
        return (operation.kind, operation.dtype, *_bytes(operation.flops, operation.bytes_moved))
    return (
        operation.dtype, call.num_heads, call.num_key_value_heads, call.head_dim, call.v_head_dim,
        call.kernel, call.causal, call.window, call.backward,
        *_bytes(call.num_sequences, call.length),
    )  # fmt: skip


def _stack(dtype: DType, found: list[tuple[Operation, dict[Stretch, float]]]) -> _Products:
    shapes = [product_shape(operation) for operation, _ in found]
    common = np.broadcast_shapes(*(np.shape(size) for shape in shapes for size in shape))
    m, n, k = (
        np.stack([np.broadcast_to(np.asarray(size, dtype=float), common) for size in axis])
        for axis in zip(*shapes, strict=True)
    )
    weights: dict[Stretch, tuple[Floats, Floats]] = {}
    grouped = []
    for index, (operation, runs) in enumerate(found):
        is_grouped = operation.kind is OperationKind.GROUPED_MATMUL
        if is_grouped:
            grouped.append(operation)
        for stretch, count in runs.items():
            pair = weights.setdefault(stretch, (np.zeros(len(found)), np.zeros(len(found))))
            pair[1 if is_grouped else 0][index] = count
    return _Products(dtype, m, n, k, tuple(grouped), weights)


def bundle_time(prepared: Bundle, curves: ChipCurves, *, launch_s: float) -> tuple[Number, Number]:
    """Seconds of one micro-batch on a chip, and of its forward pass; as ``compute_time`` counts.

    Raises:
        NotSupported: The chip has no rate for a dtype.
    """
    busy: dict[Stretch, Number] = dict.fromkeys(prepared.launches, 0.0)
    for stretch, stream in prepared.streams.items():
        busy[stretch] = busy[stretch] + (
            stream.plain / curves.streaming_bytes_per_s
            + stream.cast / curves.cast_bytes_per_s
            + stream.strided / curves.strided_bytes_per_s
        )
    for group in prepared.products:
        seconds = gemm_time_s(gemm_curve(curves, group.dtype), group.m, group.n, group.k)
        factor = slowdown(group.grouped[0], curves) if group.grouped else 1.0
        for stretch, (plain, grouped) in group.weights.items():
            busy[stretch] = busy[stretch] + (plain + grouped * factor) @ seconds
    for operation, runs in prepared.calls:
        one = operation_time_s(operation, curves)
        for stretch, count in runs.items():
            busy[stretch] = busy[stretch] + one * count
    total: Number = 0.0
    forward: Number = 0.0
    for stretch, spent in busy.items():
        hidden = 0.0 if curves.synchronous else spent
        gap = np.maximum(prepared.launches[stretch] * launch_s - hidden, 0.0)
        with_gap: Number = spent + gap
        if stretch[0] == Stage.FORWARD:
            forward = forward + with_gap
        copy = prepared.copies.get(stretch)
        if copy is not None:
            with_gap = np.maximum(with_gap, operation_time_s(copy, curves))
        total = total + with_gap
    return total, forward
