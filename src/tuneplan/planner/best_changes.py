"""The changes that would help a configuration most, and what each buys on this job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

from tuneplan.diagnosis.outcome import Outcome
from tuneplan.estimation.uncertainty import Fit
from tuneplan.frozen import dataclass
from tuneplan.planner.change import Change
from tuneplan.planner.outcomes import outcome_of
from tuneplan.planner.variants import TriedChange, Trying

NUM_BEST: Final = 3
_WORTH_SAYING: Final = 0.03  # of the time, the cost or the memory
_MUCH_LONGER: Final = 3.0  # times the duration, for which a change must save more
_MUCH_CHEAPER: Final = 0.15
_OPPOSITES: Final = {"larger_batch": "smaller_batch", "more_cards": "fewer_cards"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changes: positive is saved, negative is what it costs; None where it is not known.

    Attributes:
        time_fraction: Of the run; of the time of a token where the run is not known.
        money: In ``currency``.
    """

    peak_bytes: float
    time_fraction: float | None
    time_s: float | None
    accelerator_hours: float | None
    money: Decimal | None
    currency: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestChange:
    """A change, what it buys and what it costs, and whether the job fits then."""

    change: Change
    difference: Difference
    fit_after: Fit | None
    outcome: Outcome


def best_changes(
    trying: Trying, tried: Sequence[TriedChange], now: Outcome
) -> tuple[BestChange, ...]:
    """At most three, the best first.

    Where the job does not surely fit with the head-room that is wanted: what makes it fit, what
    asks for nothing first, then the host's work, another method, other hardware; of these the
    least loss of time first. Where it fits: what saves most of what the job's goal counts.

    Args:
        trying: Estimates a change in full.
        tried: What was tried.
        now: The job as it is, in full.
    """
    headroom = trying.job.limits.headroom_fraction
    room_is_wanted = not (now.fits and now.keeps(headroom))
    if room_is_wanted or now.free_fraction is None:
        ranked = _by_memory(tried, trying.now, headroom)
    else:
        ranked = _by_goal(tried, trying.now, headroom, trying.job.goal)
    found: list[BestChange] = []
    for one in _one_of_a_kind(ranked):
        estimate = trying.in_full(one)
        outcome = outcome_of(estimate)
        if not room_is_wanted and outcome.does_not_fit:
            continue
        found.append(
            BestChange(
                change=one.change,
                difference=difference(now, outcome),
                fit_after=estimate.memory.fit,
                outcome=outcome,
            )
        )
        if len(found) == NUM_BEST:
            break
    return tuple(found)


def difference(now: Outcome, then: Outcome) -> Difference:
    """What is saved."""
    same_money = now.cost is not None and now.currency == then.currency
    return Difference(
        peak_bytes=now.peak_bytes - then.peak_bytes,
        time_fraction=_saved_time(now, then),
        time_s=_less(now.total_s, then.total_s),
        accelerator_hours=_less(now.accelerator_hours, then.accelerator_hours),
        money=now.cost - then.cost if same_money and now.cost and then.cost else None,
        currency=now.currency,
    )


def _less(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def _saved_time(now: Outcome, then: Outcome) -> float | None:
    if now.total_s and then.total_s:
        return 1 - then.total_s / now.total_s
    if now.positions_per_s and then.positions_per_s:
        return 1 - now.positions_per_s / then.positions_per_s
    return None


def _saved_hours(now: Outcome, then: Outcome) -> float:
    """Of the accelerators, which is what money is paid for; of a token where there is no run."""
    if now.accelerator_hours and then.accelerator_hours:
        return 1 - then.accelerator_hours / now.accelerator_hours
    saved = _saved_time(now, then)
    return 0.0 if saved is None else 1 - (1 - saved) * then.accelerators / now.accelerators


def _by_memory(
    tried: Iterable[TriedChange], now: Outcome, headroom: float
) -> Iterator[TriedChange]:
    """First what gives the head-room, then what makes it fit, then what saves most memory.

    What asks for less comes first (``Price``); to a job that does not fit, one change that just
    makes it fit is as good as one that leaves head-room too.
    """

    def place(one: TriedChange) -> tuple[int, int, int, int, float, str]:
        then = one.outcome
        enough = 0 if then.fits and then.keeps(headroom) else 1 if then.fits else 2
        loss = -(_saved_time(now, then) or 0.0)
        if enough == 2 or now.free_fraction is None:
            return 2, 0, 0, 0, then.peak_bytes, one.change.name
        solved = enough if now.fits else 0
        noted = one.change.note is not None
        return solved, one.change.price, enough, noted, loss, one.change.name

    saving = [one for one in tried if 1 - one.outcome.peak_bytes / now.peak_bytes >= _WORTH_SAYING]
    return iter(sorted(saving, key=place))


def _by_goal(
    tried: Iterable[TriedChange], now: Outcome, headroom: float, goal: str
) -> Iterator[TriedChange]:
    """What saves most: hours of the accelerators (cheapest), the clock (fastest), or both."""

    def saved(one: TriedChange) -> float:
        clock, hours = _saved_time(now, one.outcome) or 0.0, _saved_hours(now, one.outcome)
        return {"cheapest": hours, "fastest": clock}.get(goal, (clock + hours) / 2)

    def worthwhile(one: TriedChange) -> bool:
        then = one.outcome
        longer = (then.total_s or 0.0) > _MUCH_LONGER * (now.total_s or float("inf"))
        least = _MUCH_CHEAPER if longer else _WORTH_SAYING
        return then.fits and then.keeps(headroom) and saved(one) >= least

    another_method = ("lora", "qlora")
    return iter(
        sorted(
            (one for one in tried if worthwhile(one) and one.change.name not in another_method),
            key=lambda one: (-saved(one), one.change.name),
        )
    )


def _one_of_a_kind(ranked: Iterable[TriedChange]) -> Iterator[TriedChange]:
    """The best of each kind: one micro-batch, one number of cards; LoRA and QLoRA may both be."""
    seen: set[str] = set()
    for one in ranked:
        kind = _OPPOSITES.get(one.change.kind, one.change.kind)
        kind = one.change.name if kind == "adapter" else kind
        if kind not in seen:
            seen.add(kind)
            yield one
