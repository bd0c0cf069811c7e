"""Seconds of a step under tensor, pipeline, context and expert parallelism.

The slowest stage sets the pace: micro-batches x (its compute + what it exchanges), then the bubble
(what the other stages compute before it starts and after it ends, over the virtual stages),
transfers between stages, and the data ranks' gradients. Equations: Narayanan et al. 2021
(section 3), Korthikanti et al. 2022 (section 4.2); how much of each exchange runs beside compute
is a constant with its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tuneplan.estimation.communication import communication_term
from tuneplan.estimation.groups import (
    all_to_all_time_s,
    cluster_of,
    context_group,
    data_group,
    expert_group,
    group_time_s,
    tensor_group,
    transfer_time_s,
)
from tuneplan.estimation.operations import Operation, OperationKind
from tuneplan.estimation.optimizer_step import step_operations
from tuneplan.estimation.sharded_units import communication_units
from tuneplan.estimation.split_memory import held_by, walk_stage
from tuneplan.estimation.splitting import Stage, stages_of
from tuneplan.estimation.step_time import (
    ComputeTime,
    StepTime,
    compute_terms,
    compute_time,
    host_factors,
    host_term,
    prior_width,
)
from tuneplan.frozen import dataclass
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Estimate, Term
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import Attention, MixtureOfExperts
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, TrainingRecipe

# What is left to wait for where products run in pieces beside the exchange of the pieces before
# (Transformer Engine's user buffers): 0.27 to 0.32 of the isolated time fitted published NeMo runs.
OVERLAPPED_TENSOR_SHARE: Final = 0.3
# Gradients reduced and parameters gathered beside the first backward and forward: 0.41 of the
# isolated time was seen in published Megatron runs.
OVERLAPPED_DATA_SHARE: Final = 0.41
_FORMULAS: Final = {
    "tensor_exchange": sentence(
        "micro_batches x sum(blocks x collectives x isolated time x exposed share)"
    ),
    "context_exchange": sentence("micro_batches x layers x rings x all-gather of keys and values"),
    "expert_exchange": sentence(
        "micro_batches x mixtures x all-to-alls x time of tokens x experts each"
    ),
    "stage_transfers": sentence(
        "(micro_batches + stages - 1) x 2 x time of a micro-batch's hidden states"
    ),
    "pipeline_bubble": sentence(
        "(sum over the other stages of one micro-batch's time) / virtual_stages"
    ),
}
_SOURCES: Final = {
    "tensor_exchange": "Korthikanti et al. 2022, section 4.2; Megatron-LM tensor_parallel/layers",
    "context_exchange": "Transformer Engine attention.py, ring of keys and values",
    "expert_exchange": "Megatron-LM core/transformer/moe/token_dispatcher.py",
    "stage_transfers": "Megatron-LM core/pipeline_parallel/p2p_communication.py",
    "pipeline_bubble": "Narayanan et al. 2021, section 2.2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """What one rank of a stage spends on a step, without the others.

    Attributes:
        exchanges: Seconds of a micro-batch by kind of exchange.
    """

    stage: Stage
    operations: tuple[Operation, ...]
    compute: ComputeTime
    exchanges: dict[str, float]
    micro_batches: int

    @property
    def micro_batch_s(self) -> float:
        """Of one micro-batch, the optimizer's share of a step left in."""
        return float(np.asarray(self.compute.total_s)) / self.micro_batches + sum(
            self.exchanges.values()
        )


