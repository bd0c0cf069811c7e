"""Measurements as documents: what the store keeps, and what is exported and imported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from tuneplan.contract.plain_json import json_value
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message
from tuneplan.spec.measurement import (
    Environment,
    MeasuredPeak,
    MeasuredStep,
    Measurement,
    Origin,
    Status,
)

FORMAT: Final = 1
Positive = Annotated[FiniteFloat, Field(gt=0)]
NotNegative = Annotated[FiniteFloat, Field(ge=0)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class StepDocument(_Document):
    """``spec.measurement.MeasuredStep``."""

    step_s: Positive
    tokens: Count | None = None
    padded_tokens: Count | None = None
    loader_wait_s: NotNegative | None = None
    cpu_s: NotNegative | None = None


class PeakDocument(_Document):
    """``spec.measurement.MeasuredPeak``."""

    allocated_bytes: Count | None = None
    reserved_bytes: Count | None = None
    device_bytes: Count | None = None
    host_bytes: Count | None = None


class EnvironmentDocument(_Document):
    """``spec.measurement.Environment``."""

    accelerator: str | None = None
    num_accelerators: Annotated[int, Field(ge=1)] | None = None
    num_nodes: Annotated[int, Field(ge=1)] | None = None
    driver: str | None = None
    host: str | None = None
    software: dict[str, str] = Field(default_factory=dict)


class MeasurementDocument(_Document):
    """``spec.measurement.Measurement``; ``measurement`` is the version of this form."""

    measurement: Literal[1] = FORMAT
    origin: Origin
    status: Status = Status.OK
    job: dict[str, Any] = Field(default_factory=dict)
    environment: EnvironmentDocument = Field(default_factory=EnvironmentDocument)
    stage: str | None = None
    steps: list[StepDocument] = Field(default_factory=list)
    warm_up_steps: Count = 0
    step_s: Positive | None = None
    relative_error: NotNegative | None = None
    tokens_per_s_per_accelerator: Positive | None = None
    real_tokens_per_s_per_accelerator: Positive | None = None
    samples_per_s: Positive | None = None
    num_steps: Count | None = None
    train_s: Positive | None = None
    peak: PeakDocument = Field(default_factory=PeakDocument)
    power_w: NotNegative | None = None
    utilization_fraction: NotNegative | None = None
    temperature_c: FiniteFloat | None = None
    measured_at: str | None = None
    source: list[str] = Field(default_factory=list)


def measurement_text(measurement: Measurement) -> str:
    """One line of JSON: keys sorted, what is unknown left out; equal facts give equal text."""
    document = MeasurementDocument.model_validate(json_value(measurement))
    filled = document.model_dump(mode="json", exclude_defaults=True)
    filled["measurement"] = FORMAT
    return json.dumps(filled, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def measurement_id(text: str) -> str:
    """SHA-256 of the line: the same fact has the same name on every machine."""
    return hashlib.sha256(text.encode()).hexdigest()


def measurement_from(text: str, *, path: str | None = None, line: int | None = None) -> Measurement:
    """A measurement from its line.

    Raises:
        InvalidRequest: Every field that is wrong, at its path.
    """
    try:
        document = MeasurementDocument.model_validate_json(text)
    except ValidationError as error:
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "measurement_invalid", "no measurement: {problem}", problem=one["msg"]
                    ),
                    path=".".join(map(str, one["loc"])) or path,
                    file=path,
                    line=line,
                )
                for one in error.errors(include_url=False)
            ]
        ) from None
    return _measurement(document.model_dump())


def _measurement(plain: Mapping[str, Any]) -> Measurement:
    facts = {name: value for name, value in plain.items() if name != "measurement"}
    return Measurement(
        **{
            **facts,
            "environment": Environment(**plain["environment"]),
            "steps": tuple(MeasuredStep(**step) for step in plain["steps"]),
            "peak": MeasuredPeak(**plain["peak"]),
            "source": tuple(plain["source"]),
        }
    )
