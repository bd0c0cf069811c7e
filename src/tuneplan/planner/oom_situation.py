"""What is known of a job that ran out of memory: the estimate, the log's figures, the limit."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property

from tuneplan.diagnosis.oom_cause import FoundCause, JobNeeds
from tuneplan.diagnosis.oom_evaluation import EvaluationMemory, evaluation_memory
from tuneplan.diagnosis.oom_stage import FoundStage, Stage
from tuneplan.diagnosis.oom_text import Failure, Source
from tuneplan.estimation.persistent import persistent, shards_of
from tuneplan.estimation.uncertainty import FRAGMENTATION, Fit, fit_on
from tuneplan.frozen import dataclass
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.estimate import (
    JobEstimate,
    estimate_job,
    fit_on_card,
    memory_by_formula,
    resolve_job,
)
from tuneplan.planner.evaluating import DEFAULT_CONTEXT_BYTES
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.stated import StatedJob

_HALF_BYTES = 2
# Of the limit: between these a replay may find what a ratio of fragmentation does not.
_NEAR = (0.8, 1.02)


@dataclass(frozen=True)
class Situation:
    """A job that ran out of memory.

    Attributes:
        now: The estimate of the job as it is.
        capacity_bytes: Of the card: as the log says, else as the catalogue does; None = unknown.
        tried: Sets of changes that were tried, by their identities, and what the job then needs
            (None = too much).
    """

    job: StatedJob
    now: JobEstimate
    sources: Sources
    failure: Failure | None
    stage: FoundStage
    cause: FoundCause
    capacity_bytes: int | None
    tried: dict[tuple[int, ...], Estimate | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def resolved(self) -> Resolved:
        """The job without blanks."""
        return self.now.resolved

    @property
    def dataset(self) -> Dataset:
        """The data, read once."""
        return self.now.resolved.dataset

    @property
    def limit_bytes(self) -> float | None:
        """What the job may need so that the head-room stays free."""
        if self.capacity_bytes is None:
            return None
        return self.capacity_bytes * (1 - self.job.limits.headroom_fraction)

    @cached_property
    def needed_bytes(self) -> Estimate:
        """What the job needs on the card, never less than what it was seen to ask for."""
        return self._as_seen(self.estimated_now)

    def _as_seen(self, estimated: Estimate) -> Estimate:
        seen = self.seen_bytes
        if seen is None or seen <= estimated.likely:
            return estimated
        return replace(_at_least(estimated, seen), basis=Basis.MEASURED)

    @property
    def seen_bytes(self) -> float | None:
        """The least that the job needs on the card, as its failure shows."""
        failure = self.failure
        if failure is None or failure.source in (Source.HOST, Source.PAGED):
            return None
        if failure.allocated is None or failure.requested is None:
            return float(self.capacity_bytes) if self.capacity_bytes else None
        outside = _context(self.resolved)
        if failure.process_bytes is not None and failure.reserved is not None:
            outside = max(failure.process_bytes - failure.reserved.size_bytes, 0)
        return float(failure.allocated.size_bytes + failure.requested.size_bytes + outside)

    @property
    def is_known(self) -> bool:
        """Whether it is known how much is missing: by the log's figures, or by the estimate.

        Where the estimate says that the job fits and the log has no figures, it is not.
        """
        failure = self.failure
        if failure is None or failure.source in (Source.HOST, Source.PAGED):
            return True
        if failure.allocated is not None and failure.requested is not None:
            return True
        return self.capacity_bytes is not None and not self.suffices(self.estimated_now)

    @property
    def fits_by_estimate(self) -> bool:
        """Whether the estimate alone sees no shortage."""
        return self.suffices(self.needed_bytes)

    def fit_of(self, needed: Estimate, capacity_bytes: int | None = None) -> Fit | None:
        """The verdict of `check` and `estimate` on a need; None where no capacity is known.

        Args:
            needed: What a job needs on a card.
            capacity_bytes: Of another card than the one at hand.
        """
        capacity = capacity_bytes or self.capacity_bytes
        return None if capacity is None else fit_on(needed, capacity)

    def suffices(self, needed: Estimate, capacity_bytes: int | None = None) -> bool:
        """Whether a job with this need surely fits and keeps the head-room."""
        fit = self.fit_of(needed, capacity_bytes)
        return fit is not None and fit.keeps(self.job.limits.headroom_fraction)

    def after(self, job: StatedJob) -> Estimate:
        """What a changed job needs: what is needed now less what the estimates differ by.

        Raises:
            InputError: The changed job cannot be.
        """
        return self.less(self._needed(resolve_job(job, self.sources, dataset=self.dataset)))

    def _needed(self, resolved: Resolved, training: Estimate | None = None) -> Estimate:
        """By the formulas; where it was loading that failed, loading has to fit too.

        ``training`` is what the steps need, where it is known better.
        """
        training = training or memory_by_formula(resolved).ranges.needed_bytes
        total = needed(resolved, training, self.stage)
        if self.stage.stage is not Stage.LOAD:
            return total
        loading = loaded_bytes(resolved, whole=self.seems_whole(resolved)) + _context(resolved)
        return total if loading <= total.likely else _at_least(total, loading)

    def seems_whole(self, resolved: Resolved) -> bool:
        """Whether each rank loads the whole model: by what is known, or as its failure shows."""
        same = resolved.parallelism.strategy is self.resolved.parallelism.strategy
        return loads_whole(resolved) or (same and resolved.parallelism.shards_parameters)

    def less(self, then: Estimate) -> Estimate:
        """The same for an estimate of the changed job that is made already."""
        saved = saving(self.by_formula, then)
        have = self._as_seen(self.by_formula)
        after = sorted(
            max(value, 0.0)
            for value in (
                have.low - saved.low,
                have.likely - saved.likely,
                have.high - saved.high,
            )
        )
        return Estimate(low=after[0], likely=after[1], high=after[2], basis=Basis.ANALYTIC)

    @cached_property
    def estimated_now(self) -> Estimate:
        """What the estimate says that the job needs, whatever was seen."""
        return self._needed(self.resolved, self.now.memory.ranges.needed_bytes)

    @cached_property
    def by_formula(self) -> Estimate:
        """The same without a replay of the allocator: what changed jobs are compared with."""
        return self._needed(self.resolved)

    def estimate(self, job: StatedJob) -> JobEstimate:
        """The changed job in full.

        Raises:
            InputError: The changed job cannot be.
        """
        return estimate_job(job, self.sources, dataset=self.dataset)

    def needed_of(self, estimate: JobEstimate) -> Estimate:
        """What a changed job needs, from its estimate in full."""
        return self._needed(estimate.resolved)

    def replayed(self, job: StatedJob) -> Estimate:
        """What a changed job needs, with the allocator replayed: as an estimate of it says.

        Where the run asked for more than was estimated, it asks for as much more here.

        Raises:
            InputError: The changed job cannot be.
        """
        then = estimate_job(job, self.sources, dataset=self.dataset, replays=True)
        need = self._needed(then.resolved, then.memory.ranges.needed_bytes)
        return self._as_much_more(need)

    def on_card(self, accelerator: Accelerator) -> Estimate:
        """What the job as it is needs on another card, with the same history of the allocator."""
        fit = fit_on_card(self.now.memory, accelerator)
        return self._as_much_more(self._needed(self.resolved, fit.needed_bytes))

    def _as_much_more(self, need: Estimate) -> Estimate:
        more = max(self.needed_bytes.likely - self.estimated_now.likely, 0.0)
        return Estimate(
            low=need.low + more, likely=need.likely + more, high=need.high + more, basis=need.basis
        )

    def is_near(self, fit: Fit) -> bool:
        """Whether a need by formula is so near the edge that a replay decides."""
        share = fit.needed_bytes.likely / fit.capacity_bytes
        limit = 1 - self.job.limits.headroom_fraction
        return _NEAR[0] * limit <= share <= _NEAR[1] * limit


def _at_least(estimate: Estimate, least: float) -> Estimate:
    return Estimate(
        low=max(estimate.low, least),
        likely=max(estimate.likely, least),
        high=max(estimate.high, least),
        basis=estimate.basis,
    )


def loaded_bytes(resolved: Resolved, *, whole: bool) -> float:
    """What one rank holds while the model is loaded, before anything is trained.

    A quantised matrix passes through the card in half precision first. ``whole``: the rank loads
    all of it, whatever the layout.
    """
    held = persistent(resolved.model, resolved.recipe)
    if resolved.parallelism.offload is Offload.PARAMS and not whole:
        return 0.0
    weights = 1 if whole else shards_of(resolved.parallelism)[0]
    plain = held.frozen_bytes + held.trained_bytes + held.adapter_bytes
    split = (plain + held.quantized_bytes) / weights
    return split + held.constants_bytes + held.largest_quantized * _HALF_BYTES


def saving(before: Estimate, after: Estimate) -> Estimate:
    """The difference of two estimates of nearly the same job: they are off by the same share."""
    differences = sorted(
        (before.low - after.low, before.likely - after.likely, before.high - after.high)
    )
    likely = before.likely - after.likely
    return Estimate(
        low=min(differences[0], likely),
        likely=likely,
        high=max(differences[2], likely),
        basis=Basis.ANALYTIC,
    )


def needed(resolved: Resolved, training: Estimate, stage: FoundStage) -> Estimate:
    """Training or evaluation, whichever needs more; in an evaluation that failed, evaluation."""
    if not evaluates(resolved) and stage.stage is not Stage.EVALUATION:
        return training
    peak = evaluation_of(resolved).peak_bytes
    context = _context(resolved)
    spread = training.low / training.likely, training.high / training.likely
    likely = peak * (1 + FRAGMENTATION.likely) + context
    evaluation = Estimate(
        low=likely * spread[0], likely=likely, high=likely * spread[1], basis=Basis.ANALYTIC
    )
    if stage.stage is Stage.EVALUATION:
        return evaluation
    return evaluation if evaluation.likely > training.likely else training


def loads_whole(resolved: Resolved) -> bool:
    """Whether each rank loads the whole model although the layout splits it.

    ZeRO-3 splits a model while it is loaded (``deepspeed.zero.Init``), but not a quantised one:
    transformers 4.31 to 5 ``modeling_utils.py get_init_context``, ``is_quantized``.
    """
    zero3 = resolved.parallelism.strategy is Strategy.ZERO3
    return zero3 and resolved.recipe.quantization is not None


def evaluates(resolved: Resolved) -> bool:
    """Whether the job evaluates on held-out samples."""
    training, statistics = resolved.job.recipe.training, resolved.dataset.statistics
    if training.eval_strategy == "no":
        return False
    stated = training.eval_strategy or training.eval_steps or training.per_device_eval_batch_size
    return bool(stated) or bool(statistics and statistics.num_eval_samples)


def evaluation_of(resolved: Resolved) -> EvaluationMemory:
    """Memory of the largest evaluation batch."""
    accelerator = resolved.accelerator
    return evaluation_memory(
        resolved.model,
        resolved.recipe,
        resolved.parallelism,
        sequences=float(
            resolved.schedule.per_device_eval_batch_size * resolved.recipe.sequences_per_sample
        ),
        length=resolved.batch.worst_length,
        compute_capability=accelerator.compute_capability if accelerator else None,
    )


def _context(resolved: Resolved) -> float:
    accelerator = resolved.accelerator
    return float(accelerator.context_bytes) if accelerator else DEFAULT_CONTEXT_BYTES


def needs_of(now: JobEstimate, capacity_bytes: int | None, stage: FoundStage) -> JobNeeds:
    """The figures that tell a cause where no message does."""
    resolved = now.resolved
    cluster = resolved.cluster
    ranks = cluster.accelerators_per_node if cluster else 1
    held = persistent(resolved.model, resolved.recipe)
    total = needed(resolved, now.memory.ranges.needed_bytes, stage)
    return JobNeeds(
        needed_bytes=total.likely,
        needed_low_bytes=total.low,
        capacity_bytes=capacity_bytes,
        host_low_bytes=now.memory.host_bytes.low * ranks,
        host_capacity_bytes=cluster.host_memory_bytes if cluster else None,
        paged_bytes=held.paged_state_bytes / shards_of(resolved.parallelism)[2],
    )


def with_training(job: StatedJob, **changes: object) -> StatedJob:
    """The job with other training keys."""
    changed = replace(job.recipe.training, **changes)  # type: ignore[arg-type]
    return replace(job, recipe=replace(job.recipe, training=changed))
