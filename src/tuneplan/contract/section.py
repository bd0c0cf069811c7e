"""The base of every section of a job file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, nothing changes after reading."""

    # Validators are built when first used: a command builds only those it needs.
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )
