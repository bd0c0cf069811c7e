"""One run, watched: each look gives where it is, when it will be done, and what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from tuneplan.devices import DeviceSample
from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Estimate
from tuneplan.spec.run_log import Metric
from tuneplan.watching.alerts import STOPPED_AT_LEAST_S, Alarm, Alert, Moment, Slow
from tuneplan.watching.following import News
from tuneplan.watching.pace import Marks, joined, time_left

UNKNOWN_PAUSE_S: Final = 300.0  # an evaluation may take so long where no plan says otherwise
_SEEN_PAUSES: Final = 0.1  # deviation of pauses that were seen, of those that are planned
_PLANNED_PAUSES: Final = 0.4
_START_UP_S: Final = 900.0  # until the first entry, where the plan says nothing
_LONGEST_PAUSE: Final = 1.5  # of the longest seen so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the plan says of the run; None where there is no plan.

    Attributes:
        pause_s: The longest pause for one evaluation and one checkpoint.
        pause_per_step_s: What evaluations and checkpoints add to each step on the average.
        start_up_s: Until the first step.
        checkpoint_bytes: What one checkpoint takes.
        cost_per_s: Money a second of the whole cluster, in ``currency``.
        tokens_per_step: Positions computed, of all cards.
        num_accelerators: In the whole job.
    """

    steps: int | None = None
    step_s: Estimate | None = None
    pause_s: float | None = None
    pause_per_step_s: float = 0.0
    start_up_s: float = 0.0
    checkpoint_bytes: int | None = None
    cost_per_s: float | None = None
    currency: str | None = None
    tokens_per_step: float | None = None
    num_accelerators: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The run at one moment.

    Attributes:
        time_s: The watcher's clock, seconds since 1970.
        quiet_s: How long the log has not grown.
        eta_s: Seconds until the last step; None while nothing tells.
        cost, final_cost: So far, and at the end, in the plan's currency.
        alerts: That stand; ``new_alerts`` are those of them that were not told before.
    """

    time_s: float
    step: int | None
    total_steps: int | None
    epoch: float | None
    loss: float | None
    eval_loss: float | None
    step_s: float | None
    tokens_per_s: float | None
    memory_bytes: int | None
    quiet_s: float
    elapsed_s: float
    eta_s: Estimate | None
    cost: float | None
    final_cost: Estimate | None
    finished: bool
    missing: bool
    devices: tuple[DeviceSample, ...]
    alerts: tuple[Alert, ...]
    new_alerts: tuple[Alert, ...]


class Watcher:
    """Fed with what is new; keeps what a later look needs, and no more."""

    def __init__(self, expected: Expected, *, began_s: float) -> None:
        self._expected = expected
        self._marks = Marks()
        self._alarm = Alarm()
        self._began_s = began_s
        self._grew_s = began_s
        self._looked_s = began_s
        self._first_s: float | None = None
        self._values: dict[Metric, float] = {}
        self._step: int | None = None
        self._total: int | None = expected.steps
        self._caught_up = False
        self._ended = False

    def look(
        self,
        news: Iterable[News],
        *,
        now_s: float,
        devices: tuple[DeviceSample, ...] = (),
        free_bytes: int | None = None,
        alive: bool | None = None,
        missing: bool = False,
    ) -> Look:
        """Take in what is new and say how it stands."""
        loss = eval_loss = None
        grew = False
        for one in news:
            grew = True
            self._take(one, now_s)
            loss = one.point.values.get(Metric.LOSS, loss)
            eval_loss = one.point.values.get(Metric.EVAL_LOSS, eval_loss)
        if grew:
            self._grew_s = now_s
        self._caught_up = True
        self._looked_s = now_s
        quiet_s = max(now_s - self._grew_s, 0.0)
        left = self._time_left(quiet_s)
        finished = self._finished()
        standing, new = self._alarm.look(
            Moment(
                now_s=now_s,
                news=grew,
                quiet_s=quiet_s,
                usual_gap_s=self._marks.usual_gap_s,
                allowed_pause_s=self._allowed_pause_s(),
                alive=alive,
                finished=finished,
                recent_step_s=self._marks.recent_step_s(Slow.entries),
                planned_step_s=self._expected.step_s,
                loss=loss,
                eval_loss=eval_loss,
                utilization_fraction=_mean(devices),
                temperature_c=max(
                    (one.temperature_c for one in devices if one.temperature_c is not None),
                    default=None,
                ),
                free_bytes=free_bytes,
                needed_bytes=self._expected.checkpoint_bytes,
                time_left=left,
            )
        )
        return self._told(now_s, quiet_s, left, finished, missing, devices, standing, new)

    def _take(self, one: News, now_s: float) -> None:
        point = one.point
        values = {metric: value for metric, value in point.values.items() if math.isfinite(value)}
        self._values.update(values)
        total = values.get(Metric.TOTAL_STEPS)
        if total and total >= 1:
            self._total = int(total)
        if Metric.TRAIN_S in values:  # the Trainer's last entry
            self._ended = True
        if point.step is None:
            return
        if self._step is not None and point.step < self._step:
            self._marks.begin_again()
            self._ended = False
        self._step = point.step
        # A log without a clock is timed by when its lines appear; those there before tell no time.
        at_s = point.at_s if point.at_s is not None else now_s if self._caught_up else None
        if at_s is not None and Metric.LOSS in point.values:
            if self._first_s is None:
                self._first_s = at_s
            coarse_s = 0.0 if point.at_s is not None else now_s - self._looked_s
            self._marks.add(point.step, at_s, clock_step_s=coarse_s)

    def _allowed_pause_s(self) -> float:
        seen = _LONGEST_PAUSE * self._marks.longest_gap_s
        start_up = 0.0
        if self._marks.last is None:
            start_up = 2 * self._expected.start_up_s or _START_UP_S
        planned = self._expected.pause_s
        pause = UNKNOWN_PAUSE_S if planned is None else planned
        return max(pause, seen, start_up, STOPPED_AT_LEAST_S)

    def _time_left(self, quiet_s: float) -> Estimate | None:
        pace = joined(self._marks.pace(), self._expected.step_s)
        if pace is None or self._total is None or self._step is None:
            return None
        steps_left = max(self._total - self._step, 0)
        pauses_s = self._marks.pauses_left_s(self._total)
        doubt = _SEEN_PAUSES
        if pauses_s is None:
            pauses_s, doubt = self._expected.pause_per_step_s * steps_left, _PLANNED_PAUSES
        left = time_left(steps_left, pace, pauses_s, doubt * pauses_s)
        passed = min(quiet_s, left.low)  # the step under way
        return Estimate(
            low=left.low - passed,
            likely=left.likely - passed,
            high=left.high - passed,
            basis=left.basis,
        )

    def _finished(self) -> bool:
        if self._ended:
            return True
        return self._total is not None and self._step is not None and self._step >= self._total

    def _told(
        self,
        now_s: float,
        quiet_s: float,
        left: Estimate | None,
        finished: bool,  # noqa: FBT001 - one caller, above
        missing: bool,  # noqa: FBT001
        devices: tuple[DeviceSample, ...],
        standing: tuple[Alert, ...],
        new: tuple[Alert, ...],
    ) -> Look:
        elapsed_s = max(now_s - self._began_s, 0.0)
        pace = self._marks.pace()
        step_s = pace.step_s if pace else None
        rate = self._expected.cost_per_s
        cost = rate * elapsed_s if rate is not None else None
        final = None
        if rate is not None and cost is not None and left is not None:
            final = Estimate(
                low=cost + rate * left.low,
                likely=cost + rate * left.likely,
                high=cost + rate * left.high,
                basis=left.basis,
            )
        return Look(
            time_s=now_s,
            step=self._step,
            total_steps=self._total,
            epoch=self._values.get(Metric.EPOCH),
            loss=self._values.get(Metric.LOSS),
            eval_loss=self._values.get(Metric.EVAL_LOSS),
            step_s=step_s,
            tokens_per_s=self._tokens_per_s(step_s),
            memory_bytes=self._memory(devices),
            quiet_s=quiet_s,
            elapsed_s=elapsed_s,
            eta_s=left,
            cost=cost,
            final_cost=final,
            finished=finished,
            missing=missing,
            devices=devices,
            alerts=standing,
            new_alerts=new,
        )

    def _tokens_per_s(self, step_s: float | None) -> float | None:
        """Of the whole job: what the log says, else the plan's tokens of a step over its time."""
        told = self._values.get(Metric.TOKENS_PER_S)
        if told is not None:
            return told
        per_card = self._values.get(Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR)
        if per_card is not None and self._expected.num_accelerators:
            return per_card * self._expected.num_accelerators
        planned = self._expected.tokens_per_step
        return planned / step_s if planned and step_s else None

    def _memory(self, devices: tuple[DeviceSample, ...]) -> int | None:
        if devices:
            return max(one.used_bytes for one in devices)
        told = self._values.get(
            Metric.PEAK_RESERVED_BYTES, self._values.get(Metric.PEAK_ALLOCATED_BYTES)
        )
        return None if told is None else round(told)


def _mean(devices: tuple[DeviceSample, ...]) -> float | None:
    used = [one.utilization_fraction for one in devices if one.utilization_fraction is not None]
    return sum(used) / len(used) if used else None
