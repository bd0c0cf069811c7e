"""Selective checkpointing by operation: which results of a layer's forward stay.

Attention's results and every second product, counted anew for every layer, are kept beside the
layer's input; the rest is computed again.
Source: torchtitan ``distributed/activation_checkpoint.py`` (selective by operation), PyTorch 2.13
``torch/utils/checkpoint.py create_selective_checkpoint_contexts``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tuneplan.estimation.operations import Number, Operation, OperationKind
from tuneplan.spec.architecture import Layer

_PRODUCTS: Final = (OperationKind.MATMUL, OperationKind.ADAPTER)
_FP32_BYTES: Final = 4


def split_kept(operations: Iterable[Operation], layer: Layer) -> tuple[Number, list[Operation]]:
    """Bytes of the results that stay, and the operations that run again.

    ``operations`` are those of one layer's forward, in order. A linear with a bias is ``addmm``,
    which is none of the products that the list names.
    """
    biased = {weight.leaf for weight in layer.weights() if weight.bias}
    kept: Number = 0.0
    again: list[Operation] = []
    products = 0
    for operation in operations:
        shape = operation.attention
        if shape is not None:
            tokens = shape.num_sequences * shape.length * shape.num_heads
            kept = kept + tokens * (shape.v_head_dim * operation.dtype.num_bytes + _FP32_BYTES)
            continue
        if operation.kind in _PRODUCTS and _multiplies(operation, biased):
            products += 1
            if products % 2:
                kept = kept + operation.m * operation.n * operation.dtype.num_bytes
                continue
        again.append(operation)
    return kept, again


def _multiplies(operation: Operation, biased: set[str]) -> bool:
    """Whether it is one matrix product (adapters have casts and sums of their kind as well)."""
    single = operation.num_groups == 1 and operation.name not in biased
    return single and bool(np.any(operation.flops))
