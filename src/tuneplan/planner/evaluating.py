"""One resolved configuration evaluated in full: memory by term, fit, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tuneplan.calibration.applying import MemoryPhysics, calibrated_memory, calibrated_step
from tuneplan.calibration.calibrated import Calibration
from tuneplan.calibration.hierarchy import Nearest
from tuneplan.calibration.own import Correction, Own, Place
from tuneplan.calibration.owning import corrected_memory, corrected_step
from tuneplan.calibration.situations import Situation, situation_of
from tuneplan.estimation.batches import (
    BatchShape,
    Padding,
    batch_shape,
    imbalance_factor,
    length_spread,
    sample_lengths,
)
from tuneplan.estimation.breakdown import memory_terms, peak_phase
from tuneplan.estimation.memory import MemoryCount, Phase, assemble
from tuneplan.estimation.operations import Number, Operation
from tuneplan.estimation.optimizer_step import step_operations
from tuneplan.estimation.persistent import persistent
from tuneplan.estimation.replay import replay_job
from tuneplan.estimation.replayed_job import Loading, can_replay, job_of
from tuneplan.estimation.run_time import RunTime, Schedule, run_time
from tuneplan.estimation.split_memory import count_split_memory
from tuneplan.estimation.split_time import split_step_time
from tuneplan.estimation.step_time import StepTime, step_time
from tuneplan.estimation.uncertainty import (
    NO_SPREADS,
    Fit,
    MemoryRanges,
    MemorySpreads,
    Reserving,
    fit_on,
    prior_factors,
)
from tuneplan.estimation.utilization import model_flop_per_token, recompute_flop
from tuneplan.estimation.walking import Walked, walk_model
from tuneplan.frozen import dataclass
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Estimate, Term
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe

# Tokens of a row where neither data nor a length is stated and nothing is cut: what LLaMA-Factory
# cuts at by default (``cutoff_len``), within which most chats and instructions stay.
ORDINARY_LENGTH: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer:
    """Memory of the worst rank.

    Attributes:
        terms: Sum to the likely peak, at ``phase``.
        by_phase: Likely bytes.
        host_bytes: Per rank: offloaded state, the process itself, the loader.
        reserving: What a replay of the allocator said; None where reserved memory is a ratio.
        physics: What the ranges were made from.
        spreads, nearest: What measured runs say of the ranges, and which of them are closest.
        correction: What the user's own runs say.
    """

    physics: MemoryPhysics
    ranges: MemoryRanges
    phase: Phase
    terms: tuple[Term, ...]
    by_phase: tuple[tuple[Phase, float], ...]
    host_bytes: Estimate
    fit: Fit | None
    num_trained: int
    reserving: Reserving | None = None
    spreads: MemorySpreads = NO_SPREADS
    nearest: Nearest | None = None
    correction: Correction | None = None


def shape_of_batch(
    statistics: TokenStatistics | None, recipe: TrainingRecipe, padding: str, *, samples_seen: float
) -> BatchShape:
    """The micro-batch of one rank; full rows where nothing is known of the data.

    Where nothing is known and nothing is cut either, rows have an ordinary length.
    """
    rows = recipe.per_device_train_batch_size * recipe.sequences_per_sample
    if statistics is None or not statistics.num_samples:
        length = float(recipe.max_length)
        if takes_ordinary_length(recipe, padding):
            length = min(length, float(ORDINARY_LENGTH))
        return BatchShape(
            sequences=rows,
            mean_length=length,
            worst_length=length,
            limit_length=length,
            real_tokens=rows * length,
            samples=float(recipe.per_device_train_batch_size),
            sequence_length=length,
            varies=not recipe.packing and padding == Padding.LONGEST,
        )
    return batch_shape(
        statistics,
        max_length=recipe.max_length,
        per_device_batch_size=recipe.per_device_train_batch_size,
        padding=Padding.PACKED if recipe.packing else Padding(padding),
        samples_seen=samples_seen,
        sequences_per_sample=recipe.sequences_per_sample,
    )


def takes_ordinary_length(recipe: TrainingRecipe, padding: str) -> bool:
    """Whether the data alone would decide how long rows are: neither cut, nor filled up."""
    return not (recipe.truncates or recipe.packing or padding == Padding.MAX_LENGTH)


def evaluate_memory(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    batch: BatchShape,
    accelerator: Accelerator | None,
    *,
    loading: Loading | None = None,
    calibration: Calibration | None = None,
    own: Own | None = None,
) -> MemoryAnswer:
    """Memory of the longest micro-batch to expect; the range reaches to the longest possible.

    With ``loading`` the allocator is replayed too (a card that holds the whole job): reserved
    memory and fragmentation come from the replay, not from a ratio. With ``calibration`` the ranges
    come from measured runs, not from priors.
    """
    capability = accelerator.compute_capability if accelerator else None
    held = persistent(model, recipe)

    def walk(length: float, *, record: bool) -> Walked:
        return walk_model(
            model, recipe, parallelism, sequences=float(batch.sequences), length=length,
            record=record,
        )  # fmt: skip

    def count(walked: Walked) -> MemoryCount:
        return assemble(walked, recipe, parallelism, held, capability)

    def split(length: float, *, record: bool) -> MemoryCount:
        return count_split_memory(
            model, recipe, parallelism, sequences=float(batch.sequences), length=length,
            compute_capability=capability, record=record,
        )  # fmt: skip

    longest = None if parallelism.splits_model else walk(batch.worst_length, record=True)
    likely = split(batch.worst_length, record=True) if longest is None else count(longest)
    limit = likely
    if batch.limit_length > batch.worst_length:
        at = batch.limit_length
        limit = split(at, record=False) if longest is None else count(walk(at, record=False))
    context = float(accelerator.context_bytes) if accelerator else DEFAULT_CONTEXT_BYTES
    reserving = None
    if loading is not None and longest is not None and can_replay(parallelism):
        reserving = _reserving(
            model, recipe, parallelism, float(batch.sequences), batch.worst_length,
            varies=batch.varies and not recipe.longest_first, capability=capability,
            loading=loading,
        )  # fmt: skip
    physics = MemoryPhysics(
        likely_bytes=float(likely.peak_bytes),
        limit_bytes=float(limit.peak_bytes),
        prior=prior_factors(model, recipe, parallelism),
        context_bytes=context,
        capacity_bytes=accelerator.capacity_bytes if accelerator else None,
        reserving=reserving,
    )
    situation = situation_of(recipe, parallelism, accelerator)
    found = calibrated_memory(physics, situation, calibration)
    ranges, correction, more = corrected_memory(
        own, place_of(situation, model, batch), found.ranges
    )
    capacity = physics.capacity_bytes
    return MemoryAnswer(
        physics=physics,
        ranges=ranges,
        phase=peak_phase(likely),
        terms=(
            *memory_terms(
                likely, model, recipe, parallelism, tokens=batch.sequences * batch.worst_length
            ),
            *([more] if more else ()),
        ),
        by_phase=tuple((phase, float(size)) for phase, size in likely.by_phase.items()),
        host_bytes=_host(float(likely.host_bytes), model, recipe),
        fit=fit_on(ranges.needed_bytes, capacity) if more and capacity else found.fit,
        num_trained=held.num_trained,
        reserving=reserving,
        spreads=found.spreads,
        nearest=found.nearest,
        correction=correction,
    )


# A page asks about the same memory again where it is time or money that changed.
@lru_cache(maxsize=128, typed=True)
def _reserving(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    sequences: float,
    longest: float,
    *,
    varies: bool,
    capability: float | None,
    loading: Loading,
) -> Reserving:
    """What the replayed allocator reserves, with earlier batches where their length varies."""

    def walk(length: float) -> Walked:
        return walk_model(
            model, recipe, parallelism, sequences=sequences, length=length, record=True
        )

    shorter = [
        walk(max(round(share * longest), 1)) for share in (EARLIER_LENGTHS if varies else ())
    ]
    replay = replay_job(
        job_of(
            walk(longest), recipe, parallelism, compute_capability=capability, loading=loading,
            history=shorter,
        )
    )  # fmt: skip
    return Reserving(
        reserved_bytes=float(replay.peak_reserved_bytes),
        worst_bytes=float(replay.reserved_after_history_bytes),
        fragmentation_bytes=float(replay.fragmentation_bytes),
        varies=varies,
    )


# Lengths of the batches that are played before the longest one, as shares of its own: the last
# alone is the usual history, all of them (each a little too long for what is cached) a bad one.
EARLIER_LENGTHS = (0.6, 0.7, 0.8, 0.9)
DEFAULT_CONTEXT_BYTES = 0.45 * 2**30  # CUDA context where the card is not known


def _host(offloaded_bytes: float, model: ModelArchitecture, recipe: TrainingRecipe) -> Estimate:
    """Per rank: the process (2-6 GB), what is offloaded, and a shard to the whole model on load."""
    whole = float(model.total_parameters * recipe.frozen_dtype.num_bytes)
    shard = min(whole, 5e9)
    return Estimate(
        low=offloaded_bytes + 2e9,
        likely=offloaded_bytes + 4e9 + shard,
        high=offloaded_bytes * 1.2 + 6e9 + max(shard, whole),
        basis=Basis.ASSUMED,
    )


def listed_operations(walked: Walked) -> tuple[Operation, ...]:
    """Operations of a micro-batch with their counts filled in."""
    return tuple(operation.times(float(count)) for operation, count in walked.operations())


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAnswer:
    """One step, and the run where the data is known.

    Attributes:
        nearest: Of the published runs; ``correction`` is what the user's own say.
    """

    step: StepTime
    run: RunTime | None
    tokens_per_s_per_accelerator: Estimate
    mfu_fraction: float | None
    hfu_fraction: float | None
    nearest: Nearest | None = None
    correction: Correction | None = None


def evaluate_step(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
    batch: BatchShape,
    statistics: TokenStatistics | None,
) -> tuple[StepTime, Sequence[Operation]]:
    """Seconds of one optimizer step of average micro-batches, and what they execute."""
    if parallelism.splits_model:
        split, operations = split_step_time(
            model, recipe, parallelism, sequences=float(batch.sequences), length=batch.mean_length,
            cluster=cluster, curves=curves,
        )  # fmt: skip
        return _with_imbalance(split, recipe, parallelism, batch, statistics), operations
    walked = walk_model(
        model, recipe, parallelism, sequences=float(batch.sequences), length=batch.mean_length
    )
    operations = listed_operations(walked)
    per_step = step_operations(persistent(model, recipe), recipe, parallelism)
    step = step_time(
        operations_per_micro_batch=operations,
        operations_per_step=per_step,
        recipe=recipe,
        parallelism=parallelism,
        cluster=cluster,
        curves=curves,
        architecture=model,
    )
    return _with_imbalance(step, recipe, parallelism, batch, statistics), operations


def _with_imbalance(
    step: StepTime,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    batch: BatchShape,
    statistics: TokenStatistics | None,
) -> StepTime:
    """Ranks with fewer tokens wait for the one with most."""
    spread = length_spread(sample_lengths(statistics)) if statistics is not None else 0.0
    share = float(
        imbalance_of(
            parallelism,
            fixed=batch.mean_length >= batch.limit_length,
            samples_per_rank=batch.samples * recipe.gradient_accumulation_steps,
            spread=spread,
        )
    )
    if share <= 0:
        return step
    communication = sum(term.value for term in step.terms if term.kind == "communication")
    offload = sum(term.value for term in step.terms if term.kind == "offload")
    waiting = share * (step.step_s.likely - communication - offload)
    term = Term(
        kind="imbalance",
        value=waiting,
        formula=sentence("(1 + z x spread / sqrt(samples per rank) - 1) x compute"),
        inputs={"share": share, "ranks": parallelism.data},
        source=sentence("order statistics of the ranks' token sums"),
    )
    scale = (step.step_s.likely + waiting) / step.step_s.likely
    return replace(step, step_s=step.step_s.scaled(scale), terms=(*step.terms, term))


def imbalance_of(
    parallelism: Parallelism, *, fixed: bool, samples_per_rank: Number, spread: float
) -> Number:
    """How much longer the slowest rank computes than the mean one, as a share of its time.

    ``fixed`` where every micro-batch has the same positions; ``spread`` of the sample lengths.
    """
    if fixed or parallelism.data == 1 or not spread:
        return 0.0
    factor = imbalance_factor(spread, samples_per_rank=samples_per_rank, ranks=parallelism.data)
    return factor - 1.0


def evaluate_time(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
    batch: BatchShape,
    statistics: TokenStatistics | None,
    schedule: Schedule,
    *,
    checkpoint_bytes: float,
    calibration: Calibration | None = None,
    own: Own | None = None,
) -> TimeAnswer:
    """The step, rates and utilisation; with data the whole run.

    ``own`` are the user's measurements, which go before the calibration by published runs.
    """
    physics, operations = evaluate_step(
        model, recipe, parallelism, cluster, curves, batch, statistics
    )
    situation = situation_of(recipe, parallelism, cluster.accelerator)
    step, nearest = calibrated_step(calibration, situation, physics)
    correction = None
    if own is not None:
        step, correction = corrected_step(own, place_of(situation, model, batch), step)
    per_token = model_flop_per_token(model, recipe, sequence_length=batch.sequence_length)
    again = recompute_flop(operations) / batch.positions if batch.positions else 0.0
    peak = _peak_flop_per_s(cluster.accelerator, recipe)
    positions = batch.positions * recipe.gradient_accumulation_steps * parallelism.data
    capacity = step.step_s.likely * cluster.num_accelerators * peak if peak else None
    run = None
    if statistics is not None and statistics.num_samples:
        run = run_time(
            step=step,
            batch=batch,
            num_samples=statistics.num_samples,
            num_eval_samples=statistics.num_eval_samples,
            recipe=recipe,
            parallelism=parallelism,
            cluster=cluster,
            schedule=schedule,
            checkpoint_bytes=checkpoint_bytes,
            model_bytes=float(model.total_parameters * recipe.frozen_dtype.num_bytes),
            model_flop_per_token=per_token,
            recompute_flop_per_token=again,
            peak_flop_per_s=peak,
        )
    rate = positions / cluster.num_accelerators
    return TimeAnswer(
        step=step,
        run=run,
        tokens_per_s_per_accelerator=Estimate(
            low=rate / step.step_s.high,
            likely=rate / step.step_s.likely,
            high=rate / step.step_s.low,
            basis=step.step_s.basis,
        ),
        mfu_fraction=per_token * positions / capacity if capacity else None,
        hfu_fraction=(per_token + again) * positions / capacity if capacity else None,
        nearest=nearest,
        correction=correction,
    )


def place_of(situation: Situation, model: ModelArchitecture, batch: BatchShape) -> Place:
    """A job among those that the user has measured."""
    return Place(
        situation=situation,
        parameters=float(model.total_parameters),
        micro_batch_tokens=float(batch.positions),
        length=float(batch.sequence_length),
    )


def _peak_flop_per_s(accelerator: Accelerator, recipe: TrainingRecipe) -> float | None:
    return accelerator.peak_flop_per_s(recipe.compute_dtype)
