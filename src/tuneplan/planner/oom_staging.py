"""The stage that the estimate points to, where no log shows one."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.diagnosis.oom_stage import Confidence, FoundStage, Stage
from tuneplan.diagnosis.oom_text import Failure, Source
from tuneplan.estimation.memory import Phase
from tuneplan.estimation.persistent import persistent, shards_of
from tuneplan.language import Message, message
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.evaluating import DEFAULT_CONTEXT_BYTES, MemoryAnswer, evaluate_memory
from tuneplan.planner.oom_situation import evaluates, evaluation_of
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.units import format_gib

_ZERO = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)


def stage_by_estimate(
    now: JobEstimate, capacity_bytes: int | None, failure: Failure | None
) -> FoundStage:
    """The first moment of the run that does not fit, by the estimate; ``unknown`` where all do.

    Optimizer states of PyTorch's optimizers exist only once a step was made, those of DeepSpeed
    from the beginning (``runtime/zero/stage_1_and_2.py initialize_optimizer_states``), so a job may
    pass its first step and fail in the second. The first batches have the usual length; the
    longest comes later.
    """
    host = failure is not None and failure.source in (Source.HOST, Source.PAGED)
    if capacity_bytes is None or host:
        return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)
    resolved = now.resolved
    room = capacity_bytes - _context(resolved)
    loaded = _loaded_bytes(resolved)
    if loaded > room:
        text = "the weights alone take {need} of the {room} that a card has for them"
        return _found(Stage.LOAD, message("weights_alone", text, **_sizes(loaded, room)))
    typical = dict(_typical(now).by_phase)
    states = _states_of_later_steps(resolved)
    order = (
        (Stage.FIRST_FORWARD, max(typical[Phase.FORWARD], typical[Phase.LOSS]) - states),
        (Stage.FIRST_BACKWARD, typical[Phase.BACKWARD] - states),
        (Stage.OPTIMIZER_STEP, typical[Phase.OPTIMIZER_STEP]),
        (Stage.LATER, max(size for _, size in now.memory.by_phase)),
    )
    for stage, size in order:
        if size > room:
            text = "by the estimate it is the first moment that does not fit: {need} of {room}"
            return _found(stage, message("first_too_large", text, **_sizes(size, room)))
    if evaluates(resolved) and evaluation_of(resolved).peak_bytes > room:
        size = evaluation_of(resolved).peak_bytes
        text = "training fits by the estimate, an evaluation does not: {need} of {room}"
        return _found(Stage.EVALUATION, message("evaluation_too_large", text, **_sizes(size, room)))
    return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)


def _found(stage: Stage, evidence: Message) -> FoundStage:
    return FoundStage(stage=stage, confidence=Confidence.LOW, evidence=(evidence,))


def _sizes(need: float, room: float) -> dict[str, str]:
    return {"need": format_gib(need), "room": format_gib(room)}


def _context(resolved: Resolved) -> float:
    card = resolved.accelerator
    return float(card.context_bytes) if card else DEFAULT_CONTEXT_BYTES


def _loaded_bytes(resolved: Resolved) -> float:
    """Weights of one rank once the model is there, before anything is trained."""
    held = persistent(resolved.model, resolved.recipe)
    if resolved.parallelism.offload is Offload.PARAMS:
        return 0.0
    weights, _, _ = shards_of(resolved.parallelism)
    plain = held.frozen_bytes + held.trained_bytes + held.adapter_bytes
    return (plain + held.quantized_bytes + held.constants_bytes) / weights


def _states_of_later_steps(resolved: Resolved) -> float:
    """Optimizer states that do not exist before the first step."""
    parallelism = resolved.parallelism
    if parallelism.strategy in _ZERO or parallelism.offload is not Offload.NONE:
        return 0.0
    _, _, shards = shards_of(parallelism)
    return persistent(resolved.model, resolved.recipe).state_bytes / shards


def _typical(now: JobEstimate) -> MemoryAnswer:
    """Memory with batches of the usual length."""
    resolved = now.resolved
    batch = resolved.batch
    if not batch.varies or batch.mean_length >= batch.worst_length:
        return now.memory
    usual = replace(batch, worst_length=batch.mean_length, limit_length=batch.mean_length)
    return evaluate_memory(
        resolved.model, resolved.recipe, resolved.parallelism, usual, resolved.accelerator
    )
