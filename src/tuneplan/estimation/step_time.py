"""Seconds of one optimizer step: a sum of terms, each with its formula.

``compute_time`` prices operations (scalars or arrays, so a search can call it);
``step_time`` adds communication, offload and host work, and the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Final

import numpy as np

from tuneplan.estimation.communication import communication_term
from tuneplan.estimation.kernel_time import operation_times_s
from tuneplan.estimation.offload import offload_term
from tuneplan.estimation.operations import Number, Operation, OperationKind, Stage
from tuneplan.estimation.sharded_units import communication_units
from tuneplan.frozen import dataclass
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Estimate, Term
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Kernels, TrainingRecipe

# Host time of one eager PyTorch operation (``Kernels.host_launch_s``): Python call 1 us, binding 1,
# autograd record 1-3, dispatcher 1-2, allocation and backend 1-5, cudaLaunchKernel 2-3: 7-15 us on
# server processors, 12 taken. A Llama layer with LoRA under checkpointing takes 7.3 us an operation
# on one EPYC core, forward and backward, on CPU tensors of two tokens (Python 3.11, torch 2.13,
# transformers 5.24, PEFT 0.21); a card's launch and caching allocator come on top. Python up to
# 3.10, which PyTorch's own images held until torch 2.4, took 20 us (``frameworks/data``).
# A compiled graph launches its kernels from generated code: no dispatcher and no autograd.
COMPILED_LAUNCH_S: Final = 4e-6
# From the end of a kernel to the return of the call that waits for it.
SYNCHRONIZE_S: Final = 8e-6
# Around each micro-batch the host collates and copies the batch, and transformers' Trainer reads
# the loss back (its nan/inf filter), so that the queue drains: an assumption of 2 ms.
MICRO_BATCH_HOST_S: Final = 2e-3

# Factors on the likely step at P10 and P90, by situation. Measured chip: kernel tables of three
# backends differ by up to 14 %, and sustained clocks lie below a benchmark's; sums of many kernels
# err by less. Borrowed chip: the
# efficiencies of the measured chips spread from 0.52 to 0.83. The likely step is fitted to nothing,
# but these widths are not blind: those of a measured chip, of host time, of DeepSpeed and of
# unpacked weights were set after seeing how far published runs of such situations lie from the sum.
_MEASURED_CHIP: Final = (0.95, 1.08)
_BORROWED_CHIP: Final = (0.75, 1.35)
# A processor: no table tells what its caches hold between two operations and whether the pages of a
# new tensor are there already; a pointwise kernel runs 10 times as fast where they are.
_PROCESSOR: Final = (0.55, 1.50)
_ONE_NODE_NVLINK: Final = (0.96, 1.08)
_ONE_NODE_PCIE: Final = (0.85, 1.30)
_SEVERAL_NODES: Final = (0.90, 1.25)
# Host time of an operation at P10 and P90, around the likely one: 7.3 us without a card on a fast
# core where 12 are taken; processors differ by as much upwards.
_LAUNCH_FACTORS: Final = (0.65, 2.0)
_OFFLOADED: Final = (0.75, 1.40)
# Several ranks that share a layer or a stack: which collectives overlap, how even the stages are
# and what the framework's version fuses are assumptions.
_SPLIT_MODEL: Final = (0.85, 1.25)
# Expert ranks: sorting and sending tokens runs many small kernels, and no routing is even. Set
# after seeing published Megatron-Bridge runs, which take 1.2 to 1.7 times the sum.
_EXPERT_RANKS: Final = (0.90, 1.70)
# DeepSpeed on several cards runs Python hooks around every module and buckets that no term counts:
# published ZeRO-2 and ZeRO-3 runs take 1.2 to 2.3 times the sum.
_DEEPSPEED: Final = (0.90, 1.80)
# Weights unpacked by several PyTorch steps (AutoGPTQ), of which no timing is published; counts for
# the share of the step that they take.
_UNPACKED: Final = (0.70, 1.80)

_TERM_KINDS: Final[Mapping[OperationKind, str]] = MappingProxyType(
    {
        OperationKind.MATMUL: "matmul",
        OperationKind.GROUPED_MATMUL: "matmul",
        OperationKind.ATTENTION: "attention",
        OperationKind.ELEMENTWISE: "elementwise",
        OperationKind.ADAPTER: "adapter",
        OperationKind.LOSS: "loss",
        OperationKind.DEQUANTIZE: "dequantize",
        OperationKind.RECURRENCE: "recurrence",
        OperationKind.EMBEDDING: "embedding",
        OperationKind.OPTIMIZER: "optimizer",
        OperationKind.HOST_COPY: "activation_offload",
    }
)
_FORMULAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "matmul": sentence("sum(count x time(m, n, k) of the measured table)"),
        "attention": sentence(
            "sum(count x visible pairs x heads x 2 (d_k + d_v) / rate(length, heads))"
        ),
        "elementwise": sentence("sum(count x bytes / (bandwidth x efficiency))"),
        "adapter": sentence("sum(count x max(bytes / streaming rate, operations / peak))"),
        "loss": sentence("sum(count x bytes / streaming rate)"),
        "dequantize": sentence("sum(count x bytes / streaming rate)"),
        "recurrence": sentence("sum(count x max(bytes / streaming rate, operations / (peak / 2)))"),
        "embedding": sentence("sum(count x bytes / streaming rate)"),
        "optimizer": sentence("sum(count x bytes / streaming rate)"),
        "activation_offload": sentence("sum over stages(max(0, bytes / PCIe rate - kernel time))"),
    }
)
_ZERO: Final = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)
_OUTER_KINDS: Final = (OperationKind.LOSS, OperationKind.EMBEDDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTime:
    """Seconds on the accelerator, per optimizer step.

    Attributes:
        by_kind: Kernel seconds by term kind.
        launch_s: What the host adds where it cannot launch as fast as kernels finish.
        launches: Kernel launches of a step.
        launch_range_s: ``launch_s`` with the host's time of an operation at its P10 and P90.
        forward_s: Of one micro-batch's forward pass, launch floor included (for evaluation).
    """

    by_kind: Mapping[str, Number]
    launch_s: Number
    launches: float
    forward_s: Number
    launch_range_s: tuple[Number, Number] = (0.0, 0.0)

    @property
    def total_s(self) -> Number:
        """Kernels and launch gaps."""
        total: Number = 0.0
        for value in self.by_kind.values():
            total = total + value
        return total + self.launch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step on the slowest rank.

    Attributes:
        step_s: The range; ``likely`` is the sum of ``terms``.
        forward_s: One micro-batch's forward pass alone.
        launch_share: Part of the step that waits for the host.
    """

    step_s: Estimate
    terms: tuple[Term, ...]
    forward_s: float
    launch_share: float


