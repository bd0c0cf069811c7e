"""How fast a run goes and when it will be done, from the steps seen so far and the plan."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median, stdev
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Basis, Estimate

_MOST_MARKS: Final = 512
_WARM_UP: Final = 1  # intervals at the start that are not counted
_TREND_FROM: Final = 8  # intervals from which the later half may speak alone
_CLOCK_STEPS: Final = 10
_PAUSE: Final = 3.0
_SLACK: Final = 0.05
_Z80: Final = 1.2816
_FLOOR: Final = 0.01  # what two halves of a steady run differ by anyway
_FEW: Final = 0.25  # deviation of a pace that is known from one interval
_LONGEST_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds a step, and how well it is known (deviation of its logarithm)."""

    step_s: float
    deviation: float


class Marks:
    """When which step was done. Thinned as it grows, so a long run costs no more than a short.

    Pauses (evaluation, a checkpoint) are intervals of more than three times the usual; what they
    take beyond their steps is kept apart, so that the pace of the steps is not moved by them.
    """

    def __init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Forget the time before: the run was stopped and started."""
        self._marks: deque[tuple[int, float]] = deque()  # without the pauses
        self._clock_step_s = 0.0
        self._paused_s = 0.0
        self._first_step = 0
        self._paused_at = 0
        self._num_pauses = 0
        self._longest_gap_s = 0.0

    def add(self, step: int, at_s: float, *, clock_step_s: float = 0.0) -> None:
        """Note a step; a step that was done before means that the run began again from there.

        Args:
            step: Optimizer steps done.
            at_s: When.
            clock_step_s: How coarse that time is.
        """
        if not math.isfinite(at_s):
            return
        self._clock_step_s = clock_step_s
        last = self.last
        if last is not None and (last[0] > step or last[1] > at_s):
            self.begin_again()  # or the clock was set back
            last = None
        if last is None:
            self._first_step = step
        elif last[0] == step:
            return
        elif last[1] == at_s:
            self._marks.pop()  # both were seen at one look: the later step was just done
        else:
            self._note_pause(step - last[0], at_s - last[1], step)
        self._marks.append((step, at_s - self._paused_s))
        if len(self._marks) > _MOST_MARKS:
            self._marks = deque([*list(self._marks)[:-64:2], *list(self._marks)[-64:]])

    def _note_pause(self, steps: int, seconds: float, step: int) -> None:
        self._longest_gap_s = max(self._longest_gap_s, seconds)
        intervals = self._intervals()
        if len(intervals) <= _WARM_UP:
            return
        usual_s = steps * median(step_s for _, step_s in intervals[-64:])
        if seconds > _PAUSE * usual_s and seconds - usual_s > 2 * self._clock_step_s:
            self._paused_s += seconds - usual_s
            self._paused_at = step
            self._num_pauses += 1

    def pauses_left_s(self, total_steps: int) -> float | None:
        """What pauses will take until the end if they go on as so far; None before the first.

        They come at even distances (``eval_steps``, ``save_steps``); one after the last step too.
        """
        if not self._num_pauses or self._paused_at <= self._first_step:
            return None
        distance = (self._paused_at - self._first_step) / self._num_pauses
        left = math.floor((total_steps + 1 - self._paused_at) / distance + _SLACK)
        return max(left, 0) * self._paused_s / self._num_pauses

    @property
    def last(self) -> tuple[int, float] | None:
        """The latest step and when it was done."""
        if not self._marks:
            return None
        step, clean_s = self._marks[-1]
        return step, clean_s + self._paused_s

    @property
    def usual_gap_s(self) -> float | None:
        """The usual time between two entries of the log; None before there are three."""
        gaps = [later - before for (_, before), (_, later) in pairwise(self._marks)]
        return median(gaps[-64:]) if len(gaps) >= 2 else None

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two entries so far."""
        return self._longest_gap_s

    def recent_step_s(self, count: int) -> float | None:
        """Median seconds a step of the last ``count`` blocks; None before there are so many.

        A block is an interval, or as many as make ten steps of a coarse clock.
        """
        shortest_s = _CLOCK_STEPS * self._clock_step_s
        blocks: list[float] = []
        steps, seconds = 0, 0.0
        for done, step_s in reversed(self._intervals()):
            steps, seconds = steps + done, seconds + done * step_s
            if seconds >= shortest_s:
                blocks.append(seconds / steps)
                steps, seconds = 0, 0.0
            if len(blocks) == count:
                return median(blocks)
        return None

    def pace(self) -> Pace | None:
        """The pace of the later half of the run, which is what the rest will most likely keep."""
        intervals = self._intervals()
        if len(intervals) > _WARM_UP + 1:
            intervals = intervals[_WARM_UP:]
        if not intervals:
            return None
        if len(intervals) == 1:
            return Pace(step_s=intervals[0][1], deviation=_FEW)
        half = len(intervals) // 2
        late = intervals[half:] if len(intervals) >= _TREND_FROM else intervals
        mean = _weighted(late)
        rates = [seconds for _, seconds in late]
        spread = stdev(rates) / math.sqrt(len(rates)) / mean if len(rates) > 1 else _FEW
        drift = 0.0
        if len(intervals) >= _TREND_FROM:
            drift = 0.5 * abs(math.log(mean / _weighted(intervals[:half])))
        known = math.sqrt(spread**2 + drift**2 + _FLOOR**2)
        return Pace(step_s=mean, deviation=max(known, _FEW / len(intervals)))

    def _intervals(self) -> list[tuple[int, float]]:
        """Steps and seconds a step between marks."""
        return [
            (later - step, (ended_s - began_s) / (later - step))
            for (step, began_s), (later, ended_s) in pairwise(self._marks)
        ]


def _weighted(intervals: list[tuple[int, float]]) -> float:
    return sum(steps * seconds for steps, seconds in intervals) / sum(
        steps for steps, _ in intervals
    )


def joined(seen: Pace | None, planned: Estimate | None) -> Pace | None:
    """What was seen and what was planned, each with the weight of how well it is known.

    Both are normal in their logarithm; the plan's deviation is that of its 80 % range. What was
    seen soon outweighs the plan.
    """
    prior = _planned(planned)
    if seen is None or prior is None:
        return seen or prior
    ours, theirs = seen.deviation**-2, prior.deviation**-2
    middle = (ours * math.log(seen.step_s) + theirs * math.log(prior.step_s)) / (ours + theirs)
    return Pace(step_s=math.exp(middle), deviation=(ours + theirs) ** -0.5)


def _planned(planned: Estimate | None) -> Pace | None:
    if planned is None or planned.low <= 0:
        return None
    width = math.log(planned.high / planned.low) / (2 * _Z80)
    return Pace(step_s=planned.likely, deviation=max(width, _FLOOR))


def time_left(
    steps_left: int, pace: Pace, pauses_s: float = 0.0, pauses_deviation_s: float = 0.0
) -> Estimate:
    """Seconds until the end, as a range.

    Args:
        steps_left: Optimizer steps.
        pace: Of a step.
        pauses_s: What evaluations and checkpoints will take.
        pauses_deviation_s: How well that is known.
    """
    steps_s = min(steps_left * pace.step_s, _LONGEST_S)
    likely = steps_s + pauses_s
    away = _Z80 * math.hypot(steps_s * pace.deviation, pauses_deviation_s)
    return Estimate(
        low=max(likely - away, likely * math.exp(-away / likely)) if likely else 0.0,
        likely=likely,
        high=likely + away * math.exp(min(away / likely, 1.0) / 2) if likely else 0.0,
        basis=Basis.MEASURED,
    )
