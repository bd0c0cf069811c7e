"""The answer of ``schedule``: who runs where and when, how good that is, and what makes it fail."""

from __future__ import annotations

from pydantic import Field, FiniteFloat

from tuneplan.contract.parts import Assumption, Bytes, Fraction, Header, Money, Notice, Part, Range


class ScheduledOn(Part):
    """The cards that a job gets on one machine."""

    machine: str
    accelerator: str
    cards: list[int] = Field(description="Counted from 0.")


class ScheduledJob(Part):
    """A job in the schedule; a bar of its Gantt chart."""

    name: str
    priority: int
    after: list[str]
    on: list[ScheduledOn]
    need_bytes: Bytes | None = None
    start_s: FiniteFloat = Field(description="From the start of the schedule.")
    end_s: FiniteFloat
    starts_at: str = Field(description="ISO 8601.")
    ends_at: str
    duration_s: Range
    deadline_s: FiniteFloat | None = None
    late_s: FiniteFloat
    cost: Money | None = None


class PoolMachine(Part):
    """A machine of the pool and how much of it stands idle until the last job ends."""

    name: str
    accelerator: str
    cards: int
    memory_bytes: Bytes
    price: Money | None = Field(default=None, description="Per hour of the whole machine.")
    busy_card_hours: FiniteFloat
    idle_fraction: Fraction


class Totals(Part):
    """What a schedule comes to."""

    makespan_s: FiniteFloat
    lateness_s: FiniteFloat = Field(description="Seconds late times priority.")
    num_late: int
    cost: Money | None = None


class BrokenDeadline(Part):
    """A deadline that cannot be kept."""

    name: str
    end_s: FiniteFloat
    deadline_s: FiniteFloat
    alone: bool = Field(description="Even with the whole pool for itself.")
    message: str


class ScheduleAnswer(Header):
    """The answer of ``schedule``."""

    objective: str = Field(json_schema_extra={"enum": ["makespan", "cost", "lateness"]})
    status: str = Field(
        json_schema_extra={"enum": ["optimal", "feasible", "infeasible", "unknown"]},
        description="`feasible`: the time ended before the proof.",
    )
    objective_value: FiniteFloat | None = Field(description="Seconds, or an amount of money.")
    objective_bound: FiniteFloat | None = Field(description="No schedule is better than this.")
    gap_fraction: FiniteFloat | None = None
    elapsed_s: FiniteFloat
    starts_at: str
    jobs: list[ScheduledJob]
    machines: list[PoolMachine]
    idle_fraction: Fraction | None = None
    makespan_s: Range | None = Field(
        default=None,
        description="The same order with every job at its low, likely and high duration.",
    )
    total: Totals | None = None
    first_come: Totals = Field(description="In the order given, none overtaking another.")
    infeasible: list[BrokenDeadline]
    assumptions: list[Assumption]
    warnings: list[Notice]
    written: list[str]
