"""Use-case: what ran out of memory, and the fixes in the order of what they cost on this job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuneplan.diagnosis.oom_cause import Cause, FoundCause, cause_of
from tuneplan.diagnosis.oom_matches import Match, is_a_pool_block, matches, perhaps_logits
from tuneplan.diagnosis.oom_stage import FoundStage, Stage, is_in_step, stage_of_log
from tuneplan.diagnosis.oom_tensors import Batch, tensors_of
from tuneplan.diagnosis.oom_text import Failure, Log
from tuneplan.errors import NotSupported
from tuneplan.estimation.persistent import persistent
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.change import Lever
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.importing import Configuration, in_own_words
from tuneplan.planner.oom_cards import larger_card_lever, more_cards_lever
from tuneplan.planner.oom_changes import levers
from tuneplan.planner.oom_host import host_levers
from tuneplan.planner.oom_notices import on_configuration, on_job, on_log
from tuneplan.planner.oom_ranking import Combination, Fix, combine, judge, judge_change, rank
from tuneplan.planner.oom_situation import Situation, needs_of
from tuneplan.planner.oom_staging import stage_by_estimate, stage_by_tensor
from tuneplan.planner.oom_without_job import general_fixes
from tuneplan.planner.resolving import told_by_line
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Assumption, Estimate, Notice
from tuneplan.spec.recipe import LossPath
from tuneplan.spec.stated import StatedJob

_KEPT_BATCHES = 64  # evaluation batches whose joined logits are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What ran out, and what helps.

    Attributes:
        now: The estimate of the job; None without a job.
        failure: What the log says; None without a log, or where it says nothing of memory.
        capacity_bytes: Of the card, by the log, else by the catalogue.
        needed_bytes: What the job needs on the card; None without a job.
        card_too_small: Whether nothing lets the job fit on these cards; None where nothing tells.
    """

    now: JobEstimate | None
    failure: Failure | None
    num_failures: int
    stage: FoundStage
    cause: FoundCause
    capacity_bytes: int | None
    needed_bytes: Estimate | None
    matches: tuple[Match, ...]
    fixes: tuple[Fix, ...]
    smallest_combination: Combination | None
    card_too_small: bool | None
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]


def diagnose_log(log: Log) -> Diagnosis:
    """What a log alone tells: stage, cause, figures, and the fixes that may help, unmeasured."""
    stage, failure = stage_of_log(log), log.failure
    cause = cause_of(failure, None)
    notices = [*on_log(log), Notice(message=_NO_JOB)]
    return Diagnosis(
        now=None,
        failure=failure,
        num_failures=len(log.failures),
        stage=stage,
        cause=cause,
        capacity_bytes=_capacity_of(failure),
        needed_bytes=None,
        matches=(),
        fixes=general_fixes(stage.stage, cause.cause, failure) if failure else (),
        smallest_combination=None,
        card_too_small=None,
        assumptions=(),
        notices=tuple(notices),
    )


_NO_JOB = message(
    "no_job",
    "without the job nothing can be said of what each fix saves, of the tensor that was asked for, "
    "and of what is enough: give its job file or configuration too",
)


def diagnose(
    configuration: Configuration, sources: Sources, *, log: Log | None = None
) -> Diagnosis:
    """``diagnose_job`` of a configuration, with what of it could not be carried over.

    A job that is right but has no formula is told of by its log alone.

    Raises:
        InputError: As ``diagnose_job``, at the keys and lines of the user's own files.
    """
    with in_own_words(configuration):
        try:
            found = diagnose_job(configuration.job, sources, log=log)
        except NotSupported as error:
            if log is None or log.failure is None:
                raise
            found = _without_formula(log, error)
    return replace(found, notices=(*on_configuration(configuration), *found.notices))


def _without_formula(log: Log, error: NotSupported) -> Diagnosis:
    """The log alone, where a job is right but nothing here can estimate it."""
    text = message(
        "job_without_formula",
        "the job has no estimate, so the log alone is told of: {reason}",
        reason=error.message,
    )
    found = diagnose_log(log)
    return replace(found, notices=(Notice(message=text), *found.notices))


@told_by_line
def diagnose_job(job: StatedJob, sources: Sources, *, log: Log | None = None) -> Diagnosis:
    """What ran out of memory in a job, with what its log says where there is one.

    Raises:
        InputError: Everything that ``estimate_job`` refuses.
    """
    read = log or Log(failures=(), frames=(), lines=())
    failure = read.failure
    now = estimate_job(job, sources, replays=True)
    capacity = _capacity_of(failure) or _card_capacity(now)
    stage = stage_of_log(read)
    if stage.stage is Stage.UNKNOWN:
        matches, in_step = _matches(now, failure, stage), is_in_step(read)
        stage = stage_by_tensor(now, failure, matches, in_step=in_step) or stage_by_estimate(
            now, capacity, failure, in_step=in_step
        )
    cause = cause_of(failure, needs_of(now, capacity, stage))
    at = Situation(
        job=job,
        now=now,
        sources=sources,
        failure=failure,
        stage=stage,
        cause=cause,
        capacity_bytes=capacity,
    )
    fixes, combination, too_small = _cures(at)
    return Diagnosis(
        now=now,
        failure=failure,
        num_failures=len(read.failures),
        stage=stage,
        cause=cause,
        capacity_bytes=capacity,
        needed_bytes=at.needed_bytes,
        matches=_matches(now, failure, stage),
        fixes=fixes,
        smallest_combination=combination,
        card_too_small=too_small,
        assumptions=now.assumptions,
        notices=(*(on_log(read) if log is not None else ()), *on_job(at), *now.notices),
    )