def compute_time(
    operations_per_micro_batch: Sequence[Operation],
    operations_per_step: Sequence[Operation],
    recipe: TrainingRecipe,
    curves: ChipCurves,
) -> ComputeTime:
    """Price operations; shapes may be arrays, one entry a candidate.

    The queue of the accelerator hides launches while kernels are longer than they take, so the
    floor applies to a stretch of like operations, not to each: forward layers, backward layers
    (with their recomputation), what stands outside the layers, the optimizer step. Copies of
    activations to the host run beside the kernels of their stretch and cost what exceeds them
    (torchtune ``training/_activation_offloading.py`` with streams, unsloth's checkpointing).
    """
    launch_s = launch_time_s(recipe.kernels, curves)
    waits = recipe.kernels.blocking_launches or curves.synchronous
    times_of = recipe.gradient_accumulation_steps
    by_kind: dict[str, Number] = {}
    gaps: Number = 0.0
    range_s: list[Number] = [0.0, 0.0]
    forward: Number = 0.0
    launches = 0.0
    for operations, repeats in (
        (operations_per_micro_batch, times_of),
        (operations_per_step, 1),
    ):
        for (stage, _), stretch in _stretches(operations, curves).items():
            for kind, seconds in stretch.by_kind.items():
                by_kind[kind] = by_kind.get(kind, 0.0) + seconds * repeats
            hidden = 0.0 if waits else np.asarray(stretch.busy_s)
            gap = np.maximum(stretch.launches * launch_s - hidden, 0.0)
            gaps = gaps + gap * repeats
            for side, factor in enumerate(_LAUNCH_FACTORS):
                host = stretch.launches * launch_s * factor
                range_s[side] = range_s[side] + repeats * np.maximum(host - hidden, 0.0)
            launches += stretch.launches * repeats
            if stage == Stage.FORWARD:
                forward = forward + stretch.busy_s + gap
            late = np.maximum(np.asarray(stretch.copies_s) - stretch.busy_s - gap, 0.0)
            if np.any(late):
                kind = _TERM_KINDS[OperationKind.HOST_COPY]
                by_kind[kind] = by_kind.get(kind, 0.0) + late * repeats
    return ComputeTime(
        by_kind=MappingProxyType(by_kind),
        launch_s=_plain(gaps),
        launches=launches,
        forward_s=_plain(forward),
        launch_range_s=(_plain(range_s[0]), _plain(range_s[1])),
    )


