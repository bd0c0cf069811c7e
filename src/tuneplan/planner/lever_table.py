"""Use-case: what each switch of a configuration buys: memory, hours, money, and the verdict then.

Every change that makes sense is estimated in full on the same data; what cannot be switched, or
helps nothing, is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tuneplan.diagnosis.oom_cause import FoundCause
from tuneplan.diagnosis.oom_stage import Confidence, FoundStage, Stage
from tuneplan.economics.billing import Cost
from tuneplan.economics.money import MoneyRange, convert
from tuneplan.errors import InputError, NotSupported
from tuneplan.estimation.uncertainty import Fit, Verdict, fit_on
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.change import Change, Lever
from tuneplan.planner.estimate import JobEstimate, estimate_job, memory_by_formula
from tuneplan.planner.estimating_all import known_sources
from tuneplan.planner.evaluating import MemoryAnswer
from tuneplan.planner.helping import Helper
from tuneplan.planner.oom_changes import levers
from tuneplan.planner.oom_situation import Situation, saving
from tuneplan.planner.resolving import told_by_line
from tuneplan.planner.sources import Sources
from tuneplan.planner.variants import TriedChange, Trying
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.spec.offer import Money
from tuneplan.spec.stated import StatedJob

# Kinds of the list against a lack of memory that are switches of a job at any time.
_SWITCHES: Final = (
    *("smaller_batch", "flash_attention", "optimizer_8bit", "sharding", "adapter", "fused_loss"),
    *("half_weights", "no_copies", "offload", "checkpoint_offload", "shorter_length"),
)
# Nobody makes these changes but for room.
_FOR_ROOM: Final = ("shorter_length", "offload", "checkpoint_offload")
_PHASES: Final = {
    "load": message("phase_load", "loading"),
    "forward": message("phase_forward", "forward pass"),
    "loss": message("phase_loss", "loss"),
    "backward": message("phase_backward", "backward pass"),
    "optimizer_step": message("phase_step", "optimizer step"),
    "evaluation": message("phase_evaluation", "evaluation"),
}
_FEWEST_FOR_TWO: Final = 6  # changes that are worth asking a second process
_NO_DIFFERENCE: Final = 0.005  # of the memory, the time or the cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A change and what it does to the job; what it saves is positive, what it costs negative.

    Attributes:
        after: The changed job by the formulas; None where it cannot be.
        fit_after: The verdict then, with the allocator's share as it is for the job now.
        saves_bytes: Of the allocated peak.
        saves_s: Of the whole run; None without data or a card.
        time_fraction: Share of the run that is saved; of a token's time where the run is unknown.
        saves_money: In the currency of the job's cost now.
        cannot_help_because: Why it is no help; None where it saves something.
    """

    change: Change
    after: JobEstimate | None = None
    fit_after: Fit | None = None
    saves_bytes: Estimate | None = None
    saves_s: Estimate | None = None
    time_fraction: Estimate | None = None
    saves_money: MoneyRange | None = None
    cannot_help_because: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLevers:
    """A job as it is, and every switch; the best for the job's goal first."""

    job: StatedJob
    now: JobEstimate
    effects: tuple[Effect, ...]


@told_by_line
def levers_job(
    job: StatedJob,
    sources: Sources,
    *,
    replays: bool = False,
    now: JobEstimate | None = None,
    helper: Helper | None = None,
) -> JobLevers:
    """Estimate a job and every change of it.

    Args:
        job: What is stated; a choice is refused, as by ``estimate``.
        sources: Catalogues.
        replays: As for ``estimate_job``, of the job as it is.
        now: The estimate of the job, where it is made already.
        helper: A process that estimates half of the changes.

    Raises:
        InputError: Everything the user can mend.
    """
    now = now or estimate_job(job, sources, replays=replays)
    trying = Trying(job, now, sources)
    offered = [*trying.changes()]
    kinds = {change.kind for change in offered}
    refused: list[Effect] = []
    fit = now.memory.fit
    wants_room = fit is None or not fit.keeps(job.limits.headroom_fraction)
    for lever in _other_switches(job, now, sources):
        if lever.kind in kinds or (lever.kind in _FOR_ROOM and not wants_room):
            continue
        if lever.cannot is not None:
            refused.append(Effect(change=lever.levels[-1], cannot_help_because=lever.cannot))
        else:
            offered += _levels(lever)
    effects = _effects(trying, now, offered, helper)
    ordered = _in_order(now, [*effects, *refused], None if wants_room else job.goal)
    return JobLevers(job=job, now=now, effects=ordered)


