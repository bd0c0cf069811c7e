"""What the logs of one run measured: its steady step time, its speed, its peaks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.answer import Notice
from tuneplan.spec.measurement import Environment, MeasuredPeak, Measurement, Origin
from tuneplan.spec.run_log import Metric, RunLog

_FEWEST: Final = 3  # steady samples without which a median says little
_WARM_UP_FRACTION: Final = 0.1
_Z80: Final = 1.2816  # of the normal distribution's 90th percentile
_MAD_TO_DEVIATION: Final = 1.4826  # of normally distributed samples
_ROUNDING: Final = 6**-0.5  # deviation of the difference of two times rounded to 1
_MEDIAN_TO_MEAN_ERROR: Final = 1.2533  # sqrt(pi / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steady:
    """Samples of one figure after the warm-up.

    Attributes:
        rounding: Deviation of one sample that comes from a coarse clock alone.
    """

    samples: tuple[float, ...]
    rounding: float = 0.0

    @property
    def middle(self) -> float:
        return median(self.samples)

    @property
    def relative_error(self) -> float | None:
        """Half the width of the 80 % interval of the median over it, by the median deviation."""
        if len(self.samples) < _FEWEST:
            return None
        middle = self.middle
        spread = _MAD_TO_DEVIATION * median(abs(one - middle) for one in self.samples)
        deviation = math.hypot(spread, self.rounding)
        return _Z80 * _MEDIAN_TO_MEAN_ERROR * deviation / math.sqrt(len(self.samples)) / middle


def measure(
    logs: Sequence[RunLog], *, num_accelerators: int | None = None
) -> tuple[Measurement, tuple[Notice, ...]]:
    """The logs of one run as one measurement.

    Step time comes from the first of these that the logs tell: the framework's own step times; the
    time between logged steps; samples a second with the global batch size; length of the whole run
    over its steps, which counts start-up, evaluation and saving too. Medians, so that pauses for
    evaluation and checkpoints do not count; the first tenth is taken as warm-up.

    Args:
        logs: Of one run, of any formats.
        num_accelerators: In the whole job, where it is known.

    Returns:
        The measurement, and what the reader should know of it.
    """
    notices: list[Notice] = [notice for log in logs for notice in log.notices]
    steady = _step_time(logs)
    if steady is None:
        whole = _whole_run(logs)
        steady = _Steady(samples=(whole,)) if whole else None
        if whole:
            notices.append(_over_the_run())
    tokens, real_tokens = _tokens(logs, steady, num_accelerators)
    if any(_values(logs, Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR)):
        notices.append(_trained_only())
    cards = {log.accelerator for log in logs} - {None}
    peak = MeasuredPeak(
        allocated_bytes=_highest(logs, Metric.PEAK_ALLOCATED_BYTES),
        reserved_bytes=_highest(logs, Metric.PEAK_RESERVED_BYTES),
        device_bytes=_highest(logs, Metric.DEVICE_BYTES),
    )
    batch = _last(logs, Metric.GLOBAL_BATCH_SIZE)
    measurement = Measurement(
        origin=Origin.LOG,
        job=_nested({key: value for log in logs for key, value in log.job.items()}),
        environment=Environment(
            accelerator=cards.pop() if len(cards) == 1 else None,
            num_accelerators=num_accelerators,
        ),
        step_s=steady.middle if steady else None,
        relative_error=steady.relative_error if steady else None,
        tokens_per_s_per_accelerator=tokens,
        real_tokens_per_s_per_accelerator=real_tokens,
        samples_per_s=batch / steady.middle if batch and steady else _samples(logs),
        num_steps=_steps_done(logs),
        train_s=_total(logs, Metric.TRAIN_S),
        peak=peak,
        power_w=_mean(logs, Metric.POWER_W),
        utilization_fraction=_mean(logs, Metric.UTILIZATION_FRACTION),
        measured_at=_date(logs),
        source=tuple(log.path for log in logs),
    )
    return measurement, tuple(notices)


def _nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """``training.save_steps`` as a key of a section, as in a job file."""
    job: dict[str, Any] = {}
    for path, value in keys.items():
        section, _, name = path.rpartition(".")
        (job.setdefault(section, {}) if section else job)[name] = value
    return job


def _step_time(logs: Sequence[RunLog]) -> _Steady | None:
    own = [_Steady(samples=tuple(_finite(log, Metric.STEP_S))) for log in logs]
    between = [_between(log) for log in logs]
    by_samples = [_Steady(samples=tuple(_of_samples(log))) for log in logs]
    for tried in (own, between, by_samples):
        best = max(tried, key=lambda one: len(one.samples), default=None)
        samples = _without_warm_up(best.samples) if best else ()
        if best and len(samples) >= _FEWEST:
            return replace(best, samples=samples)
    return None


def _between(log: RunLog) -> _Steady:
    """Seconds a step between logged moments; one a pair, whatever lies between them."""
    timed = [
        (point.step, point.at_s)
        for point in log.points
        if point.step is not None and point.at_s is not None and Metric.LOSS in point.values
    ]
    pairs = [
        (last - first, ended_s - began_s)
        for (first, began_s), (last, ended_s) in pairwise(timed)
        if last > first and ended_s > began_s
    ]
    if not pairs:
        return _Steady(samples=())
    steps = median(steps for steps, _ in pairs)
    return _Steady(
        samples=tuple(seconds / steps for steps, seconds in pairs),
        rounding=log.clock_step_s * _ROUNDING / steps,
    )


def _of_samples(log: RunLog) -> list[float]:
    batches = [value for _, value in log.series(Metric.GLOBAL_BATCH_SIZE)]
    if not batches:
        return []
    return [median(batches) / speed for speed in _finite(log, Metric.SAMPLES_PER_S)]


def _without_warm_up(samples: Sequence[float]) -> tuple[float, ...]:
    skipped = math.ceil(_WARM_UP_FRACTION * len(samples)) if len(samples) > _FEWEST else 0
    return tuple(samples[skipped:])


def _whole_run(logs: Sequence[RunLog]) -> float | None:
    train_s, steps = _total(logs, Metric.TRAIN_S), _steps_done(logs)
    return train_s / steps if train_s and steps else None


def _tokens(
    logs: Sequence[RunLog], steady: _Steady | None, num_accelerators: int | None
) -> tuple[float | None, float | None]:
    """Positions a second and card, then those that are no padding."""
    stated = _middle(logs, Metric.TOKENS_PER_S_PER_ACCELERATOR)
    trained = _middle(logs, Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR)
    if num_accelerators is None or steady is None:
        return stated, trained
    tokens = _per_step(logs, Metric.TOKENS_SEEN)
    real = _per_step(logs, Metric.REAL_TOKENS_SEEN)
    per_card_second = num_accelerators * steady.middle
    return (
        stated or (tokens / per_card_second if tokens else None),
        trained or (real / per_card_second if real else None),
    )


def _per_step(logs: Sequence[RunLog], metric: Metric) -> float | None:
    """Tokens of one step: the slope of a running count, or the run's total over its steps."""
    for log in logs:
        counted = [(point.step, value) for point, value in log.series(metric) if point.step]
        if len(counted) >= 2 and counted[-1][0] != counted[0][0]:
            (first, before), (last, after) = counted[0], counted[-1]
            if last > first and after > before:
                return (after - before) / (last - first)
    total, steps = _total(logs, metric), _steps_done(logs)
    return total / steps if total and steps else None


