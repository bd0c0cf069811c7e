"""The answer of ``levers``: what each switch of a configuration buys."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from tuneplan.contract.answers import Fit
from tuneplan.contract.parts import Assumption, Header, MoneyRange, Notice, Part, Range


class LeverFigures(Part):
    """What a configuration comes to."""

    fit: Fit | None = None
    peak_bytes: Range = Field(description="Allocated, of the worst rank.")
    step_s: Range | None = None
    total_s: Range | None = None
    accelerator_hours: Range | None = None
    cost: MoneyRange | None = None


class LeverEffect(Part):
    """A change, estimated on this job; what it saves is positive, what it costs negative."""

    id: str
    kind: str = Field(description="The same for changes of which only one can be made.")
    change: str
    settings: dict[str, JsonValue] = Field(
        description="Keys of the job file and what they would say; null = blank."
    )
    asks_for: str = Field(
        json_schema_extra={"enum": ["nothing", "speed", "numerics", "data", "method", "money"]}
    )
    note: str | None = Field(default=None, description="What it changes besides.")
    after: LeverFigures | None = None
    saves_bytes: Range | None = None
    saves_s: Range | None = Field(default=None, description="Of the whole run.")
    time_fraction: Range | None = Field(
        default=None,
        description="Share of the run that is saved; of a token's time where the run is unknown.",
    )
    saves_money: MoneyRange | None = None
    keeps_headroom: bool | None = Field(
        default=None, description="Whether it then surely fits and keeps limits.headroom."
    )
    cannot_help_because: str | None = None


class LeversAnswer(Header):
    """The answer of ``levers``: the best change for the job's goal first."""

    job: dict[str, Any]
    goal: str
    now: LeverFigures
    levers: list[LeverEffect]
    assumptions: list[Assumption]
    warnings: list[Notice]
