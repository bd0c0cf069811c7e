"""The answer of ``budget``: hours and money of a project, and what moves them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, FiniteFloat, JsonValue

from tuneplan.contract.answers import Offer
from tuneplan.contract.parts import Assumption, Fraction, Header, Money, Notice, Part, Range

_PHASES: list[JsonValue] = ["proof_of_concept", "main", "hand_over"]


class HourQuantiles(Part):
    """Hours that half, four fifths, ... of all cases stay below."""

    p10: FiniteFloat
    p50: FiniteFloat
    p80: FiniteFloat
    p90: FiniteFloat
    p95: FiniteFloat
    mean: FiniteFloat


class MoneyQuantiles(Part):
    """Amounts that half, four fifths, ... of all cases stay below."""

    p10: Money
    p50: Money
    p80: Money
    p90: Money
    p95: Money
    mean: Money


class BudgetDriver(Part):
    """One open figure: the total where it alone is at its P10 or P90, all others at the median."""

    name: str
    job: int | None = Field(None, description="Place of the job; null for what all jobs share.")
    low: FiniteFloat
    high: FiniteFloat
    money_at_low: Money | None = None
    money_at_high: Money | None = None
    hours_at_low: FiniteFloat | None = None
    hours_at_high: FiniteFloat | None = None
    swing_fraction: FiniteFloat = Field(description="Distance of the two over the P50.")


class BudgetPhase(Part):
    """One phase of one job. Hours are of machines (of all cards of a run)."""

    phase: str = Field(json_schema_extra={"enum": _PHASES})
    first_week: int | None = None
    weeks: int
    rented_hours: HourQuantiles
    busy_hours: HourQuantiles
    money: MoneyQuantiles | None = None
    median_money: Money | None = None
    paid_hours: FiniteFloat = Field(description="Paid in the median case, terms among them.")
    idle_fraction: Fraction | None = Field(
        None, description="Of the paid hours of the median case, those in which nothing runs."
    )
    billing: str | None = Field(
        None, json_schema_extra={"enum": ["by_the_hour", "by_the_term", "on_hand", None]}
    )
    continues: bool = Field(description="Goes on with the rental of the phase before.")
    offer: Offer | None = None


class BudgetAlternative(Part):
    """The whole project on one offer alone, in the median case."""

    offer: Offer
    money: Money
    interruptible: bool


class BreakEvenPoint(Part):
    """What both offers cost for so many hours of use."""

    hours: FiniteFloat
    first: Money
    second: Money


class BreakEvenCrossing(Part):
    """From these hours on the other offer is the cheaper one."""

    hours: FiniteFloat
    cheaper: str = Field(json_schema_extra={"enum": ["first", "second"]})


class BreakEven(Part):
    """Two offers over hours of use, with the data of a chart."""

    first: Offer
    second: Offer
    hours: FiniteFloat | None = Field(None, description="The first crossing.")
    cheaper_at_first: str | None = None
    crossings: list[BreakEvenCrossing]
    points: list[BreakEvenPoint]


class Constraint(Part):
    """A limit that is not technical: what it excludes, and what it costs."""

    limit: str
    value: Any
    excluded: int
    only_by_this: int
    unknown: int
    examples: list[str]
    cheapest: Money | None = None
    cheapest_without: Money | None = None
    costs: Money | None = None


class BudgetedJob(Part):
    """One job of the project."""

    job: dict[str, Any]
    accelerator: str
    num_accelerators: int
    runs_in_parallel: int
    run_hours: Range
    num_experiments: int
    num_sweep_runs: int
    data_iterations: int
    phases: list[BudgetPhase]
    alternatives: list[BudgetAlternative]
    break_even: BreakEven | None = None
    constraints: list[Constraint]
    idle_cost_per_hour: Money | None = None
    storage_money: Money | None = None
    egress_money: Money | None = None
    energy_kwh: Range | None = None
    co2_kg: Range | None = None


class WeekPart(Part):
    """What one phase of one job has in a week."""

    job: int
    phase: str = Field(json_schema_extra={"enum": _PHASES})
    rented_hours: FiniteFloat
    busy_hours: FiniteFloat
    money: Money | None = None


class CalendarWeek(Part):
    """One week of the median case."""

    week: int
    starts_on: str | None = None
    rented_hours: FiniteFloat
    busy_hours: FiniteFloat
    idle_fraction: Fraction | None = None
    money: Money | None = None
    parts: list[WeekPart]


class BudgetAnswer(Header):
    """The answer of ``budget``."""

    jobs: list[BudgetedJob]
    currency: str
    seed: int | None = None
    draws: int
    rented_hours: HourQuantiles
    accelerator_hours: HourQuantiles
    money: MoneyQuantiles | None = None
    median_money: Money | None = Field(
        None, description="Every open figure at its median: what the calendar sums to."
    )
    drivers: list[BudgetDriver]
    calendar: list[CalendarWeek]
    within_budget: Fraction | None = None
    within_duration: Fraction | None = None
    assumptions: list[Assumption]
    warnings: list[Notice]
