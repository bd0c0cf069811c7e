"""A measured run: a fact about one job on one machine, kept as it was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from tuneplan.frozen import dataclass


class Origin(StrEnum):
    """Who measured."""

    PILOT = "pilot"
    LOG = "log"


class Status(StrEnum):
    """How the run ended; running out of memory is a result too."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One optimizer step.

    Attributes:
        step_s: Wall time.
        tokens: Positions that are no padding, over all micro-batches and devices.
        padded_tokens: Positions computed, padding included.
        loader_wait_s: Of ``step_s``, waiting for data.
        cpu_s: Time that the process's threads spent on a CPU; None where it was not taken.
    """

    step_s: float
    tokens: int | None = None
    padded_tokens: int | None = None
    loader_wait_s: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeak:
    """The highest memory of the worst device; None where it was not seen. Kinds never mix."""

    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    host_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the run ran on.

    Attributes:
        accelerator: Name of the chip as the driver or the log tells it.
        num_accelerators: In the whole job.
        software: Package to version.
    """

    accelerator: str | None = None
    num_accelerators: int | None = None
    num_nodes: int | None = None
    driver: str | None = None
    host: str | None = None
    software: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "software", MappingProxyType(dict(self.software)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured run.

    Attributes:
        job: Keys of the job file as plain JSON, as far as they are known.
        stage: Where it stopped, if it did.
        warm_up_steps: At the head of ``steps``, not counted in ``step_s``.
        step_s: Seconds of an optimizer step once it is steady.
        relative_error: Half the width of the 80 % interval of ``step_s`` over it.
        tokens_per_s_per_accelerator: Positions computed, padding included.
        real_tokens_per_s_per_accelerator: Without padding.
        train_s: Of the whole run.
        power_w: Mean of a device.
        temperature_c: The highest of any device.
        measured_at: ISO 8601, UTC; None where the log tells no date.
        source: Files, or what measured.
    """

    origin: Origin
    status: Status = Status.OK
    job: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    stage: str | None = None
    steps: tuple[MeasuredStep, ...] = ()
    warm_up_steps: int = 0
    step_s: float | None = None
    relative_error: float | None = None
    tokens_per_s_per_accelerator: float | None = None
    real_tokens_per_s_per_accelerator: float | None = None
    samples_per_s: float | None = None
    num_steps: int | None = None
    train_s: float | None = None
    peak: MeasuredPeak = field(default_factory=MeasuredPeak)
    power_w: float | None = None
    utilization_fraction: float | None = None
    temperature_c: float | None = None
    measured_at: str | None = None
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "job", MappingProxyType(dict(self.job)))