def _samples(logs: Sequence[RunLog]) -> float | None:
    return _middle(logs, Metric.SAMPLES_PER_S) or _total(logs, Metric.SAMPLES_PER_S)


def _steps_done(logs: Sequence[RunLog]) -> int | None:
    steps = [point.step for log in logs for point in log.points if point.step is not None]
    return max(steps, default=None)


def _finite(log: RunLog, metric: Metric) -> Iterator[float]:
    for _, value in log.series(metric):
        if math.isfinite(value) and value > 0:
            yield value


def _values(logs: Sequence[RunLog], metric: Metric) -> Iterator[float]:
    for log in logs:
        yield from _finite(log, metric)


def _middle(logs: Sequence[RunLog], metric: Metric) -> float | None:
    samples = _without_warm_up(list(_values(logs, metric)))
    return median(samples) if samples else None


def _highest(logs: Sequence[RunLog], metric: Metric) -> int | None:
    highest = max(_values(logs, metric), default=None)
    return None if highest is None else round(highest)


def _mean(logs: Sequence[RunLog], metric: Metric) -> float | None:
    values = [value for log in logs for _, value in log.series(metric) if math.isfinite(value)]
    # Each is divided first: a sum of what a broken log holds may be beyond any number.
    return math.fsum(value / len(values) for value in values) if values else None


def _last(logs: Sequence[RunLog], metric: Metric) -> float | None:
    values = list(_values(logs, metric))
    return values[-1] if values else None


def _total(logs: Sequence[RunLog], metric: Metric) -> float | None:
    found = [log.totals[metric] for log in logs if log.totals.get(metric, 0) > 0]
    return found[0] if found else None


def _date(logs: Sequence[RunLog]) -> str | None:
    """When the run ended, of the logs whose clock counts from 1970."""
    moments = [
        point.at_s for log in logs if log.absolute_time for point in log.points if point.at_s
    ]
    if not moments or not 0 < max(moments) < 253_402_300_800:  # the year 10000
        return None
    return datetime.fromtimestamp(max(moments), tz=UTC).isoformat(timespec="seconds")


def _over_the_run() -> Notice:
    return Notice(
        message=message(
            "step_time_over_the_run",
            "the logs hold no clock, so the step time is the length of the whole run over its "
            "steps: start-up, evaluation and saving are in it",
        )
    )


def _trained_only() -> Notice:
    return Notice(
        message=message(
            "only_trained_tokens_counted",
            "the log counts only tokens whose loss counts: where prompts are masked, more tokens "
            "went through the model",
        )
    )
