"""Which changes help, what each saves and costs on this job, and which few of them are enough."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.economics.money import convert
from tuneplan.errors import InputError
from tuneplan.estimation.uncertainty import Fit
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.change import Change, Lever, Price
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.oom_situation import Situation, saving
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.spec.offer import Money
from tuneplan.spec.stated import StatedJob
from tuneplan.units import MIB, format_gib

_WORTH: Final = 0.005  # of the need: a change that saves less does not help
_MOST_TOGETHER: Final = 4
_WORTH_ONE_MORE: Final = 0.1  # of the time: one more change is made where it saves so much


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change, judged on this job.

    Attributes:
        saves_bytes: Of the card's memory (of main memory where the host ran out); None = unknown.
        time_fraction: How much longer the run (or a step) takes: 0.2 = a fifth; None = unknown.
        money: How much more the run costs; None = unknown.
        fit_after: The verdict on the job then, by the rule of `check`; None where nothing tells.
        enough_alone: Whether it then surely fits and keeps the head-room; None likewise.
    """

    change: Change
    saves_bytes: Estimate | None = None
    time_fraction: Estimate | None = None
    money: Money | None = None
    fit_after: Fit | None = None
    enough_alone: bool | None = None
    cannot_help_because: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Changes that together let the job fit.

    Attributes:
        needed_bytes: What the job needs with all of them.
    """

    changes: tuple[Change, ...]
    needed_bytes: Estimate
    time_fraction: Estimate | None = None
    money: Money | None = None


def judge(at: Situation, levers: Iterable[Lever]) -> tuple[Fix, ...]:
    """One fix for each lever: its mildest level that is enough, else its strongest that helps."""
    return tuple(_judge(at, lever) for lever in levers)


def _judge(at: Situation, lever: Lever) -> Fix:
    if lever.cannot is not None:
        return Fix(change=lever.levels[-1], enough_alone=False, cannot_help_because=lever.cannot)
    best: Fix | None = None
    for change in lever.levels:
        fix = judge_change(at, change)
        if fix.enough_alone:
            return fix
        if best is None or best.cannot_help_because or _saved(fix) > _saved(best):
            best = fix
    assert best is not None  # noqa: S101 - a lever has a level
    return best


def _saved(fix: Fix) -> float:
    return fix.saves_bytes.likely if fix.saves_bytes and not fix.cannot_help_because else 0.0


def judge_change(at: Situation, change: Change) -> Fix:
    """A change estimated in full."""
    if not change.changes_job:
        return _by_its_own_sum(at, change)
    try:
        then = at.estimate(change.applied(at.job))
    except InputError as error:
        return Fix(change=change, enough_alone=False, cannot_help_because=_first_reason(error))
    needed = at.needed_of(then)
    saves, fit = saving(at.by_formula, needed), _fit_after(at, change, then)
    fix = Fix(
        change=change,
        saves_bytes=saves,
        time_fraction=_longer(at.now, then),
        money=_dearer(at, then),
        fit_after=fit,
        enough_alone=fit.keeps(at.job.limits.headroom_fraction) if fit else None,
    )
    if saves.likely <= max(_WORTH * at.needed_bytes.likely, MIB) and not fix.enough_alone:
        return replace(fix, enough_alone=False, cannot_help_because=_too_little(at, saves))
    return fix


def _first_reason(error: InputError) -> Message:
    return error.mistakes[0].message


def _too_little(at: Situation, saves: Estimate) -> Message:
    if saves.likely < 0:
        return message("needs_more", "it would need {size} more", size=format_gib(-saves.likely))
    phase = at.now.memory.phase.value
    if at.stage.stage is Stage.EVALUATION:
        phase = "evaluation"
    return message(
        "saves_nothing",
        "it saves {size} where the most is held ({phase})",
        size=format_gib(saves.likely),
        phase=phase.replace("_", " "),
    )


def _by_its_own_sum(at: Situation, change: Change) -> Fix:
    """What no job key says: the change brings its own sum, or none."""
    size = change.saves_bytes
    if not size:
        return Fix(change=change, enough_alone=None)
    saves = Estimate(low=size, likely=size, high=size, basis=Basis.ANALYTIC)
    fit = at.fit_of(_less(at.needed_bytes, size)) if at.is_known else None
    alone = fit.keeps(at.job.limits.headroom_fraction) if fit else None
    same = Estimate(low=0.0, likely=0.0, high=0.0, basis=Basis.ASSUMED)
    longer = same if change.price is Price.NOTHING else None
    return Fix(
        change=change,
        saves_bytes=saves,
        time_fraction=longer,
        fit_after=fit,
        enough_alone=alone,
    )


def _less(needed: Estimate, size: float) -> Estimate:
    return Estimate(
        low=max(needed.low - size, 0.0),
        likely=max(needed.likely - size, 0.0),
        high=max(needed.high - size, 0.0),
        basis=needed.basis,
    )


def _fit_after(at: Situation, change: Change, then: JobEstimate) -> Fit | None:
    """The verdict on the changed job on the card that it then runs on; None where nothing tells."""
    now, card = at.resolved.accelerator, then.resolved.accelerator
    other = card is not None and (now is None or card.name != now.name)
    if not at.is_known:
        return None
    capacity = card.capacity_bytes if card is not None and other else None
    fit = at.fit_of(at.less(at.needed_of(then)), capacity)
    if fit is not None and at.is_near(fit):
        return at.fit_of(at.replayed(change.applied(at.job)), capacity)
    return fit


def _longer(now: JobEstimate, then: JobEstimate) -> Estimate | None:
    before, after = _seconds(now), _seconds(then)
    if before is None or after is None:
        return None
    ratios = [
        later / sooner - 1
        for later, sooner in (
            (after.low, before.low),
            (after.likely, before.likely),
            (after.high, before.high),
        )
    ]
    return Estimate(low=min(ratios), likely=ratios[1], high=max(ratios), basis=Basis.ANALYTIC)


def _seconds(estimate: JobEstimate) -> Estimate | None:
    """The whole run where the data is known, else one optimizer step."""
    if estimate.total_s is not None:
        return estimate.total_s
    return estimate.time.step.step_s if estimate.time else None


def _dearer(at: Situation, then: JobEstimate) -> Money | None:
    if at.now.cost is None or then.cost is None:
        return None
    before = at.now.cost.total.likely
    after = convert(then.cost.total.likely, before.currency, at.sources.offers.rates)
    return Money(amount=after.amount - before.amount, currency=before.currency) if after else None


def combine(at: Situation, levers: Sequence[Lever], fixes: Sequence[Fix]) -> Combination | None:
    """The smallest set of cheap changes with which the job fits; None where none is enough.

    Changes that ask for less come first: a set within a lower ``Price`` is taken before a smaller
    one that needs a higher price. In one price the fewest changes win, then the least time;
    one change more is taken where it saves a tenth of the time.
    Other hardware is left out: this says what the cards at hand can do. What saves nothing alone is
    tried where what saves something is not enough: loading and training may both be too large.
    """
    if at.limit_bytes is None or at.fits_by_estimate or not at.is_known:
        return None
    helping = {fix.change.kind for fix in fixes if fix.cannot_help_because is None and _moves(fix)}
    possible = {
        lever.kind: lever
        for lever in levers
        if lever.cannot is None
        and any(level.changes_job or level.saves_bytes for level in lever.levels)
    }
    usable = list(possible.values())
    for price in sorted({lever.levels[0].price for lever in usable} - {Price.MONEY}):
        allowed = [lever for lever in usable if lever.levels[0].price <= price]
        sure = [lever for lever in allowed if lever.kind in helping]
        found = _smallest(at, sure) or (_smallest(at, allowed) if sure != allowed else None)
        if found is not None:
            return found
    return None


def _moves(fix: Fix) -> bool:
    return fix.change.changes_job or bool(fix.change.saves_bytes)


def _smallest(at: Situation, levers: Sequence[Lever]) -> Combination | None:
    strongest = tuple(lever.levels[-1] for lever in levers)
    if _together(at, strongest) is None:
        return None
    most = min(_MOST_TOGETHER, len(levers))
    for size in range(1, most + 1):
        found = _cheapest(at, strongest, size, levers)
        if found is None:
            continue
        if _lengthens(found) > _WORTH_ONE_MORE and size < most:
            more = _cheapest(at, strongest, size + 1, levers)
            if more is not None and _lengthens(more) < _lengthens(found) - _WORTH_ONE_MORE:
                return more
        return found
    return None


def _cheapest(
    at: Situation, changes: Sequence[Change], size: int, levers: Sequence[Lever]
) -> Combination | None:
    """Of the sets of so many changes that are enough, the one that costs least."""
    fitting = [
        chosen
        for chosen in itertools.combinations(changes, size)
        if _together(at, chosen) is not None
    ]
    milder = [_relaxed(at, chosen, levers) for chosen in fitting]
    in_order = sorted((_in_full(at, chosen) for chosen in (*milder, *fitting)), key=_cost_of)
    confirmed = (_confirmed(at, one) for one in in_order)
    return next((one for one in confirmed if one is not None), None)


def _confirmed(at: Situation, combination: Combination) -> Combination | None:
    """A combination that suffices by formula; near the edge only if it does in a replay too."""
    fit = at.fit_of(combination.needed_bytes)
    if fit is None or not at.is_near(fit):
        return combination
    job, own = applied(at.job, combination.changes)
    needed = _less(at.replayed(job), own)
    return replace(combination, needed_bytes=needed) if at.suffices(needed) else None


def _lengthens(combination: Combination) -> float:
    longer = combination.time_fraction
    return longer.likely if longer else 0.0


def _together(at: Situation, changes: Sequence[Change]) -> Estimate | None:
    """What the job needs with all of them, if that keeps the head-room."""
    key = tuple(id(change) for change in changes)
    if key not in at.tried:
        at.tried[key] = _need_together(at, changes)
    return at.tried[key]


def _need_together(at: Situation, changes: Sequence[Change]) -> Estimate | None:
    job, own = applied(at.job, changes)
    try:
        after = at.after(job)
    except InputError:
        return None
    left = _less(after, own)
    return left if at.suffices(left) else None


def applied(job: StatedJob, changes: Sequence[Change]) -> tuple[StatedJob, float]:
    """The job with all changes, and what those save that no job key says."""
    own = 0.0
    for change in changes:
        if change.changes_job:
            job = change.applied(job)
        else:
            own += change.saves_bytes or 0.0
    return job, own


def _relaxed(
    at: Situation, chosen: Sequence[Change], levers: Sequence[Lever]
) -> tuple[Change, ...]:
    """Each change at its mildest level with which the set is still enough, dearest first."""
    by_name = {lever.kind: lever for lever in levers}
    milder = list(chosen)
    for place in sorted(range(len(milder)), key=lambda at_place: -milder[at_place].price):
        for level in by_name[milder[place].kind].levels:
            tried = [*milder[:place], level, *milder[place + 1 :]]
            if _together(at, tried) is not None:
                milder = tried
                break
    return tuple(milder)


def _in_full(at: Situation, chosen: tuple[Change, ...]) -> Combination:
    needed = _together(at, chosen)
    assert needed is not None  # noqa: S101 - it was enough before
    job, _ = applied(at.job, chosen)
    then = at.estimate(job)
    return Combination(
        changes=chosen,
        needed_bytes=needed,
        time_fraction=_longer(at.now, then),
        money=_dearer(at, then),
    )


def _cost_of(combination: Combination) -> tuple[float, float, float]:
    longer = combination.time_fraction
    return (
        max(change.price for change in combination.changes),
        longer.likely if longer else 0.0,
        combination.needed_bytes.likely,
    )


def rank(fixes: Sequence[Fix], combination: Combination | None) -> tuple[Fix, ...]:
    """The smallest combination first, then what is enough alone, then what helps, by its price.

    Within the combination the change that saves most leads; what cannot help comes last.
    """
    chosen = {change.kind for change in combination.changes} if combination else set()
    return tuple(sorted(fixes, key=lambda fix: _order(fix, chosen)))


def _order(fix: Fix, chosen: set[str]) -> tuple[int, int, float, float]:
    saved = fix.saves_bytes.likely if fix.saves_bytes else 0.0
    longer = fix.time_fraction.likely if fix.time_fraction else 0.0
    if fix.change.kind in chosen:
        first = fix.change.kind == "sharded_loading"  # without it nothing else is reached
        return (0, 0 if first else 1, -saved, longer)
    if fix.cannot_help_because is not None:
        return (4, 0, 0.0, 0.0)
    if fix.enough_alone:
        return (1, fix.change.price, longer, -saved)
    return (2, fix.change.price, -saved, longer)
