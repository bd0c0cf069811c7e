"""The answer of ``export``."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tuneplan.contract.parts import Assumption, Header, Notice, Part, Range


class ExportedPart(Part):
    """One file."""

    name: str
    purpose: str
    path: str | None = Field(
        default=None, description="Where it was written; null where nothing was written."
    )
    text: str


class ExportAnswer(Header):
    """The answer of ``export``."""

    framework: str
    framework_version: str | None = None
    job: dict[str, Any] = Field(description="The job as it is written: every blank filled.")
    files: list[ExportedPart]
    peak_bytes: Range = Field(
        description="Allocated at the peak as the job is planned, rows at full length, or of an "
        "ordinary one where nothing is cut."
    )
    exported_peak_bytes: Range | None = Field(
        default=None, description="The same of what the framework makes of the files."
    )
    assumptions: list[Assumption]
    warnings: list[Notice]
