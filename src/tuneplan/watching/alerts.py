"""What is wrong with a run: one rule a class, each told once until it is over.

Quiet by default. Speed is held against the plan's low end, not against utilization; a pause as long
as an evaluation or a checkpoint may take is no stop; a loss is diverging when it leaves the band in
which it has moved. How soon each rule speaks is said with it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Protocol

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Estimate
from tuneplan.units import GB, format_duration

STOPPED_AFTER_GAPS: Final = 3.0
STOPPED_AT_LEAST_S: Final = 60.0
_SLOW_ENTRIES: Final = 5
_SLOW_OVER: Final = 0.95
_DIVERGING_ENTRIES: Final = 5
_SETTLED_ENTRIES: Final = 20
_BAND: Final = 4.0  # deviations of a loss around its running mean
_RISE: Final = 0.10  # and at least this share of the lowest mean
_OVERFIT_EVALUATIONS: Final = 2
_OVERFIT_RISE: Final = 0.01
_HOT_C: Final = 90.0
_HOT_SAMPLES: Final = 10
_IDLE_FRACTION: Final = 0.05
_IDLE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is known when the rules look.

    Attributes:
        now_s: The watcher's clock.
        news: Whether the log grew since the last look.
        quiet_s: How long the log has not grown.
        usual_gap_s: Usual time between entries.
        allowed_pause_s: The longest pause that evaluation, saving and start-up may take.
        alive: Whether the process lives; None where nobody knows.
        finished: Whether the log says that training is over.
        recent_step_s: Of the last few entries; None before there are enough.
        planned_step_s: The plan's range.
        loss, eval_loss: Of the newest entry that tells one; None where there is no news of it.
        utilization_fraction: Mean over the cards, None unless the driver tells.
        temperature_c: Of the hottest card.
        free_bytes: On the disk of the run.
        needed_bytes: What the next checkpoint will take; None where unknown.
        time_left: Until the last step.
    """

    now_s: float
    news: bool = False
    quiet_s: float = 0.0
    usual_gap_s: float | None = None
    allowed_pause_s: float = STOPPED_AT_LEAST_S
    alive: bool | None = None
    finished: bool = False
    recent_step_s: float | None = None
    planned_step_s: Estimate | None = None
    loss: float | None = None
    eval_loss: float | None = None
    utilization_fraction: float | None = None
    temperature_c: float | None = None
    free_bytes: int | None = None
    needed_bytes: int | None = None
    time_left: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something to act on."""

    code: str
    since_s: float
    message: Message


class Rule(Protocol):
    """Looks at each moment; an alert's message while the rule holds, else None."""

    code: str

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""


class Stopped:
    """No entry for three times the usual gap, and as long again as a pause may take.

    A pause may take what the plan says of an evaluation and a checkpoint, a minute at least; five
    minutes without a plan; half as long again as the longest so far. At once where the process is
    gone.
    """

    code = "stopped"

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        if moment.finished:
            return None
        if moment.alive is False:
            return message("stopped", "the process is gone and the log says nothing of an end")
        limit = patience_s(moment.usual_gap_s, moment.allowed_pause_s)
        if moment.quiet_s <= limit:
            return None
        return message(
            "stopped",
            "the log has not grown for {quiet}; entries usually come every {gap}",
            quiet=format_duration(moment.quiet_s),
            gap=format_duration(moment.usual_gap_s) if moment.usual_gap_s else "?",
        )


def patience_s(usual_gap_s: float | None, allowed_pause_s: float) -> float:
    """How long a log may be silent."""
    return STOPPED_AFTER_GAPS * (usual_gap_s or 0.0) + max(allowed_pause_s, STOPPED_AT_LEAST_S)


class Idle:
    """The cards do nothing for two minutes beyond a usual gap while the process lives."""

    code = "stalled"

    def __init__(self) -> None:
        self._since_s: float | None = None

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        used = moment.utilization_fraction
        if used is None or used > _IDLE_FRACTION or moment.finished or moment.alive is False:
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = moment.now_s
        idle_s = moment.now_s - self._since_s
        if idle_s <= _IDLE_S + (moment.usual_gap_s or 0.0) or moment.quiet_s < _IDLE_S:
            return None
        return message(
            "stalled",
            "the cards have been idle for {idle} and no step was done: a stalled data loader, a "
            "collective that waits, or a checkpoint that is written",
            idle=format_duration(idle_s),
        )


class Slow:
    """The median of the last five entries is slower than the plan's high end of a step.

    It is over when a step is a twentieth faster than that end, so a run at the edge is told once.
    """

    code = "slow"
    entries = _SLOW_ENTRIES

    def __init__(self) -> None:
        self._standing = False

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        planned, recent = moment.planned_step_s, moment.recent_step_s
        if planned is None or recent is None:
            return None
        self._standing = recent > planned.high * (_SLOW_OVER if self._standing else 1.0)
        if not self._standing:
            return None
        return message(
            "slow",
            "a step takes {recent} s; the plan said {low} to {high} s",
            recent=f"{recent:.3g}",
            low=f"{planned.low:.3g}",
            high=f"{planned.high:.3g}",
        )


