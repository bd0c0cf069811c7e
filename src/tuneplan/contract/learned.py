"""The answers that are made from measured runs: ``learn`` and ``store list``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, FiniteFloat

from tuneplan.contract.parts import Header, Notice, Part, Range


class LearnedLog(Part):
    """One log that was read."""

    path: str
    format: str
    points: int
    first_step: int | None = None
    last_step: int | None = None


class LearnedFigure(Part):
    """One measured figure; its unit is in its name. ``error_fraction``: likely / measured - 1."""

    quantity: str
    measured: FiniteFloat
    predicted: Range | None = None
    error_fraction: FiniteFloat | None = None
    inside_interval: bool | None = None


class LearnedRun(Part):
    """One run. ``measurement_id``: under which the store keeps it; null where it is not kept."""

    name: str
    logs: list[LearnedLog]
    accelerator: str | None
    num_accelerators: int | None
    steps: int | None
    relative_error: FiniteFloat | None = Field(
        description="Half the width of the 80 % interval of the step time over it."
    )
    measured_at: str | None
    figures: list[LearnedFigure]
    measurement_id: str | None
    warnings: list[Notice]


class LearnAnswer(Header):
    """The answer of ``learn``: a run a folder."""

    job: dict[str, Any] | None
    runs: list[LearnedRun]
    store: str | None


class StoredMeasurement(Part):
    """One measurement in short."""

    measurement_id: str
    kept_at: str
    measured_at: str | None
    origin: str
    status: str
    model: str | None
    method: str | None
    accelerator: str | None
    num_accelerators: int | None
    step_s: FiniteFloat | None
    peak_bytes: int | None


class StoreAnswer(Header):
    """The answer of ``store list``, oldest first."""

    store: str
    measurements: list[StoredMeasurement]