@dataclass(slots=True)
class _Stretch:
    """Operations that run one after another without the host waiting for the accelerator."""

    busy_s: Number = 0.0
    copies_s: Number = 0.0
    launches: float = 0.0
    by_kind: dict[str, Number] = field(default_factory=dict)


def launch_time_s(kernels: Kernels, curves: ChipCurves) -> float:
    """Host time of one operation: eager, or from the generated code of a compiled graph.

    Where launches block, the host also has to notice that the kernel is done.
    """
    eager = curves.host_operation_s or kernels.host_launch_s
    each = COMPILED_LAUNCH_S if kernels.compiled else eager
    return each + SYNCHRONIZE_S if kernels.blocking_launches else each


def _stretches(
    operations: Sequence[Operation], curves: ChipCurves
) -> dict[tuple[str, bool], _Stretch]:
    found: dict[tuple[str, bool], _Stretch] = {}
    times = operation_times_s(operations, curves)
    for operation, seconds in zip(operations, times, strict=True):
        stretch = found.setdefault(stretch_of(operation), _Stretch())
        if operation.kind is OperationKind.HOST_COPY:
            stretch.copies_s = stretch.copies_s + seconds
            continue
        kind = _TERM_KINDS[operation.kind]
        stretch.busy_s = stretch.busy_s + seconds
        stretch.launches += operation.count * operation.launches
        stretch.by_kind[kind] = stretch.by_kind.get(kind, 0.0) + seconds
    return found


def stretch_of(operation: Operation) -> tuple[str, bool]:
    """Operations that share one launch floor: stage (recomputation runs inside backward), place."""
    stage = Stage.BACKWARD if operation.stage is Stage.RECOMPUTE else operation.stage
    outer = operation.kind in _OUTER_KINDS or "lm_head" in operation.name
    return stage, outer


def step_time(
    *,
    operations_per_micro_batch: Sequence[Operation],
    operations_per_step: Sequence[Operation],
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
    architecture: ModelArchitecture,
) -> StepTime:
    """Seconds of one optimizer step, with its terms and range. Scalar shapes only."""
    compute = compute_time(operations_per_micro_batch, operations_per_step, recipe, curves)
    units = communication_units(architecture, recipe)
    terms = [
        *compute_terms(compute, recipe, curves),
        communication_term(units, recipe, parallelism, cluster, curves),
        host_term(recipe),
    ]
    offload = offload_term(units, recipe, parallelism, cluster)
    if offload is not None:
        terms.append(offload)
    kept = tuple(term for term in terms if term.value > 0)
    likely = sum(term.value for term in kept)
    shares = {term.kind: term.value / likely for term in kept} if likely else {}
    low, high = prior_width(
        curves,
        parallelism,
        cluster,
        shares,
        host=host_factors(compute, likely),
        unpacks=recipe.quantization is not None and not recipe.quantization.one_kernel,
    )
    return StepTime(
        step_s=Estimate(low=likely * low, likely=likely, high=likely * high, basis=curves.basis),
        terms=kept,
        forward_s=float(np.asarray(compute.forward_s)),
        launch_share=shares.get("launch", 0.0),
    )


