"""The answers of ``estimate``, ``plan``, ``explain``, ``catalog`` and the error object.

Each is made from keyword data and printed with ``model_dump(mode="json")``. What is unknown is
``None``, which is the default of every field that may be unknown. Data answers: ``measured.py``.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, FiniteFloat, JsonValue

from tuneplan.contract import SCHEMA_VERSION
from tuneplan.contract.lint import LintFinding
from tuneplan.contract.parts import (
    Assumption,
    Bytes,
    Fraction,
    Header,
    Moment,
    Money,
    MoneyRange,
    Moved,
    Notice,
    Number,
    Part,
    Range,
    Term,
    TimeTerm,
)
from tuneplan.language import current_language


class Hardware(Part):
    """What the job runs on."""

    accelerator: str
    count: int
    nodes: int
    link: str | None = None
    capacity_bytes: Bytes


class Data(Part):
    """What the job is trained on, in tokens."""

    num_samples: int | None = None
    total_tokens: Range | None = None
    tokens_per_step: FiniteFloat | None = None
    padding_fraction: Fraction | None = None
    worst_micro_batch_tokens: int | None = None


class Fit(Part):
    """Whether the job fits."""

    verdict: str = Field(json_schema_extra={"enum": ["fits", "tight", "does_not_fit"]})
    probability_fits: Fraction | None = None
    capacity_bytes: Bytes
    headroom_bytes: int
    deciding_quantity: str


class FitOn(Fit):
    """A row of the table over the cards, where no accelerator is stated."""

    accelerator: str


class PhaseMemory(Part):
    """Allocated bytes at the worst moment of a phase."""

    phase: str
    size_bytes: Bytes


class Memory(Part):
    """Memory of the worst rank. The terms sum to the likely allocated peak."""

    peak_bytes: Range
    peak_reserved_bytes: Range | None = None
    peak_device_bytes: Range | None = None
    peak_phase: str
    worst_rank: int
    terms: list[Term]
    by_phase: list[PhaseMemory]
    host_bytes: Range | None = None


class Model(Part):
    """Parameter counts."""

    total_parameters: int
    active_parameters: int
    trainable_parameters: int


class Time(Part):
    """Duration and rates. The terms sum to the likely step."""

    step_s: Range
    tokens_per_s_per_accelerator: Range
    real_tokens_per_s_per_accelerator: Range | None = None
    samples_per_s: Range | None = None
    mfu_fraction: FiniteFloat | None = None
    hfu_fraction: FiniteFloat | None = None
    steps: int | None = None
    train_s: Range | None = None
    eval_s: Range | None = None
    checkpoint_s: Range | None = None
    total_s: Range | None = None
    terms: list[TimeTerm]


class Offer(Part):
    """The price that the cost is made with."""

    provider: str
    name: str
    price: Money
    per: str
    as_of: str
    source: str
    region: str | None = None


class CostItem(Part):
    """One addend of the cost."""

    name: str
    amount: MoneyRange


class Cost(Part):
    """What the run costs."""

    total: MoneyRange
    offer: Offer
    items: list[CostItem]


class CheckpointWriting(Part):
    """One way to write checkpoints to one disk."""

    disk: str = Field(json_schema_extra={"enum": ["stated", "nvme", "sata_ssd", "network_10g"]})
    disk_bytes_per_s: FiniteFloat
    how: str = Field(json_schema_extra={"enum": ["gathered", "sharded", "asynchronous"]})
    stall_s: FiniteFloat = Field(description="Training stands still for so long at each save.")
    lost_fraction: Fraction = Field(description="Share of the run.")


class Upload(Part):
    """Data and model over one network, and by courier."""

    uplink: str
    size_bytes: Bytes
    ideal_s: FiniteFloat = Field(description="At the nominal rate.")
    likely_s: FiniteFloat = Field(description="At the efficiency that networks give for hours.")
    shipped_s: FiniteFloat
    ship_instead: bool


class Loader(Part):
    """What must arrive so that no card waits for data."""

    tokens_per_s: FiniteFloat
    disk_bytes_per_s: FiniteFloat = Field(description="To read it tokenised.")
    raw_bytes_per_s: FiniteFloat | None = Field(default=None, description="To read it as text.")
    cores_on_the_fly: FiniteFloat = Field(description="Busy with tokenising while it trains.")


class Storage(Part):
    """Room on disk, and the way of the data."""

    checkpoint_bytes: Bytes
    kept_bytes: Bytes | None = None
    dataset_bytes: Bytes | None = None
    num_saves: int | None = None
    num_kept: int | None = Field(
        default=None, description="On disk at once, the one being written among them."
    )
    tokenised_bytes: Bytes | None = None
    model_bytes: Bytes | None = None
    needed_bytes: Bytes | None = Field(
        default=None, description="Checkpoints, data as text and tokenised, and the model."
    )
    writings: list[CheckpointWriting] = Field(default_factory=list)
    uploads: list[Upload] = Field(default_factory=list)
    loader: Loader | None = None


class EstimateBody(Part):
    """An estimate without its header, as it stands in the entries of a plan too."""

    job: dict[str, Any]
    software: dict[str, str | None]
    hardware: Hardware | None = None
    data: Data | None = None
    assumptions: list[Assumption]
    warnings: list[Notice]
    fit: Fit | list[FitOn] | None = None
    memory: Memory
    model: Model
    time: Time | None = None
    accelerator_hours: Range | None = None
    cost: Cost | None = None
    storage: Storage | None = None
    energy_kwh: Range | None = None
    co2_kg: Range | None = None


class EstimateAnswer(EstimateBody, Header):
    """The answer of ``estimate``."""

    lint: list[LintFinding] = Field(
        default_factory=list, description="What stands out; `check` looks at more."
    )
    timeline: list[Moment] = Field(
        default_factory=list, description="Of the memory, where the job was traced before."
    )


class Search(Part):
    """How much was looked at."""

    num_candidates: int
    num_evaluated: int
    elapsed_s: FiniteFloat


class PlanEntry(Part):
    """One configuration of the shortlist."""

    rank: int
    id: str
    labels: list[str]
    pareto: bool
    settings: dict[str, JsonValue]
    estimate: EstimateBody


class FrontPoint(Part):
    """A candidate that none beats in cost, time and head-room together, as the search has it."""

    id: str
    settings: dict[str, JsonValue]
    total_s: FiniteFloat | None = Field(default=None, description="Likely.")
    cost: Money | None = Field(default=None, description="Likely.")
    headroom_fraction: FiniteFloat


class Lever(Part):
    """The one change that would help most."""

    change: str
    id: str | None = None
    saves: dict[str, JsonValue]
    settings: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keys of the job file to set; null = blank."
    )


class Rejection(Part):
    """Candidates that were rejected for one reason."""

    code: str
    count: int
    message: str
    example: dict[str, JsonValue] | None = None
    nearest_feasible: dict[str, JsonValue] | None = None


class Rejected(Part):
    """All that was rejected."""

    total: int
    by_reason: list[Rejection]


class PlanMoved(Moved):
    """One figure of one plan before and after the user's own measurements."""

    rank: int
    id: str


