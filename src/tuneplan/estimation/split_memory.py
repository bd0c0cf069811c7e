"""Memory of the worst rank under tensor, pipeline, context and expert parallelism.

A rank counts as a whole model does (``splitting``: its part is a model); on top come micro-batches
in flight and the buffers of exchanged activations. The worst is the first stage, which has the
most micro-batches in flight, or the last, which has head and loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tuneplan.estimation.head import HeadProfile
from tuneplan.estimation.memory import MemoryCount, assemble
from tuneplan.estimation.operations import Number
from tuneplan.estimation.persistent import Persistent, persistent
from tuneplan.estimation.splitting import Position, Stage, stages_of
from tuneplan.estimation.walking import Walked, walk_model
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import Attention, MixtureOfExperts
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.weights import WeightKind

NO_HEAD: Final = HeadProfile(forward_peak=0.0, backward_peak=0.0, gradients=0.0, held_logits=0.0)


def count_split_memory(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: Number,
    length: Number,
    compute_capability: float | None = None,
    record: bool = False,
) -> MemoryCount:
    """Allocated memory of the worst rank for micro-batches of ``sequences x length`` tokens.

    Where nothing is split this is ``memory.count_memory``. Arguments as for ``walk_model``.
    """
    counts = [
        count_stage(
            stage, recipe, parallelism, sequences=sequences, length=length,
            compute_capability=compute_capability, record=record,
        )
        for stage in stages_of(model, parallelism)
        if stage.position is not Position.MIDDLE
    ]  # fmt: skip
    return max(counts, key=lambda count: float(np.max(count.peak_bytes)))


def count_stage(
    stage: Stage,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: Number,
    length: Number,
    compute_capability: float | None = None,
    record: bool = False,
) -> MemoryCount:
    """Allocated memory of one rank of a stage."""
    walked = walk_stage(
        stage, recipe, parallelism, sequences=sequences, length=length, record=record
    )
    held = held_by(stage, recipe, parallelism)
    more = _in_flight(stage, walked, recipe, parallelism) | _buffers(walked, recipe, parallelism)
    return assemble(walked, recipe, parallelism, held, compute_capability, more)


def walk_stage(
    stage: Stage,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: Number,
    length: Number,
    record: bool = False,
) -> Walked:
    """One micro-batch on one rank of a stage: its layers, its share of every sequence."""
    walked = walk_model(
        stage.model,
        recipe,
        parallelism,
        sequences=sequences,
        length=length / parallelism.context,
        record=record,
    )
    return walked if stage.has_head else replace(walked, head=NO_HEAD)


def held_by(stage: Stage, recipe: TrainingRecipe, parallelism: Parallelism) -> Persistent:
    """Weights, gradients and states of one rank of a stage, before the data ranks share them.

    The states of experts are shared by the data ranks that hold the same ones, ``expert`` times
    fewer: as much as if all experts stood here and all data ranks shared them.
    """
    held = persistent(stage.model, recipe)
    if parallelism.expert > 1 and parallelism.shards_optimizer:
        share = _whole_experts(stage.model, recipe, parallelism.expert)
        return replace(
            held,
            state_bytes=held.state_bytes + share.state_bytes,
            master_bytes=held.master_bytes + share.master_bytes,
        )
    return held


def _whole_experts(model: ModelArchitecture, recipe: TrainingRecipe, expert: int) -> Persistent:
    """What the states of the other expert ranks' experts come to."""
    dense = persistent(_without_experts(model), recipe)
    own = persistent(model, recipe)
    others = expert - 1
    return Persistent(
        state_bytes=others * (own.state_bytes - dense.state_bytes),
        master_bytes=others * (own.master_bytes - dense.master_bytes),
    )


def _without_experts(model: ModelArchitecture) -> ModelArchitecture:
    groups = []
    for group in model.groups:
        block = group.layer.feed_forward
        if isinstance(block, MixtureOfExperts):
            kept = tuple(one for one in block.weights if one.kind is not WeightKind.EXPERTS)
            layer = replace(group.layer, feed_forward=replace(block, weights=kept))
            group = replace(group, layer=layer)
        groups.append(group)
    return replace(model, groups=tuple(groups))


def in_flight(position: Position, parallelism: Parallelism, micro_batches: int) -> float:
    """Micro-batches whose activations one stage holds at most.

    One forward, one backward: a stage starts as many forwards as there are stages behind it before
    its first backward. Interleaved: ``2 (p - 1 - i) + (v - 1) p + 1`` pieces of a stage's layers
    (Narayanan et al. 2021, section 2.2; Megatron-LM ``core/pipeline_parallel/schedules.py``).
    """
    stages, virtual = parallelism.pipeline, parallelism.virtual_stages
    if parallelism.strategy is Strategy.DEVICE_MAP or stages == 1:
        return 1.0
    behind = stages - 1 if position is Position.FIRST else 0
    if virtual == 1:
        return float(min(behind + 1, micro_batches))
    pieces = 2 * behind + (virtual - 1) * stages + 1
    return min(pieces, micro_batches * virtual) / virtual


def _in_flight(
    stage: Stage, walked: Walked, recipe: TrainingRecipe, parallelism: Parallelism
) -> dict[str, Number]:
    number = in_flight(stage.position, parallelism, recipe.gradient_accumulation_steps)
    kept: Number = walked.entry.kept
    for group, profile in walked.groups:
        kept = kept + group.count * profile.kept
    return {"in_flight_activations": max(number - 1.0, 0.0) * kept}


def _buffers(walked: Walked, recipe: TrainingRecipe, parallelism: Parallelism) -> dict[str, Number]:
    """Gathered positions (one buffer for all layers), neighbours' keys, what stages exchange."""
    width = recipe.hidden_dtype.num_bytes
    hidden = walked.tokens * walked.model.hidden_size * width
    found: dict[str, Number] = {}
    if parallelism.sequence and parallelism.tensor > 1:
        found["sequence_buffer"] = hidden
    if parallelism.context > 1:
        mixers = [group.layer.mixer for group, _ in walked.groups]
        sizes = [one.key_size + one.value_size for one in mixers if isinstance(one, Attention)]
        found["context_buffer"] = 2 * walked.tokens * max(sizes, default=0) * width
    if parallelism.pipeline > 1 and parallelism.strategy is not Strategy.DEVICE_MAP:
        share = parallelism.tensor if parallelism.sequence else 1
        found["stage_buffer"] = 2 * hidden / share
    return found
