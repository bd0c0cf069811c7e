"""The answer of ``compare``: a few jobs side by side, and in what they differ."""

from __future__ import annotations

from pydantic import Field, JsonValue

from tuneplan.contract.answers import ErrorEntry, EstimateBody
from tuneplan.contract.parts import Assumption, Header, Part


class ComparedPlan(Part):
    """One of the jobs: its estimate, or what is wrong with it."""

    name: str
    estimate: EstimateBody | None = None
    errors: list[ErrorEntry] = Field(default_factory=list)


class ComparedKey(Part):
    """A key of the job file that is not the same in all."""

    key: str
    values: list[JsonValue] = Field(description="One for each plan, in their order.")


class ComparedFigure(Part):
    """Which plan has the least (or, of rates and head-room, the most) of a figure."""

    figure: str
    best: int = Field(description="Place in `plans`, counted from 0.")
    clearly: bool = Field(description="Whether its range lies apart from those of all others.")


class CompareAnswer(Header):
    """The answer of ``compare``."""

    plans: list[ComparedPlan]
    differences: list[ComparedKey]
    best: list[ComparedFigure]
    assumptions: list[Assumption] = Field(
        default_factory=list, description="Of the first plan; each estimate has its own."
    )
