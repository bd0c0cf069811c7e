"""The answer of ``report``: the document itself, each text with its values beside it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, FiniteFloat

from tuneplan.contract.parts import Header, Part


class ReportedAmount(Part):
    """A number: as it is read, and as it is."""

    text: str
    value: FiniteFloat = Field(description="In `unit`, not rounded.")
    unit: str
    key: str = Field(description="What formulas call it; empty where none does.")
    formula: str = Field(description="With keys in braces; empty for what is given.")


class ReportedCell(Part):
    """Words, one number, or low, likely and high."""

    text: str
    amounts: list[ReportedAmount]


class ReportedFact(Part):
    """A name and what it is."""

    name: str
    cell: ReportedCell
    remark: str


class ReportedParagraph(Part):
    """Sentences."""

    kind: Literal["paragraph"]
    text: str
    tone: str = Field(
        json_schema_extra={"enum": ["plain", "loud", "quiet", "fits", "tight", "does_not_fit"]}
    )


class ReportedPoints(Part):
    """A list of sentences."""

    kind: Literal["points"]
    title: str
    items: list[str]


class ReportedFacts(Part):
    """Names beside their values."""

    kind: Literal["facts"]
    title: str
    rows: list[ReportedFact]


class ReportedColumn(Part):
    """A column of a table."""

    name: str
    unit: str


class ReportedTable(Part):
    """Rows under a head."""

    kind: Literal["table"]
    title: str
    columns: list[ReportedColumn]
    rows: list[list[ReportedCell]]
    note: str


class ReportedChart(Part):
    """A picture as a Vega-Lite specification."""

    kind: Literal["chart"]
    name: str
    title: str
    caption: str
    specification: dict[str, Any]


ReportedBlock = ReportedParagraph | ReportedPoints | ReportedFacts | ReportedTable | ReportedChart


class ReportedSection(Part):
    """A part with a heading; ``name`` is the same in every language."""

    name: str
    title: str
    blocks: list[ReportedBlock]


class ReportAnswer(Header):
    """The answer of ``report``."""

    kind: str = Field(json_schema_extra={"enum": ["estimate", "plan", "schedule", "budget"]})
    title: str
    subtitle: str
    sections: list[ReportedSection]
    written: list[str] = Field(description="The files that were written.")
