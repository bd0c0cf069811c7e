"""What a step executes, as a list of operations: the bridge from model code to seconds.

``estimation.layers`` produces the list (the same walk that counts memory), ``estimation.step_time``
prices it on a chip. Quantities may be plain floats or NumPy arrays (one entry per candidate of a
search); every consumer must accept both.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import AttentionKernel, DType

Number: TypeAlias = float | NDArray[np.float64]


class OperationKind(StrEnum):
    """Classes that are priced differently."""

    MATMUL = "matmul"
    GROUPED_MATMUL = "grouped_matmul"  # experts: m tokens spread over num_groups
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"  # norms, rotary, activations, residuals, casts, dropout
    ADAPTER = "adapter"  # the low-rank side paths (thin matmuls, casts, adds)
    LOSS = "loss"  # softmax, cross entropy and copies of the logits (not the head's matmul)
    DEQUANTIZE = "dequantize"
    RECURRENCE = "recurrence"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    HOST_COPY = "host_copy"  # to or from host memory, beside the kernels


class Stage(StrEnum):
    """When it runs."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    STEP = "step"  # once per optimizer step, not per micro-batch


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Shape of one attention call.

    Attributes:
        num_sequences: Independent sequences (packed documents count one each).
        length: Tokens per sequence.
        window: Keys a query sees at most; None = all before it.
        backward: Whether this is the backward kernel.
    """

    num_sequences: Number
    length: Number
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    kernel: AttentionKernel
    causal: bool = True
    window: int | None = None
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of kernel call, executed ``count`` times per micro-batch (or per step).

    Attributes:
        name: Module path, e.g. ``mlp.gate_proj``.
        count: How often it runs (layers of the group, ...).
        launches: Kernel launches of one run.
        flops: Floating-point operations of one run (a multiply-add is two).
        bytes_moved: HBM bytes of one run, reads and writes, as the kernels really run.
        cast_bytes: Part of them moved by kernels that change the dtype on the way.
        strided_bytes: Part of them moved by kernels that load a byte or two at a time:
            half-precision operands that are broadcast or permuted, packed 4-bit weights.
        m, n, k: For matrix products: (m x k) times (k x n); m is usually tokens.
        num_groups: For grouped products: experts that share the m rows.
    """

    name: str
    kind: OperationKind
    stage: Stage
    dtype: DType
    count: float = 1.0
    launches: float = 1.0
    flops: Number = 0.0
    bytes_moved: Number = 0.0
    cast_bytes: Number = 0.0
    strided_bytes: Number = 0.0
    m: Number = 0.0
    n: Number = 0.0
    k: Number = 0.0
    num_groups: int = 1
    attention: AttentionShape | None = None

    def times(self, count: float) -> Operation:
        """The same, executed so often; ``replace`` asks every field who it is."""
        return Operation(
            self.name, self.kind, self.stage, self.dtype, count, self.launches, self.flops,
            self.bytes_moved, self.cast_bytes, self.strided_bytes, self.m, self.n, self.k,
            self.num_groups, self.attention,
        )  # fmt: skip