def host_factors(compute: ComputeTime, likely: float) -> tuple[float, float]:
    """The step with the host's time of an operation at its P10 and P90, over the likely step."""
    if not likely:
        return 1.0, 1.0
    gap = float(np.asarray(compute.launch_s))
    low, high = (float(np.asarray(value)) for value in compute.launch_range_s)
    return 1.0 + (low - gap) / likely, 1.0 + (high - gap) / likely


def prior_width(
    curves: ChipCurves,
    parallelism: Parallelism,
    cluster: Cluster,
    shares: Mapping[str, float],
    *,
    host: tuple[float, float] = (1.0, 1.0),
    unpacks: bool = False,
) -> tuple[float, float]:
    """Factors on the likely step at P10 and P90 before any run of the user was seen.

    Independent causes add in squares of logarithms; a cause that touches only a share of the
    step (offload, unpacking) counts by that share. Several widths were set by looking at published
    runs, situation by situation (see the constants); none is of one run or one source.

    Args:
        curves: Of the chip; borrowed ones are wider.
        parallelism: Several ranks wait for each other.
        cluster: Its links and nodes.
        shares: Part of the step by kind of term.
        host: Factors on the step where the host takes its P10 and P90 for an operation.
        unpacks: Whether quantised weights are expanded by several PyTorch steps.
    """
    chip = _MEASURED_CHIP if curves.measured else _BORROWED_CHIP
    causes = [(_PROCESSOR if curves.synchronous else chip, 1.0), (host, 1.0)]
    if parallelism.data > 1:
        pcie = cluster.interconnect in ("pcie", "none")
        causes.append((_ONE_NODE_PCIE if pcie else _ONE_NODE_NVLINK, 1.0))
        if parallelism.strategy in _ZERO and not parallelism.reduces_in_place:
            causes.append((_DEEPSPEED, 1.0))
    if parallelism.splits_model:
        causes.append((_SPLIT_MODEL, 1.0))
    if parallelism.expert > 1:
        causes.append((_EXPERT_RANKS, 1.0))
    if cluster.num_nodes > 1:
        causes.append((_SEVERAL_NODES, 1.0))
    causes.append((_OFFLOADED, shares.get("offload", 0.0)))
    if unpacks:
        causes.append((_UNPACKED, shares.get("dequantize", 0.0)))
    return tuple(  # type: ignore[return-value]
        math.exp(
            sign * math.sqrt(sum((share * math.log(width[side])) ** 2 for width, share in causes))
        )
        for side, sign in ((0, -1), (1, 1))
    )


def compute_terms(
    compute: ComputeTime, recipe: TrainingRecipe, curves: ChipCurves
) -> tuple[Term, ...]:
    """Kernel seconds of a step by kind, and what the host adds."""
    inputs = {
        "table": curves.table,
        "micro_batches": recipe.gradient_accumulation_steps,
        "bandwidth_bytes_per_s": curves.memory_bandwidth_bytes_per_s,
        "efficiency": curves.bandwidth_efficiency,
    }
    kernels = tuple(
        Term(
            kind=kind,
            value=float(np.asarray(value)),
            formula=_FORMULAS[kind],
            inputs=inputs,
            source=curves.source,
            basis=curves.basis,
        )
        for kind, value in compute.by_kind.items()
    )
    launch = Term(
        kind="launch",
        value=float(np.asarray(compute.launch_s)),
        formula=sentence("sum over stretches(max(0, launches x host time - kernel time))"),
        inputs={
            "launches": compute.launches,
            "host_launch_s": launch_time_s(recipe.kernels, curves),
        },
        source=sentence("PyTorch's dispatch path, layer by layer"),
        basis=Basis.ASSUMED,
    )
    return (*kernels, launch)


def host_term(recipe: TrainingRecipe) -> Term:
    """What the host does around each micro-batch."""
    micro_batches = recipe.gradient_accumulation_steps
    return Term(
        kind="host",
        value=MICRO_BATCH_HOST_S * micro_batches,
        formula=sentence("micro_batches x 2 ms"),
        inputs={"micro_batches": micro_batches},
        source=sentence("transformers trainer.py: the loss is read back every micro-batch"),
        basis=Basis.ASSUMED,
    )


def _plain(value: Number) -> Number:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
