"""What the log of a run says: points in time with figures, totals, and what was read of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Notice


class Metric(StrEnum):
    """What a log can tell at one moment; the unit is in the name, losses and norms have none."""

    LOSS = "loss"
    EVAL_LOSS = "eval_loss"
    GRAD_NORM = "grad_norm"
    LEARNING_RATE = "learning_rate"
    EPOCH = "epoch"
    STEP_S = "step_s"
    TOKENS_SEEN = "tokens_seen"  # positions, padding included
    REAL_TOKENS_SEEN = "real_tokens_seen"
    SAMPLES_SEEN = "samples_seen"
    TOKENS_PER_S = "tokens_per_s"
    TOKENS_PER_S_PER_ACCELERATOR = "tokens_per_s_per_accelerator"
    TRAINED_TOKENS_PER_S_PER_ACCELERATOR = "trained_tokens_per_s_per_accelerator"
    SAMPLES_PER_S = "samples_per_s"
    STEPS_PER_S = "steps_per_s"
    FLOP_PER_S_PER_ACCELERATOR = "flop_per_s_per_accelerator"
    GLOBAL_BATCH_SIZE = "global_batch_size"
    PEAK_ALLOCATED_BYTES = "peak_allocated_bytes"
    PEAK_RESERVED_BYTES = "peak_reserved_bytes"
    DEVICE_BYTES = "device_bytes"
    UTILIZATION_FRACTION = "utilization_fraction"
    POWER_W = "power_w"
    TEMPERATURE_C = "temperature_c"
    TOTAL_STEPS = "total_steps"
    TRAIN_S = "train_s"
    EVAL_S = "eval_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPoint:
    """What was logged at one moment.

    Attributes:
        step: Optimizer steps done; None where the log does not count them.
        at_s: Seconds since 1970 (UTC), or since the run began where the log tells only that; one
            log never mixes both. None where it tells no time.
        values: By metric.
        device: Which card it is about, where a log holds several.
    """

    step: int | None = None
    at_s: float | None = None
    values: Mapping[Metric, float] = field(default_factory=dict)
    device: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """One log, read.

    Attributes:
        format: Name of the format, such as ``trainer_state``.
        path: The file.
        points: In the order of the file.
        totals: What the log says of the whole run.
        job: Keys of the job file that the log states, such as ``training.save_steps``.
        accelerator: The card as the log names it.
        absolute_time: Whether ``at_s`` of the points counts from 1970.
        clock_step_s: What ``at_s`` is rounded to; 0 where the clock is fine.
        notices: What could not be read, and where.
    """

    format: str
    path: str
    points: tuple[LogPoint, ...] = ()
    totals: Mapping[Metric, float] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    accelerator: str | None = None
    absolute_time: bool = False
    clock_step_s: float = 0.0
    notices: tuple[Notice, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", MappingProxyType(dict(self.totals)))
        object.__setattr__(self, "job", MappingProxyType(dict(self.job)))

    def series(self, metric: Metric) -> Iterator[tuple[LogPoint, float]]:
        """The points that tell a metric, with its value."""
        for point in self.points:
            if metric in point.values:
                yield point, point.values[metric]
