"""The answer of ``pilot``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, FiniteFloat

from tuneplan.contract.answers import EstimateBody
from tuneplan.contract.learned import LearnedFigure
from tuneplan.contract.parts import Assumption, Bytes, Fraction, Header, Moved, Notice, Part, Range


class PilotStep(Part):
    """One optimizer step. ``tokens`` are no padding; ``padded_tokens`` were computed."""

    step_s: FiniteFloat
    tokens: int | None
    padded_tokens: int | None
    loader_wait_s: FiniteFloat | None
    cpu_s: FiniteFloat | None


class PilotStable(Part):
    """Whether the step time was steady. ``step_s``: of the planned step, as a range."""

    stable: bool
    step_s: Range | None
    relative_error: FiniteFloat | None


class PilotPeak(Part):
    """The highest memory of this run, of each kind that was seen."""

    allocated_bytes: Bytes | None
    reserved_bytes: Bytes | None
    device_bytes: Bytes | None
    host_bytes: Bytes | None


class PilotRank(PilotPeak):
    """One of several processes: its memory, and its own mean step once the warm-up is over."""

    step_s: FiniteFloat | None


class PilotEnvironment(Part):
    """What it ran on."""

    accelerator: str | None
    device: str | None
    num_accelerators: int | None
    driver: str | None
    software: dict[str, str]


class PilotMoved(Moved):
    """One figure of the estimate before and after the pilot."""


class PilotCase(Part):
    """One case of a matrix. ``status``: as of a pilot, or ``kept`` (done before), ``not_run``."""

    name: str
    status: str
    stage: str | None = None
    reason: str | None = None
    steps: int | None = None
    step_s: FiniteFloat | None = None
    tokens_per_s_per_accelerator: FiniteFloat | None = None
    peak_bytes: Bytes | None = None
    predicted_peak_bytes: Range | None = None
    predicted_step_s: Range | None = None
    measurement_id: str | None = None


class PilotMatrixAnswer(Header):
    """A list of pilots. ``rows``: the CSV of measured runs that they were written to."""

    matrix: str
    rows: str
    store: str | None
    cases: list[PilotCase]


class PilotAnswer(Header):
    """A short real run. ``status``: ok, oom, timeout, failed or interrupted.

    Of several processes, steps are as long as on the slowest and ``peak`` is of the worst one;
    ``ranks`` has each. ``assumptions`` are those of the pilot itself.

    ``before`` and ``after`` are the estimate without and with what was measured here; ``after`` is
    null where nothing could be learned.
    """

    job: dict[str, Any]
    status: str
    stage: str | None
    environment: PilotEnvironment
    warm_up_steps: int
    steps: list[PilotStep]
    stable: PilotStable
    peak: PilotPeak
    ranks: list[PilotRank] = Field(default_factory=list)
    power_w: FiniteFloat | None
    utilization_fraction: Fraction | None = None
    temperature_c: FiniteFloat | None = None
    figures: list[LearnedFigure]
    measurement_id: str | None
    before: EstimateBody
    after: EstimateBody | None
    moved: list[PilotMoved]
    assumptions: list[Assumption] = Field(default_factory=list)
    warnings: list[Notice]