class Diverging:
    """No number any more: at once. Out of the band in which it has moved: after five entries.

    The band is four deviations, and at least a tenth, above the running mean's lowest value; it is
    drawn once twenty entries were seen.
    """

    code = "diverging"

    def __init__(self) -> None:
        self._mean: float | None = None
        self._variance = 0.0
        self._lowest: float | None = None
        self._seen = 0
        self._above = 0
        self._last: Message | None = None

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        loss = moment.loss
        if loss is None:
            return self._last
        if not math.isfinite(loss):
            self._last = message("diverging", "the loss is no number any more ({loss})", loss=loss)
            return self._last
        self._last = self._judged(loss)
        return self._last

    def _judged(self, loss: float) -> Message | None:
        self._seen += 1
        if self._seen > _SETTLED_ENTRIES and self._lowest is not None:
            band = max(_BAND * math.sqrt(self._variance), _RISE * abs(self._lowest))
            if loss > self._lowest + band:
                self._above += 1
                if self._above >= _DIVERGING_ENTRIES:
                    return message(
                        "diverging",
                        "the loss is {loss}; it was {lowest} and had moved within {band} of it",
                        loss=f"{loss:.4g}",
                        lowest=f"{self._lowest:.4g}",
                        band=f"{band:.2g}",
                    )
                return None  # what is out of the band does not move it
        self._above = 0
        self._move(loss)
        return None

    def _move(self, loss: float) -> None:
        weight = 2 / (min(self._seen, _SETTLED_ENTRIES) + 1)
        if self._mean is None:
            self._mean = loss
        else:
            away = loss - self._mean
            self._mean += weight * away
            self._variance = (1 - weight) * (self._variance + weight * away**2)
        if self._lowest is None or self._mean < self._lowest:
            self._lowest = self._mean


class Overfitting:
    """The evaluation's loss was above its best by a hundredth twice in a row: stop early."""

    code = "overfitting"

    def __init__(self) -> None:
        self._best: float | None = None
        self._worse = 0
        self._last: Message | None = None

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        loss = moment.eval_loss
        if loss is None or not math.isfinite(loss):
            return self._last
        if self._best is None or loss < self._best:
            self._best = loss
        worse = loss > self._best + _OVERFIT_RISE * abs(self._best)
        self._worse = self._worse + 1 if worse else 0
        self._last = None
        if self._worse >= _OVERFIT_EVALUATIONS:
            self._last = message(
                "overfitting",
                "the loss of the evaluation rose {count} times in a row, to {loss} from {best}: "
                "stopping now and taking the best checkpoint saves {left}",
                count=self._worse,
                loss=f"{loss:.4g}",
                best=f"{self._best:.4g}",
                left=format_duration(moment.time_left.likely) if moment.time_left else "?",
            )
        return self._last


class DiskFilling:
    """The disk will be full before the run ends at the rate at which it fills, or at once now."""

    code = "disk"

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=240)

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        free = moment.free_bytes
        if free is None or moment.finished:
            return None
        self._seen.append((moment.now_s, free))
        if moment.needed_bytes is not None and free < moment.needed_bytes:
            return message(
                "disk",
                "{free} GB are free and the next checkpoint takes {needed} GB",
                free=f"{free / GB:.3g}",
                needed=f"{moment.needed_bytes / GB:.3g}",
            )
        return self._before_the_end(moment, free)

    def _before_the_end(self, moment: Moment, free: int) -> Message | None:
        began_s, before = self._seen[0]
        passed_s = moment.now_s - began_s
        if moment.time_left is None or passed_s < 600 or before <= free:
            return None
        full_in_s = free / ((before - free) / passed_s)
        if full_in_s >= moment.time_left.low:
            return None
        return message(
            "disk",
            "the disk will be full in {full}, before the run ends in {left}",
            full=format_duration(full_in_s),
            left=format_duration(moment.time_left.likely),
        )


class Hot:
    """A card is at 90 degrees or more for ten samples in a row: it will clock down."""

    code = "hot"

    def __init__(self) -> None:
        self._samples = 0

    def look(self, moment: Moment) -> Message | None:
        """What is wrong now."""
        if moment.temperature_c is None:
            return None
        self._samples = self._samples + 1 if moment.temperature_c >= _HOT_C else 0
        if self._samples < _HOT_SAMPLES:
            return None
        return message("hot", "a card is at {degrees} °C", degrees=f"{moment.temperature_c:.0f}")


class Alarm:
    """All rules; tells each alert once, and again only after it was over."""

    def __init__(self) -> None:
        self._rules: tuple[Rule, ...] = (
            Stopped(),
            Idle(),
            Slow(),
            Diverging(),
            Overfitting(),
            DiskFilling(),
            Hot(),
        )
        self._standing: dict[str, Alert] = {}

    def look(self, moment: Moment) -> tuple[tuple[Alert, ...], tuple[Alert, ...]]:
        """Alerts that stand, and those of them that are new."""
        new = []
        for rule in self._rules:
            told = rule.look(moment)
            if told is None:
                self._standing.pop(rule.code, None)
            elif rule.code not in self._standing:
                alert = Alert(code=rule.code, since_s=moment.now_s, message=told)
                self._standing[rule.code] = alert
                new.append(alert)
        return tuple(self._standing.values()), tuple(new)
