"""The stage that the estimate points to, where no log shows one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tuneplan.diagnosis.oom_matches import Match
from tuneplan.diagnosis.oom_stage import IN_A_STEP, Confidence, FoundStage, Stage
from tuneplan.diagnosis.oom_text import Failure, Source
from tuneplan.estimation.memory import Phase
from tuneplan.estimation.persistent import persistent, shards_of
from tuneplan.language import Message, message, sentence
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.evaluating import DEFAULT_CONTEXT_BYTES, MemoryAnswer, evaluate_memory
from tuneplan.planner.oom_situation import (
    evaluates,
    evaluation_of,
    loaded_bytes,
    loads_whole,
)
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.units import format_gib

_ZERO = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)


def stage_by_estimate(
    now: JobEstimate,
    capacity_bytes: int | None,
    failure: Failure | None,
    *,
    in_step: bool = False,
) -> FoundStage:
    """The first moment of the run that does not fit, by the estimate; ``unknown`` where all do.

    ``in_step``: the log shows a training step, so only its moments count.

    Optimizer states of PyTorch's optimizers exist only once a step was made, those of DeepSpeed
    from the beginning (``runtime/zero/stage_1_and_2.py initialize_optimizer_states``), so a job may
    pass its first step and fail in the second. The first batches have the usual length; the
    longest comes later.
    """
    if failure is not None and failure.source is Source.HOST:
        return _of_host(now)
    paged = failure is not None and failure.source is Source.PAGED
    if capacity_bytes is None or paged:
        return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)
    resolved = now.resolved
    room = capacity_bytes - _context(resolved)
    loaded = _loaded_bytes(resolved)
    if loaded > room and not in_step:
        text = sentence("the weights alone take {need} of the {room} that a card has for them")
        return _found(Stage.LOAD, message("weights_alone", text, **_sizes(loaded, room)))
    moments = tuple(_moments(now))
    for stage, size in moments:
        if size > room:
            text = sentence(
                "by the estimate it is the first moment that does not fit: {need} of {room}"
            )
            return _found(stage, message("first_too_large", text, **_sizes(size, room)))
    if not in_step and evaluates(resolved) and evaluation_of(resolved).peak_bytes > room:
        size = evaluation_of(resolved).peak_bytes
        text = sentence("training fits by the estimate, an evaluation does not: {need} of {room}")
        return _found(Stage.EVALUATION, message("evaluation_too_large", text, **_sizes(size, room)))
    if failure is not None:
        return _of_one_that_fits(now, room, moments, in_step=in_step)
    return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)


def _moments(now: JobEstimate) -> Iterator[tuple[Stage, float]]:
    """Allocated bytes of the moments of a run, in their order."""
    typical = dict(_typical(now).by_phase)
    states = _states_of_later_steps(now.resolved)
    yield Stage.FIRST_FORWARD, max(typical[Phase.FORWARD], typical[Phase.LOSS]) - states
    yield Stage.FIRST_BACKWARD, typical[Phase.BACKWARD] - states
    yield Stage.OPTIMIZER_STEP, typical[Phase.OPTIMIZER_STEP]
    yield Stage.LATER, max(size for _, size in now.memory.by_phase)


def _of_one_that_fits(
    now: JobEstimate, room: float, moments: Sequence[tuple[Stage, float]], *, in_step: bool
) -> FoundStage:
    """It did run out, and the likely figures fit: loading in whole, or the range's upper end."""
    resolved = now.resolved
    whole = loaded_bytes(resolved, whole=True)
    if resolved.parallelism.shards_parameters and whole > room and not in_step:
        text = sentence(
            "what is split while training fits by the estimate; a rank that loads the whole model "
            "first needs {need} of {room}"
        )
        return _found(Stage.LOAD, message("whole_on_each", text, **_sizes(whole, room)))
    peak = now.memory.ranges.peak_bytes
    for stage, size in moments:
        high = size * peak.high / peak.likely
        if high > room:
            text = sentence(
                "the first moment of which the estimate's high end does not fit: {need} of {room}"
            )
            return _found(stage, message("first_at_high_end", text, **_sizes(high, room)))
    return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)


def _of_host(now: JobEstimate) -> FoundStage:
    """Main memory: what the processes hold all the time, or with a checkpoint gathered for writing.

    Gathering puts the whole model and its optimizer states on the first rank of a sharded job
    (DeepSpeed ``_zero3_consolidated_16bit_state_dict``, FSDP ``FULL_STATE_DICT``).
    """
    resolved = now.resolved
    cluster = resolved.cluster
    if cluster is None or cluster.host_memory_bytes is None:
        return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)
    room = float(cluster.host_memory_bytes)
    always = now.memory.host_bytes.likely * cluster.accelerators_per_node
    held = persistent(resolved.model, resolved.recipe)
    gathered = held.frozen_bytes + held.quantized_bytes + held.trained_bytes + held.state_bytes
    if always > room:
        text = sentence(
            "by the estimate the processes of a machine need {need} of {room} of main memory"
        )
        return _found(Stage.LOAD, message("host_always", text, **_sizes(always, room)))
    if resolved.parallelism.shards_parameters and always + gathered > room:
        text = sentence(
            "by the estimate a gathered checkpoint makes it {need} of {room} of main memory"
        )
        return _found(Stage.SAVE, message("host_at_save", text, **_sizes(always + gathered, room)))
    return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)


def stage_by_tensor(
    now: JobEstimate, failure: Failure | None, matches: Sequence[Match], *, in_step: bool = False
) -> FoundStage | None:
    """The stage that alone asks for the tensor that was asked for; None where several do.

    What both the engine's start and its step ask for is told apart by what was allocated by then:
    at the step all weights, masters and states are there.
    """
    exact = [match.tensor for match in matches if match.exact]
    if failure is None or not exact:
        return None
    common = set(IN_A_STEP if in_step else Stage)
    for tensor in exact:
        common &= set(tensor.stages)
    common -= {Stage.LATER, Stage.UNKNOWN}
    if common == {Stage.LOAD, Stage.OPTIMIZER_STEP} and failure.allocated is not None:
        there = failure.allocated.size_bytes >= _held_between_steps(now.resolved)
        common = {Stage.OPTIMIZER_STEP if there else Stage.LOAD}
    if len(common) != 1:
        return None
    text = message(
        "tensor_tells",
        "only this moment asks for what was asked for: {tensor}",
        tensor=exact[0].name,
    )
    return FoundStage(stage=common.pop(), confidence=Confidence.MEDIUM, evidence=(text,))


def _held_between_steps(resolved: Resolved) -> float:
    held = persistent(resolved.model, resolved.recipe)
    _, _, shards = shards_of(resolved.parallelism)
    states = 0.0 if resolved.parallelism.offload is not Offload.NONE else held.state_bytes
    return _loaded_bytes(resolved) + (states + held.master_bytes) / shards


def _found(stage: Stage, evidence: Message) -> FoundStage:
    return FoundStage(stage=stage, confidence=Confidence.LOW, evidence=(evidence,))


def _sizes(need: float, room: float) -> dict[str, str]:
    return {"need": format_gib(need), "room": format_gib(room)}


def _context(resolved: Resolved) -> float:
    card = resolved.accelerator
    return float(card.context_bytes) if card else DEFAULT_CONTEXT_BYTES


def _loaded_bytes(resolved: Resolved) -> float:
    return loaded_bytes(resolved, whole=loads_whole(resolved))


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
