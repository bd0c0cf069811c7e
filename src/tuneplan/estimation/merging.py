"""Operations that are priced alike, put together: the same seconds from fewer look-ups.

Streams are priced by their bytes, so their bytes add up; products and attention calls of one
shape are looked up once. A search prices a walk on every chip, and a walk has many equal layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tuneplan.estimation.operations import Operation, OperationKind, Stage
from tuneplan.estimation.step_time import stretch_of

_STREAMS = (
    OperationKind.ELEMENTWISE,
    OperationKind.LOSS,
    OperationKind.DEQUANTIZE,
    OperationKind.EMBEDDING,
    OperationKind.OPTIMIZER,
    OperationKind.HOST_COPY,
)


def merge_like(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Operations whose sum of seconds, by stage, place and kind, is that of ``operations``."""
    merged: dict[Any, Operation] = {}
    for operation in operations:
        streams = _streams(operation)
        key = (stretch_of(operation), operation.kind, streams or _shape(operation))
        one = _whole(operation) if streams else operation
        before = merged.get(key)
        merged[key] = one if before is None else _together(before, one, streams=streams)
    return tuple(merged.values())


def _streams(operation: Operation) -> bool:
    """Whether only its bytes matter: adapters' casts and sums too, but not their products."""
    if operation.kind is OperationKind.ADAPTER:
        return np.ndim(operation.flops) == 0 and operation.flops == 0
    return operation.kind in _STREAMS


def _shape(operation: Operation) -> tuple[Any, ...]:
    sizes = tuple(
        np.asarray(size, dtype=float).tobytes() for size in (operation.m, operation.n, operation.k)
    )
    attention = operation.attention
    if attention is None and operation.kind is OperationKind.RECURRENCE:
        return (np.asarray(operation.flops).tobytes(), np.asarray(operation.bytes_moved).tobytes())
    call: tuple[Any, ...] = ()
    if attention is not None:
        call = (
            np.asarray(attention.num_sequences, dtype=float).tobytes(),
            np.asarray(attention.length, dtype=float).tobytes(),
            attention.num_heads,
            attention.num_key_value_heads,
            attention.head_dim,
            attention.v_head_dim,
            attention.kernel,
            attention.causal,
            attention.window,
            attention.backward,
        )
    return (operation.dtype, operation.num_groups, *sizes, *call)


def _whole(operation: Operation) -> Operation:
    """All runs of a stream as one."""
    count = operation.count
    return replace(
        operation,
        stage=_stage(operation),
        count=1.0,
        launches=operation.launches * count,
        flops=operation.flops * count,
        bytes_moved=operation.bytes_moved * count,
        cast_bytes=operation.cast_bytes * count,
        strided_bytes=operation.strided_bytes * count,
    )


def _stage(operation: Operation) -> Stage:
    """Recomputation runs inside backward."""
    return Stage.BACKWARD if operation.stage is Stage.RECOMPUTE else operation.stage


def _together(one: Operation, other: Operation, *, streams: bool) -> Operation:
    if not streams:
        count = one.count + other.count
        launches = one.count * one.launches + other.count * other.launches
        return replace(one, count=count, launches=launches / count if count else 0.0)
    return replace(
        one,
        launches=one.launches + other.launches,
        flops=one.flops + other.flops,
        bytes_moved=one.bytes_moved + other.bytes_moved,
        cast_bytes=one.cast_bytes + other.cast_bytes,
        strided_bytes=one.strided_bytes + other.strided_bytes,
    )