class PlanAnswer(Header):
    """The answer of ``plan``.

    ``moved``: with ``--calibration own``, each figure that the user's own measurements moved.
    """

    job: dict[str, Any]
    assumptions: list[Assumption]
    warnings: list[Notice]
    goal: str
    search: Search
    entries: list[PlanEntry]
    pareto: list[str]
    front: list[FrontPoint] = Field(
        default_factory=list, description="Those of `pareto`, fastest first; of many, some."
    )
    next_best_lever: Lever | None = None
    rejected: Rejected
    moved: list[PlanMoved] = Field(default_factory=list)
    lint: list[LintFinding] = Field(
        default_factory=list, description="What stands out about the first plan."
    )


class ExplainedInput(Part):
    """A symbol of a formula."""

    name: str
    value: JsonValue
    unit: str | None = None
    basis: str
    source: str | None = None
    how_to_set: str | None = None


class ExplainedNode(Part):
    """A figure, its formula and what it is made of."""

    name: str
    value: JsonValue = None
    unit: str | None = None
    formula: str
    basis: str | None = None
    source: str | None = None
    inputs: list[ExplainedInput]
    children: list[ExplainedNode]


class ExplainedFigure(Part):
    """A figure that can be explained for this job."""

    name: str
    value: JsonValue
    unit: str | None = None


class ExplainAnswer(Header):
    """The answer of ``explain``."""

    figure: str
    value: JsonValue
    unit: str | None = None
    tree: list[ExplainedNode]
    figures: list[ExplainedFigure] = Field(
        default_factory=list, description="All that can be explained for this job."
    )
    assumptions: list[Assumption] = Field(
        default_factory=list, description="Of the estimate that the figure stands in."
    )


class Fact(Part):
    """One field of a catalogue entry."""

    value: JsonValue
    unit: str | None = None
    source: str | None = None
    as_of: str | None = None
    confidence: str | None = None


class CatalogEntry(Part):
    """A model, an accelerator or a price."""

    name: str
    aliases: list[str] = Field(default_factory=list)
    fields: dict[str, Fact]
    overridden_by: str | None = None
    total_parameters: int | None = None
    active_parameters: int | None = None


class CatalogAnswer(Header):
    """The answer of ``catalog``."""

    kind: str = Field(json_schema_extra={"enum": ["models", "accelerators", "prices"]})
    entries: list[CatalogEntry]


class ErrorEntry(Part):
    """One mistake of a request."""

    code: str
    message: str
    path: str | None = None
    line: int | None = None
    column: int | None = None
    file: str | None = None
    value: JsonValue = None
    near: list[str] = Field(default_factory=list)
    how_to_fix: str | None = None
    places: list[ErrorEntry] = Field(
        default_factory=list, description="Where it stands, the first ones."
    )


class Errors(Part):
    """What stands on stdout with ``--json`` when there is no answer."""

    schema_version: int = SCHEMA_VERSION
    errors: list[ErrorEntry]


def header(command: str, *, as_of: str) -> dict[str, Any]:
    """The keyword data of an answer's header; ``as_of`` is the day, which only the caller knows."""
    from tuneplan._version import __version__

    return {
        "tuneplan_version": __version__,
        "command": command,
        "as_of": as_of,
        "language": current_language(),
    }


__all__ = [
    "CatalogAnswer",
    "CatalogEntry",
    "Cost",
    "CostItem",
    "Data",
    "ErrorEntry",
    "Errors",
    "EstimateAnswer",
    "EstimateBody",
    "ExplainAnswer",
    "ExplainedFigure",
    "ExplainedInput",
    "ExplainedNode",
    "Fact",
    "Fit",
    "FitOn",
    "FrontPoint",
    "Hardware",
    "Lever",
    "Memory",
    "Model",
    "Number",
    "Offer",
    "PhaseMemory",
    "PlanAnswer",
    "PlanEntry",
    "Rejected",
    "Rejection",
    "Search",
    "Storage",
    "Time",
    "header",
]