def split_step_time(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: float,
    length: float,
    cluster: Cluster,
    curves: ChipCurves,
) -> tuple[StepTime, Sequence[Operation]]:
    """One optimizer step, its terms and range; what a model replica executes a micro-batch.

    Layers spread over the cards of one process compute one after the other, as on one card, and
    hand their hidden states on.
    """
    in_turn = parallelism.strategy is Strategy.DEVICE_MAP
    timed = replace(parallelism, pipeline=1) if in_turn else parallelism
    stages = [
        _stage_time(stage, recipe, timed, sequences, length, cluster, curves)
        for stage in stages_of(model, timed)
    ]
    slowest = max(stages, key=lambda stage: stage.micro_batch_s)
    terms = [
        *compute_terms(slowest.compute, recipe, curves),
        *_exchange_terms(stages, slowest, recipe, parallelism, sequences * length, cluster),
        _data_term(slowest.stage, recipe, parallelism, cluster, curves),
        host_term(recipe),
    ]
    kept = tuple(term for term in terms if term.value > 0)
    likely = sum(term.value for term in kept)
    shares = {term.kind: term.value / likely for term in kept}
    low, high = prior_width(
        curves, parallelism, cluster, shares, host=host_factors(slowest.compute, likely)
    )
    step = StepTime(
        step_s=Estimate(low=likely * low, likely=likely, high=likely * high, basis=curves.basis),
        terms=kept,
        forward_s=float(np.asarray(slowest.compute.forward_s)) * timed.pipeline,
        launch_share=shares.get("launch", 0.0),
    )
    ranks = timed.model_ranks
    whole = tuple(replace(one, count=one.count * ranks) for one in slowest.operations)
    return step, whole


def _stage_time(
    stage: Stage,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    sequences: float,
    length: float,
    cluster: Cluster,
    curves: ChipCurves,
) -> StageTime:
    walked = walk_stage(stage, recipe, parallelism, sequences=sequences, length=length)
    operations = tuple(
        replace(one, count=float(count) * _rounds(one, parallelism))
        for one, count in walked.operations()
    )
    held = held_by(stage, recipe, parallelism)
    tokens = sequences * length / parallelism.context
    return StageTime(
        stage=stage,
        operations=operations,
        compute=compute_time(
            operations, step_operations(held, recipe, parallelism), recipe, curves
        ),
        exchanges=_exchanges(stage, recipe, parallelism, tokens, cluster, curves),
        micro_batches=recipe.gradient_accumulation_steps,
    )


def _rounds(operation: Operation, parallelism: Parallelism) -> int:
    """A context rank's queries meet the keys of every rank, one after the other.

    Half of the meetings are masked, evenly among the ranks: as many causal squares of a rank's
    length as there are ranks.
    """
    return parallelism.context if operation.kind is OperationKind.ATTENTION else 1


def _exchanges(
    stage: Stage,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    tokens: float,
    cluster: Cluster,
    curves: ChipCurves,
) -> dict[str, float]:
    """Seconds of one micro-batch that a stage spends on exchanges inside its layers."""
    again = recipe.gradient_checkpointing is not Checkpointing.NONE
    width = recipe.hidden_dtype.num_bytes
    hidden = tokens * stage.model.hidden_size * width
    found: dict[str, float] = {}
    if parallelism.tensor > 1:
        found["tensor_exchange"] = _tensor_s(stage, recipe, parallelism, hidden, cluster, curves)
    if parallelism.context > 1:
        group = context_group(parallelism)
        rings = 3 + (again or recipe.recomputes_attention)  # keys and values; twice back: gradients
        found["context_exchange"] = sum(
            rings
            * entry.count
            * group_time_s(
                "all_gather",
                tokens * parallelism.context * (mixer.key_size + mixer.value_size) * width,
                group, cluster, curves,
            )
            for entry in stage.model.groups
            if isinstance(mixer := entry.layer.mixer, Attention)
        )  # fmt: skip
    if parallelism.expert > 1:
        group = expert_group(parallelism)
        passes = 6 if again else 4  # to the experts and back, forward and backward
        found["expert_exchange"] = sum(
            passes
            * entry.count
            * all_to_all_time_s(hidden * block.num_experts_per_tok, group, cluster, curves)
            for entry in stage.model.groups
            if isinstance(block := entry.layer.feed_forward, MixtureOfExperts)
        )
    return found


