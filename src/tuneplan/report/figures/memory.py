"""How the memory figures of an estimate come about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuneplan.contract.answers import ExplainedInput, ExplainedNode
from tuneplan.contract.parts import Term
from tuneplan.estimation.uncertainty import (
    CONTEXT_WIDTH,
    FRAGMENTATION,
    REPLAYED,
    RESERVED,
    prior_factors,
)
from tuneplan.language import sentence
from tuneplan.planner.evaluating import DEFAULT_CONTEXT_BYTES
from tuneplan.report.figures.tree import Context, Explain, known
from tuneplan.spec.answer import Basis

_ROWS: Final = (
    "training.max_length",
    "training.per_device_train_batch_size",
    "training.packing",
    "training.padding",
)
_ACTIVATIONS: Final = (
    *_ROWS,
    "training.gradient_checkpointing",
    "training.attn_implementation",
    "behaviour.hidden_dtype",
    "behaviour.kernels",
)
_SHARED: Final = ("method", "parallelism.strategy")
# Job keys and behaviours that decide a term.
_DECIDED_BY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "frozen_weights": ("model", *_SHARED, "training.dtype", "behaviour.kbit_preparation"),
        "quantized_weights": ("model", *_SHARED, "quantization.bits", "quantization.type"),
        "quantization_constants": ("quantization.type", "quantization.double_quant"),
        "trained_weights": ("model", *_SHARED, "training.dtype", "adapter.modules_to_save"),
        "adapters": ("adapter.r", "adapter.target_modules", "behaviour.adapter_dtype"),
        "optimizer_states": (*_SHARED, "training.optim", "parallelism.offload"),
        "master_weights": (*_SHARED, "training.master_weights"),
        "gradients": (*_SHARED, "training.gradient_accumulation_steps"),
        "gradient_buckets": _SHARED,
        "gathered_units": _SHARED,
        "layer_unit": _SHARED,
        "communication_buffers": _SHARED,
        "reference_model": ("objective", "method"),
        "attention_mask": (*_ROWS, "behaviour.attention_kernel"),
        "token_ids": _ROWS,
        "kept_activations": _ACTIVATIONS,
        "layer_working_set": _ACTIVATIONS,
        "loss_working_set": (*_ROWS, "training.loss", "behaviour.loss"),
        "held_logits": (*_ROWS, "training.loss"),
        "autocast_weights": ("training.dtype", "training.precision"),
        "step_temporary": ("training.optim", "behaviour.optimizer_step"),
    }
)


def _peak(context: Context) -> ExplainedNode:
    estimate = context.estimate
    resolved = estimate.resolved
    width = _peak_width(context)
    batch = resolved.batch
    inputs = [
        known("peak_phase", estimate.memory.phase.value),
        known("rows of a micro-batch", batch.sequences, "sequences"),
        known("longest micro-batch to expect", batch.worst_length, sentence("tokens per sequence")),
        known("longest that can occur", batch.limit_length, sentence("tokens per sequence")),
        *width,
    ]
    return context.figure(
        "memory.peak_bytes",
        "sum of what the allocator holds at the worst moment of a step",
        inputs=inputs,
        children=[term_node(context, term) for term in context.body.memory.terms],
        source="estimation/memory.py; docs/concepts/memory.md",
    )


def _peak_width(context: Context) -> list[ExplainedInput]:
    """Where the range comes from: the measured runs closest to the job, or a prior."""
    resolved, memory = context.estimate.resolved, context.estimate.memory
    spread, nearest = memory.spreads.allocated, memory.nearest
    low, high = prior_factors(resolved.model, resolved.recipe, resolved.parallelism)
    basis, source = Basis.ASSUMED, "estimation/uncertainty.py"
    if spread is not None:
        low, high = spread.low_factor, spread.high_factor
        basis, source = Basis.CALIBRATED, sentence("measured runs; docs/concepts/uncertainty.md")
    width = [
        known("low / likely", low, basis=basis, source=source),
        known(
            "high / peak of the longest micro-batch that can occur",
            high,
            basis=basis,
            source=source,
        ),
    ]
    if spread is not None and nearest is not None:
        width.append(known("measured runs closest to the job", dict(nearest.rows), "runs"))
    return width


def term_node(context: Context, term: Term, *, name: str | None = None) -> ExplainedNode:
    """A term of the peak; its parts are the tensors that are alive then."""
    symbols = [
        ExplainedInput(name=symbol, value=value, basis=term.basis.value)
        for symbol, value in term.inputs.items()
    ]
    return ExplainedNode(
        name=name or term.kind,
        value=term.size_bytes,
        unit="bytes",
        formula=term.formula,
        basis=term.basis.value,
        source=term.source or None,
        inputs=[*symbols, *context.settings(*_DECIDED_BY.get(term.kind, ()))],
        children=[term_node(context, part) for part in term.parts],
    )


def _context_input(context: Context) -> ExplainedInput:
    card = context.estimate.resolved.accelerator
    assumed = context.assumptions.get("hardware.accelerator.context_bytes")
    return known(
        "context",
        card.context_bytes if card else DEFAULT_CONTEXT_BYTES,
        "bytes",
        basis=Basis.ASSUMED if assumed or card is None else Basis.MEASURED,
        source=assumed.source if assumed else (card.source if card else None),
        how_to_set=assumed.how_to_set if assumed else None,
    )


def _reserved(context: Context) -> ExplainedNode:
    if context.estimate.memory.reserving is not None:
        return context.figure(
            "memory.peak_reserved_bytes",
            "loading and training steps at full depth, replayed through a model of the caching "
            "allocator; at most capacity - context",
            inputs=[
                *_replay_inputs(context),
                *_capacity_input(context),
                _context_input(context),
            ],
            source="PyTorch c10/cuda/CUDACachingAllocator.cpp; estimation/replay.py",
        )
    shares = {"low": RESERVED.low, "likely": RESERVED.likely, "high": RESERVED.high}
    return context.figure(
        "memory.peak_reserved_bytes",
        "allocated peak x (reserved / allocated), at most capacity - context",
        inputs=[
            known("reserved / allocated", shares, basis=RESERVED.basis,
                  source=sentence("measured runs; docs/concepts/memory.md")),
            *([_reserved_width(context)] if context.estimate.memory.spreads.reserved else []),
            *_capacity_input(context),
            _context_input(context),
        ],
        children=[_peak(context)],
        source="PyTorch CUDACachingAllocator.cpp: cached blocks are given back before it fails",
    )  # fmt: skip


def _replay_inputs(context: Context) -> list[ExplainedInput]:
    found = context.estimate.memory.reserving
    if found is None:
        return []
    inputs = [known("replayed", found.reserved_bytes, "bytes"), _reserved_width(context)]
    if found.varies:
        worst = known("replayed after batches that grow", found.worst_bytes, "bytes")
        inputs.insert(1, worst)
    return inputs


def _reserved_width(context: Context) -> ExplainedInput:
    spread = context.estimate.memory.spreads.reserved
    if spread is None:
        width = {"low": REPLAYED[0], "high": REPLAYED[1]}
        return known("width of a replay", width, basis=Basis.ASSUMED)
    width = {"low": spread.low_factor, "high": spread.high_factor}
    return known("width by measured runs", width, basis=Basis.CALIBRATED)


def _device(context: Context) -> ExplainedNode:
    return context.figure(
        "memory.peak_device_bytes",
        "reserved peak + context",
        inputs=[_context_input(context), _context_width()],
        children=[_reserved(context)],
        source=sentence(
            "nvidia-smi counts the allocator's blocks and what the process holds beside it"
        ),
    )


def _context_width() -> ExplainedInput:
    width = {"low": CONTEXT_WIDTH[0], "high": CONTEXT_WIDTH[1]}
    return known("width of the context", width, basis=Basis.ASSUMED)


def _host(context: Context) -> ExplainedNode:
    return context.figure(
        "memory.host_bytes",
        "the process (2 to 6 GB) + what is offloaded + a shard to the whole model while loading",
        inputs=context.settings("parallelism.offload", "training.gradient_checkpointing"),
        source=sentence("safetensors loads shard by shard"),
    )


def _capacity_input(context: Context) -> list[ExplainedInput]:
    card = context.estimate.resolved.accelerator
    if card is None:
        return []
    assumed = context.assumptions.get("hardware.accelerator.capacity_bytes")
    found = known(
        "capacity",
        card.capacity_bytes,
        "bytes",
        basis=Basis.ASSUMED if assumed else Basis.MEASURED,
        source=assumed.source if assumed else card.source,
        how_to_set=assumed.how_to_set if assumed else None,
    )
    return [found]


def _needed(context: Context) -> ExplainedNode | None:
    fit = context.estimate.memory.fit
    if fit is None:
        return None
    reserving = context.estimate.memory.reserving
    shares: dict[str, float] = {
        "low": FRAGMENTATION.low,
        "likely": FRAGMENTATION.likely,
        "high": FRAGMENTATION.high,
    }
    basis = FRAGMENTATION.basis
    if reserving is not None:
        shares["likely"] = (
            reserving.fragmentation_bytes / context.estimate.memory.ranges.peak_bytes.likely
        )
        shares["high"] = max(shares["likely"], shares["high"])
        basis = Basis.ANALYTIC
    needed = fit.needed_bytes
    return ExplainedNode(
        name="needed",
        value={
            "low": round(needed.low),
            "likely": round(needed.likely),
            "high": round(needed.high),
            "basis": needed.basis.value,
        },
        unit="bytes",
        formula=sentence("allocated peak x (1 + unusable fragmentation) + context"),
        basis=needed.basis.value,
        source="estimation/uncertainty.py",
        inputs=[
            known("unusable fragmentation", shares, basis=basis),
            _context_input(context),
            _context_width(),
        ],
        children=[_peak(context)],
    )


def _fit(figure: str, formula: str) -> Explain:
    def explain(context: Context) -> ExplainedNode | None:
        needed = _needed(context)
        if needed is None:
            return None
        inputs = _capacity_input(context)
        return context.figure(figure, formula, inputs=inputs, children=[needed])

    return explain


def _capacity(context: Context) -> ExplainedNode | None:
    card = context.estimate.resolved.accelerator
    if card is None:
        return None
    return context.figure(
        "fit.capacity_bytes",
        "what torch reports as total_memory",
        inputs=[
            known("marketed memory", card.memory_bytes, "bytes", basis=Basis.MEASURED,
                  source=card.source),
            *context.settings("hardware.accelerator"),
        ],
        source="docs/reference/accelerators.md",
        basis=_capacity_input(context)[0].basis,
    )  # fmt: skip


MEMORY_FIGURES: Final[Mapping[str, Explain]] = MappingProxyType(
    {
        "memory.peak_bytes": _peak,
        "memory.peak_reserved_bytes": _reserved,
        "memory.peak_device_bytes": _device,
        "memory.host_bytes": _host,
        "fit.verdict": _fit(
            "fit.verdict",
            sentence(
                "fits where the high end of the need is within the capacity, tight where the range "
                "contains it, does_not_fit where the low end is above it"
            ),
        ),
        "fit.probability_fits": _fit(
            "fit.probability_fits",
            sentence(
                "share of a normal curve, with a spread for each side of the need, below the "
                "capacity"
            ),
        ),
        "fit.headroom_bytes": _fit("fit.headroom_bytes", sentence("capacity - likely need")),
        "fit.capacity_bytes": _capacity,
    }
)
