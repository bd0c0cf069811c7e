"""How fast a chip's kernels really run: curves derived from published kernel timings.

All curves hold logarithms on a grid, because time is close to a power law between neighbouring
shapes; ``estimation.kernel_time`` interpolates, ``catalog.kernels`` loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Assumption, Basis

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GemmCurve:
    """Seconds of a matrix product ``(m x k)(k x n)``.

    Attributes:
        log_m, log_n, log_k: Natural logarithms of the grid's shapes, ascending.
        log_time_s: Natural logarithm of seconds, shape ``(len(m), len(n), len(k))``.
    """

    log_m: Floats
    log_n: Floats
    log_k: Floats
    log_time_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionCurve:
    """Forward rate of the chip's own attention kernel on causal work.

    Attributes:
        family: ``flash_attention_2``, ``flash_attention_3`` or ``blackwell`` (TensorRT-LLM's
            kernels, the class of cuDNN and FlashAttention 4).
        head_dims: Ascending.
        log_lengths: Logarithm of tokens per sequence.
        log_heads: Logarithm of sequences x query heads (how much can run side by side).
        log_flop_per_s: Shape ``(len(head_dims), len(lengths), len(heads))``; the work counted is
            four operations per head-dim element and (query, key) pair that causality leaves.
    """

    family: str
    head_dims: tuple[int, ...]
    log_lengths: Floats
    log_heads: Floats
    log_flop_per_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectiveCurve:
    """Seconds of one collective inside a node, running alone.

    Attributes:
        link_bytes_per_s: One direction per accelerator of the link it was measured on.
        ranks: Group sizes measured, ascending.
        log_bytes: Logarithm of the bytes of the full tensor (gathered, or before scattering).
        time_s: By collective (``all_gather``, ``reduce_scatter``, ``all_reduce``); shape
            ``(len(ranks), len(bytes))``.
    """

    link: str
    link_bytes_per_s: float
    ranks: tuple[int, ...]
    log_bytes: Floats
    time_s: Mapping[str, Floats]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProducts:
    """Products timed on a chip: every combination of three axes.

    Attributes:
        m, n, k: Ascending; the product is ``(m x k)(k x n)``.
        time_s: The last axis runs fastest.
    """

    dtype: str
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    time_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """Causal attention timed on a chip, forward; work counted as in ``AttentionCurve``.

    Attributes:
        heads: Sequences x query heads.
        flop_per_s: The last axis runs fastest.
    """

    dtype: str
    head_dims: tuple[int, ...]
    lengths: tuple[int, ...]
    heads: tuple[int, ...]
    flop_per_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernels:
    """What the user measured on a chip of their own.

    Attributes:
        streaming_bytes_per_s, cast_bytes_per_s, strided_bytes_per_s: Of pointwise kernels that
            write new tensors.
        host_operation_s: Host time of one operation, autograd's record included.
        synchronous: The host computes itself (a processor): nothing hides behind anything.
        source: File and day.
    """

    products: tuple[MeasuredProducts, ...]
    attention: MeasuredAttention | None
    streaming_bytes_per_s: float
    cast_bytes_per_s: float
    strided_bytes_per_s: float
    host_operation_s: float
    synchronous: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipCurves:
    """Everything that turns operations into seconds on one accelerator.

    Attributes:
        accelerator: Catalogue name.
        table: Chip whose measured kernels were used.
        measured: Whether that is this very chip.
        gemm: By dtype name.
        attention: Of the newest kernel the chip has (``family`` says which).
        flash_attention_2: Of FlashAttention-2, which PyTorch's flash SDPA also runs.
        grouped_slowdown: Measured time of grouped products (experts) over one product of the rows
            of one expert with the columns of all.
        peak_flop_per_s: By dtype name: datasheet, or scaled to a measured best product.
        collectives: By link (``nvlink``, ``pcie``).
        memory_bandwidth_bytes_per_s: Datasheet.
        bandwidth_efficiency: Share of it that streaming kernels reach.
        cast_bytes_per_s: What a memory-bound kernel reaches that changes the dtype on the way.
        strided_bytes_per_s: What one reaches that loads a byte or two at a time.
        host_bytes_per_s: What a pinned copy to or from host memory reaches, each way.
        host_operation_s: Host time of an eager operation where it was measured; None takes that of
            the software.
        synchronous: The chip is the host: what it launches it computes, one after the other.
        assumptions: What was not measured on this chip.
    """

    accelerator: str
    table: str
    measured: bool
    basis: Basis
    source: str
    gemm: Mapping[str, GemmCurve]
    attention: AttentionCurve
    flash_attention_2: AttentionCurve
    peak_flop_per_s: Mapping[str, float]
    collectives: Mapping[str, CollectiveCurve]
    memory_bandwidth_bytes_per_s: float
    bandwidth_efficiency: float
    grouped_slowdown: float
    cast_bytes_per_s: float
    strided_bytes_per_s: float
    host_bytes_per_s: float
    host_operation_s: float | None = None
    synchronous: bool = False
    assumptions: tuple[Assumption, ...] = ()

    @property
    def streaming_bytes_per_s(self) -> float:
        """What a memory-bound kernel reaches."""
        return self.memory_bandwidth_bytes_per_s * self.bandwidth_efficiency

    @property
    def half_flop_per_s(self) -> float:
        """Rate of 16-bit products, 0 where the chip has none."""
        peaks = self.peak_flop_per_s
        return peaks.get("bfloat16") or peaks.get("float16") or 0.0