def _tensor_s(
    stage: Stage,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    hidden_bytes: float,
    cluster: Cluster,
    curves: ChipCurves,
) -> float:
    """Seconds of the tensor ranks' exchange in one micro-batch.

    A block: one all-reduce forward and one backward, or (with shared positions) a gather before
    and a scatter after it each way, and one more gather for the gradients of its weights.
    """
    group = tensor_group(parallelism)
    again = recipe.gradient_checkpointing is not Checkpointing.NONE
    blocks = sum(
        entry.count * ((entry.layer.mixer is not None) + (entry.layer.feed_forward is not None))
        for entry in stage.model.groups
    )
    ends = 1 + (stage.has_head and stage.model.token_embedding.shape[0] > 0)  # embedding, head

    def time_s(kind: str) -> float:
        return group_time_s(kind, hidden_bytes, group, cluster, curves)

    if parallelism.sequence:
        trains = not recipe.method.uses_adapter
        passes = 2 + again
        gathers = blocks * (passes + trains) + 2 * ends
        whole = gathers * time_s("all_gather") + blocks * passes * time_s("reduce_scatter")
    else:
        whole = (blocks * (2 + again) + ends) * time_s("all_reduce")
    return whole * (OVERLAPPED_TENSOR_SHARE if parallelism.overlap_tensor else 1.0)


def _exchange_terms(
    stages: list[StageTime],
    slowest: StageTime,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    tokens: float,
    cluster: Cluster,
) -> list[Term]:
    micro_batches = recipe.gradient_accumulation_steps
    inputs = {
        "micro_batches": micro_batches,
        "tensor": parallelism.tensor,
        "pipeline": parallelism.pipeline,
        "context": parallelism.context,
        "expert": parallelism.expert,
        "virtual_stages": parallelism.virtual_stages,
        "sequence_parallel": parallelism.sequence,
    }
    values = {kind: micro_batches * seconds for kind, seconds in slowest.exchanges.items()}
    if parallelism.strategy is Strategy.DEVICE_MAP:
        values["stage_transfers"] = (parallelism.pipeline - 1) * _transfers_s(
            recipe, replace(parallelism, pipeline=2), tokens, slowest, cluster
        )
    elif parallelism.pipeline > 1:
        others = sum(stage.stage.count * stage.micro_batch_s for stage in stages)
        values["pipeline_bubble"] = (others - slowest.micro_batch_s) / parallelism.virtual_stages
        values["stage_transfers"] = _transfers_s(recipe, parallelism, tokens, slowest, cluster)
    return [
        Term(
            kind=kind,
            value=value,
            formula=_FORMULAS[kind],
            inputs=inputs,
            source=_SOURCES[kind],
            basis=Basis.ANALYTIC,
        )
        for kind, value in values.items()
    ]


def _transfers_s(
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    tokens: float,
    slowest: StageTime,
    cluster: Cluster,
) -> float:
    """Seconds of hidden states forward and gradients back; each tensor rank sends its share.

    Overlapped ones cost only while the pipeline fills and drains.
    """
    hidden = tokens / parallelism.context * slowest.stage.model.hidden_size
    size = hidden * recipe.hidden_dtype.num_bytes / parallelism.tensor
    each = 2 * transfer_time_s(size, parallelism, cluster)
    fill = (parallelism.pipeline - 1) * each
    if parallelism.overlap_transfers:
        return fill
    return recipe.gradient_accumulation_steps * parallelism.virtual_stages * each + fill


def _data_term(
    stage: Stage,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
) -> Term:
    """Gradients and parameters of the data ranks that hold the same part."""
    group = data_group(parallelism)
    alone = replace(
        parallelism, data=group.ranks, tensor=1, pipeline=1, context=1, expert=1,
    )  # fmt: skip
    units = communication_units(stage.model, recipe)
    term = communication_term(units, recipe, alone, cluster_of(group, cluster), curves)
    overlaps = recipe.gradient_buffer and parallelism.overlap_communication
    share = OVERLAPPED_DATA_SHARE if overlaps else 1.0
    return replace(
        term,
        value=term.value * share,
        inputs={**term.inputs, "overlapped_share": share},
        parts=tuple(replace(part, value=part.value * share) for part in term.parts),
    )
