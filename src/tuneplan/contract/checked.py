"""The answers of ``check`` and ``import``: what became of a configuration, and what is wrong."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from tuneplan.contract.answers import ErrorEntry, EstimateBody, Fit
from tuneplan.contract.lint import LintFinding
from tuneplan.contract.parts import Header, Notice, Part


class Key(Part):
    """A key of a configuration and what became of it."""

    key: str
    value: JsonValue = None
    file: str | None = None
    line: int | None = None
    why: str | None = Field(default=None, description="The reason, unless it was carried.")
    job_keys: list[str] = Field(
        default_factory=list, description="Where it stands in the job, if it was carried."
    )


class BestChange(Part):
    """A change, estimated on this job."""

    change: str
    name: str
    settings: dict[str, JsonValue] = Field(description="Keys of the job file to set.")
    saves: dict[str, JsonValue] = Field(
        description="peak_bytes, time_s, time_fraction, accelerator_hours, money: what is less."
    )
    costs: dict[str, JsonValue] = Field(description="The same names: what is more.")
    note: str | None = Field(default=None, description="What it changes besides.")
    fit_after: Fit | None = None


class CheckAnswer(Header):
    """The answer of ``check``."""

    format: str
    format_version: str | None = None
    files: list[str]
    job: dict[str, Any] = Field(description="The job as the files and flags state it.")
    carried: list[Key]
    not_carried: list[Key]
    irrelevant: list[Key]
    not_understood: list[Key]
    estimate: EstimateBody
    lint: list[LintFinding]
    not_judged: dict[str, str] = Field(
        description="Rules that could say nothing: accelerator, data or run (hours) is not known."
    )
    silenced: list[str] = Field(
        default_factory=list, description="Rules that the job silences and that had something."
    )
    best_changes: list[BestChange]
    warnings: list[Notice] = Field(description="Of the estimate and of reading the files.")


class ImportAnswer(Header):
    """The answer of ``import``."""

    format: str
    format_version: str | None = None
    files: list[str]
    job: dict[str, Any] = Field(description="The job file: what the configuration says, no more.")
    output: str | None = Field(default=None, description="The job file that was written.")
    carried: list[Key]
    not_carried: list[Key]
    irrelevant: list[Key]
    not_understood: list[Key]
    refused: list[ErrorEntry] = Field(
        description="What the configuration asks for and no estimate can be made of."
    )
    warnings: list[Notice]