def _other_switches(job: StatedJob, now: JobEstimate, sources: Sources) -> Iterator[Lever]:
    """Switches that the usual changes leave out, and those that there is nothing to gain from."""
    at = Situation(
        job=job,
        now=now,
        sources=sources,
        failure=None,
        stage=FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE),
        cause=FoundCause(cause=None),
        capacity_bytes=now.memory.fit.capacity_bytes if now.memory.fit else None,
    )
    for lever in levers(at):
        if lever.kind in _SWITCHES:
            yield lever


def _levels(lever: Lever) -> Sequence[Change]:
    """All ways to offload; of another kind one that is neither the mildest nor the strongest."""
    if lever.kind == "offload":
        return lever.levels
    return (lever.levels[min(1, len(lever.levels) - 1)],)


def _effects(
    trying: Trying, now: JobEstimate, changes: Sequence[Change], helper: Helper | None
) -> list[Effect]:
    """The effect of each change, half of them by a helper where there is one."""
    if helper is None or len(changes) < _FEWEST_FOR_TWO:
        return [_effect(trying, now, change) for change in changes]
    sources = trying.sources
    named = (sources.serial, sources.unread())
    with helper.asked(_effects_there, trying.job, now, changes[1::2], *named) as result:
        here = [_effect(trying, now, change) for change in changes[0::2]]
        there = result()
    if there is None:
        there = [_effect(trying, now, change) for change in changes[1::2]]
    both = [one for pair in zip(here, there, strict=False) for one in pair]
    return [*both, *here[len(there) :]]


def _effects_there(
    job: StatedJob, now: JobEstimate, changes: Sequence[Change], serial: str, sources: Sources
) -> list[Effect]:
    """In the process of a helper."""
    trying = Trying(job, now, known_sources(serial, sources))
    return [_effect(trying, now, change) for change in changes]


def _effect(trying: Trying, now: JobEstimate, change: Change) -> Effect:
    try:
        tried = trying.tried(change)
    except InputError as error:
        return Effect(change=change, cannot_help_because=error.mistakes[0].message)
    except NotSupported as error:
        return Effect(change=change, cannot_help_because=error.message)
    before, after = trying.by_formula, tried.estimate
    held, then = memories_alike(before, after, trying.sources)
    effect = Effect(
        change=change,
        after=after,
        fit_after=_fit_after(now.memory, held, then),
        saves_bytes=saving(held.ranges.peak_bytes, then.ranges.peak_bytes),
        saves_s=_saved_time(before, after),
        time_fraction=_saved_share(before, after),
        saves_money=_saved_money(before.cost, after.cost, trying.sources),
    )
    return replace(effect, cannot_help_because=_why_no_help(effect, trying, tried))


def memories_alike(
    before: JobEstimate, after: JobEstimate, sources: Sources
) -> tuple[MemoryAnswer, MemoryAnswer]:
    """The memory of two jobs, both traced or both by the formulas: a trace of one only is left out.

    A job that was traced has the memory of that trace, and its changes mostly were not traced.
    """
    traced = [one.memory.ranges.peak_bytes.basis is Basis.TRACED for one in (before, after)]
    if traced[0] == traced[1]:
        return before.memory, after.memory
    held, then = (
        memory_by_formula(one.resolved, calibration=sources.calibration) for one in (before, after)
    )
    return held, then


def _fit_after(now: MemoryAnswer, before: MemoryAnswer, after: MemoryAnswer) -> Fit | None:
    """The verdict by the formulas, moved by what a replay of the job as it is adds to them."""
    fit, formula, replayed = after.fit, before.fit, now.fit
    if fit is None or formula is None or replayed is None:
        return fit
    more = replayed.needed_bytes.likely - formula.needed_bytes.likely
    need = fit.needed_bytes
    moved = Estimate(
        low=max(0.0, need.low + more),
        likely=max(0.0, need.likely + more),
        high=max(0.0, need.high + more),
        basis=need.basis,
    )
    return fit_on(moved, fit.capacity_bytes, after.spreads.allocated)


