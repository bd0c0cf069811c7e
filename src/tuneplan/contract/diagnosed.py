"""The answer of ``oom``: what ran out of memory, and the fixes in the order of their cost."""

from __future__ import annotations

from typing import Any

from pydantic import Field, FiniteFloat, JsonValue

from tuneplan.contract.answers import Fit
from tuneplan.contract.parts import Assumption, Bytes, Header, Money, Notice, Part, Range


class OomStage(Part):
    """When memory ran out."""

    name: str = Field(
        json_schema_extra={
            "enum": [
                "load",
                "first_forward",
                "first_backward",
                "optimizer_step",
                "later",
                "eval",
                "save",
                "unknown",
            ]
        }
    )
    confidence: str = Field(json_schema_extra={"enum": ["high", "medium", "low", "none"]})
    evidence: list[str]
    within: str | None = Field(
        None, description="Where in a training step, if the stage is `later` and the log shows it."
    )


class OomMessage(Part):
    """The line of the log that is told of."""

    line: int
    text: str
    source: str = Field(
        json_schema_extra={
            "enum": ["allocator", "device", "library", "collective", "paged", "host"]
        }
    )
    num_messages: int


class OomMatch(Part):
    """A tensor of the job that has the size of the request."""

    tensor: str
    kind: str
    formula: str
    size_bytes: Bytes
    error_fraction: FiniteFloat
    fits_stage: bool


class OomCosts(Part):
    """What a fix costs: 0.2 = a fifth more time; money more than the job costs now."""

    time_fraction: Range | None = None
    money: Money | None = None


class OomFix(Part):
    """A change, judged on this job."""

    rank: int
    id: str
    change: str
    settings: dict[str, JsonValue]
    saves_bytes: Range | None = None
    costs: OomCosts
    fit_after: Fit | None = Field(
        None, description="The verdict on the job with this change, by the rule of `check`."
    )
    enough_alone: bool | None = Field(
        None, description="Whether it then surely fits and keeps limits.headroom."
    )
    cannot_help_because: str | None = None


class OomCombined(Part):
    """One change of the smallest combination."""

    id: str
    change: str
    settings: dict[str, JsonValue]


class OomAnswer(Header):
    """The answer of ``oom``."""

    job: dict[str, Any] | None = None
    stage: OomStage
    message: OomMessage | None = None
    requested_bytes: Bytes | None = None
    capacity_bytes: Bytes | None = None
    allocated_bytes: Bytes | None = None
    reserved_bytes: Bytes | None = None
    free_bytes: Bytes | None = None
    other_processes_bytes: Bytes | None = None
    needed_bytes: Range | None = Field(
        None, description="What the job needs on the card, by the estimate and by what was seen."
    )
    cause: str | None = Field(
        None,
        json_schema_extra={"enum": ["shortage", "fragmentation", "host", "paged_spill", None]},
    )
    cause_confidence: str | None = Field(
        default=None, description="high, medium, low or none; null without a cause"
    )
    cause_evidence: list[str]
    matches: list[OomMatch]
    fixes: list[OomFix]
    smallest_combination: list[OomCombined]
    combination_needs_bytes: Range | None = None
    combination_costs: OomCosts | None = None
    card_too_small: bool | None = None
    assumptions: list[Assumption]
    warnings: list[Notice]