def _capacity_of(failure: Failure | None) -> int | None:
    return failure.capacity.size_bytes if failure and failure.capacity else None


def _card_capacity(now: JobEstimate) -> int | None:
    card = now.resolved.accelerator
    return card.capacity_bytes if card else None


def _matches(now: JobEstimate, failure: Failure | None, stage: FoundStage) -> tuple[Match, ...]:
    if failure is None:
        return ()
    resolved = now.resolved
    recipe = resolved.recipe
    batch = Batch(
        sequences=round(resolved.batch.sequences),
        length=round(resolved.batch.worst_length),
        limit_length=max(round(resolved.batch.limit_length), recipe.max_length),
        eval_sequences=resolved.schedule.per_device_eval_batch_size * recipe.sequences_per_sample,
        kept_batches=_KEPT_BATCHES if stage.stage is Stage.EVALUATION else 0,
    )
    held = persistent(resolved.model, recipe)
    tensors = tensors_of(resolved.model, recipe, resolved.parallelism, held, batch)
    found = matches(failure, tensors, stage.stage, stage.within)
    whole = recipe.loss.path in (LossPath.FULL, LossPath.FUSED_CROSS_ENTROPY)
    makes_logits = whole or stage.stage is Stage.EVALUATION
    if any(match.exact for match in found) or not (resolved.batch.varies and makes_logits):
        return found
    guess = perhaps_logits(
        failure,
        vocabulary=resolved.model.head_weight.out_features,
        width=4 if recipe.loss.upcast_logits else recipe.compute_dtype.num_bytes,
        rows=batch.sequences,
        limit_length=batch.limit_length,
        stage=stage.within or stage.stage,
    )
    return (*found, guess) if guess is not None and not is_a_pool_block(failure) else found


def _cures(at: Situation) -> tuple[tuple[Fix, ...], Combination | None, bool | None]:
    if at.cause.cause is Cause.HOST:
        return _of_host(at)
    own = tuple(levers(at))
    cards = tuple(
        lever for lever in (more_cards_lever(at), larger_card_lever(at)) if lever is not None
    )
    fixes = judge(at, (*own, *cards))
    if at.cause.cause is Cause.FRAGMENTATION:
        return _of_fragmentation(at, own, fixes)
    combination = combine(at, own, fixes)
    too_small = None
    if at.limit_bytes is not None and at.is_known:
        too_small = combination is None and not at.fits_by_estimate
    return _ranked(at, fixes, combination), combination, too_small


def _of_host(at: Situation) -> tuple[tuple[Fix, ...], Combination | None, bool | None]:
    """The card's fixes cannot help; what main memory needs is told apart."""
    because = message("host_ran_out", "main memory ran out, not the card's")
    on_card = [lever for lever in levers(at) if lever.kind not in ("offload", "checkpoint_offload")]
    hindered = [replace(lever, cannot=because) for lever in on_card]
    fixes = (*judge(at, tuple(host_levers(at))), *judge(at, hindered))
    known = [replace(fix, enough_alone=None, fit_after=None) if not fix.cannot_help_because else fix
             for fix in fixes]  # fmt: skip
    return tuple(sorted(known, key=lambda fix: fix.cannot_help_because is not None)), None, None


def _of_fragmentation(
    at: Situation, own: Sequence[Lever], fixes: Sequence[Fix]
) -> tuple[tuple[Fix, ...], Combination | None, bool | None]:
    """Without the pieces the job fits as it is, if its need is below the card's capacity."""
    capacity = at.capacity_bytes
    fits = capacity is not None and at.needed_bytes.likely <= capacity
    fixes = tuple(
        replace(fix, enough_alone=fits, fit_after=at.fit_of(at.needed_bytes))
        if fix.change.kind == "expandable_segments"
        else fix
        for fix in fixes
    )
    segments = next(fix for fix in fixes if fix.change.kind == "expandable_segments")
    if fits and segments.cannot_help_because is None:
        combination = Combination(changes=(segments.change,), needed_bytes=at.needed_bytes)
        return rank(fixes, combination), combination, False
    found = combine(at, own, fixes)
    return _ranked(at, fixes, found), found, found is None


def _ranked(
    at: Situation, fixes: Sequence[Fix], combination: Combination | None
) -> tuple[Fix, ...]:
    """In order; what is in the combination at the level that it has there."""
    chosen = {change.kind: change for change in combination.changes} if combination else {}
    shown = [
        replace(judge_change(at, chosen[fix.change.kind]), cannot_help_because=None)
        if fix.change.kind in chosen
        else fix
        for fix in fixes
    ]
    return rank(shown, combination)