def _saved_time(before: JobEstimate, after: JobEstimate) -> Estimate | None:
    if before.total_s is None or after.total_s is None:
        return None
    return saving(before.total_s, after.total_s)


def _saved_share(before: JobEstimate, after: JobEstimate) -> Estimate | None:
    """Of the run; where it is not known, of the time in which all cards compute a token."""
    if before.total_s is not None and after.total_s is not None:
        return _share(before.total_s, after.total_s)
    if before.time is None or after.time is None:
        return None
    now, then = (
        one.time.tokens_per_s_per_accelerator.scaled(one.resolved.parallelism.world_size)
        for one in (before, after)
        if one.time is not None
    )
    return _share(then, now)


def _share(before: Estimate, after: Estimate) -> Estimate:
    """``1 - after / before``, each bound with its own kind."""
    shares = [
        1 - after.low / before.low,
        1 - after.likely / before.likely,
        1 - after.high / before.high,
    ]
    return Estimate(low=min(shares), likely=shares[1], high=max(shares), basis=Basis.ANALYTIC)


def _saved_money(before: Cost | None, after: Cost | None, sources: Sources) -> MoneyRange | None:
    if before is None or after is None:
        return None
    currency = before.total.currency
    saved: list[Decimal] = []
    for now, then in (
        (before.total.low, after.total.low),
        (before.total.likely, after.total.likely),
        (before.total.high, after.total.high),
    ):
        same = convert(then, currency, sources.offers.rates)
        if same is None:
            return None
        saved.append(now.amount - same.amount)
    return MoneyRange(
        low=Money(amount=min(saved), currency=currency),
        likely=Money(amount=saved[1], currency=currency),
        high=Money(amount=max(saved), currency=currency),
    )


def _why_no_help(effect: Effect, trying: Trying, tried: TriedChange) -> Message | None:
    now, then = trying.now, tried.outcome
    assert effect.saves_bytes is not None  # noqa: S101 - it was estimated
    shares = [effect.saves_bytes.likely / now.peak_bytes]
    if effect.time_fraction is not None:
        shares.append(effect.time_fraction.likely)
    if effect.saves_money is not None and now.cost:
        shares.append(float(effect.saves_money.likely.amount / now.cost))
    if max(shares) > _NO_DIFFERENCE or (then.fits and not now.fits):
        return None
    if effect.time_fraction is None:
        return message(
            "saves_no_memory", "it saves no memory; its time is not known without an accelerator"
        )
    if min(shares) >= -_NO_DIFFERENCE:
        phase = trying.by_formula.memory.phase.value
        return message(
            "changes_nothing",
            "it changes nothing that counts here (the most is held in the {phase})",
            phase=_PHASES.get(phase, phase),
        )
    return message("only_costs", "here it saves neither memory nor time nor money")


def _in_order(now: JobEstimate, effects: Sequence[Effect], goal: str | None) -> tuple[Effect, ...]:
    """What helps first: for the goal, or with room (None) where the job has too little.

    What changes more than memory, time and cost stands behind what does not.
    """
    headroom = now.resolved.job.limits.headroom_fraction

    def place(effect: Effect) -> tuple[int, bool, float, str]:
        name, other = effect.change.name, effect.change.note is not None
        if effect.cannot_help_because is not None:
            return 3, other, 0.0, name
        then = effect.fit_after
        enough = 0 if then is None or then.keeps(headroom) else 1
        enough += then is not None and then.verdict is Verdict.DOES_NOT_FIT
        saved = _memory(effect, now) if goal is None else _goal(effect, now, goal)
        return enough, other, -saved, name

    return tuple(sorted(effects, key=place))


def _memory(effect: Effect, now: JobEstimate) -> float:
    saved = effect.saves_bytes
    return saved.likely / now.memory.ranges.peak_bytes.likely if saved else 0.0


def _goal(effect: Effect, now: JobEstimate, goal: str) -> float:
    """Share saved of what the goal counts."""
    clock = effect.time_fraction.likely if effect.time_fraction else 0.0
    money = clock
    if effect.saves_money is not None and now.cost is not None and now.cost.total.likely.amount:
        money = float(effect.saves_money.likely.amount / now.cost.total.likely.amount)
    return {"cheapest": money, "fastest": clock}.get(goal, (clock + money) / 2)
