"""A finding of the lint, as it stands in answers."""

from __future__ import annotations

from pydantic import Field, JsonValue

from tuneplan.contract.parts import Part


class LintFinding(Part):
    """One thing that a good colleague would point out."""

    rule: str
    severity: str = Field(json_schema_extra={"enum": ["error", "warning", "advice"]})
    path: str | None = Field(default=None, description="The key, as the user's file has it.")
    file: str | None = None
    line: int | None = None
    stated: bool = Field(description="Whether a file or a flag says the key.")
    message: str
    evidence: dict[str, JsonValue] = Field(
        description="Figures of this job; names end in their unit."
    )
    fix: str | None = None
