"""The answer of ``trace``."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, FiniteFloat, create_model

from tuneplan.contract.answers import Fit, FitOn, Hardware, Memory, Model
from tuneplan.contract.parts import Assumption, Bytes, Header, Moment, Notice, Part


class Reserved(Part):
    """What PyTorch's allocator holds at most, by how the job comes to its longest micro-batch."""

    fresh_bytes: Bytes = Field(description="From an empty cache.")
    after_history_bytes: Bytes | None = Field(
        default=None,
        description="The most of all that the job leaves open: after micro-batches of 0.6, 0.7, "
        "0.8 and 0.9 of the length, or with weights that threads read ahead (transformers 5.0 to "
        "5.3). Null where nothing is open, or other lengths run other operations.",
    )
    expandable_fresh_bytes: Bytes = Field(description="Fresh, with expandable_segments:True.")
    expandable_after_history_bytes: Bytes | None = None


class TracedMemory(Memory):
    """Memory of one rank. The terms sum to the likely allocated peak."""

    reserved: Reserved
    fragmentation_bytes: Bytes = Field(
        description="At the allocated peak: free, but inside segments that are in use."
    )
    context_bytes: Bytes = Field(description="Outside the allocator: counted on top.")


class Alive(Part):
    """Equal blocks that are alive at the peak; in ``module`` a ``*`` stands for layers' numbers."""

    module: str
    kind: str
    operation: str
    dtype: str
    shape: list[int]
    size_bytes: Bytes
    count: int


# `class` is a keyword of Python, so the fields cannot be written as a class's.
_OPERATION_FIELDS: Final[dict[str, Any]] = {
    "class": (str, ...),
    "count": (int, ...),
    "flops": (int, ...),
    "bytes_moved": (int, ...),
}
OperationClass: Any = create_model(
    "OperationClass",
    __base__=Part,
    __doc__="Calls of a class of operations in both steps.",
    **_OPERATION_FIELDS,
)


class Remark(Part):
    """Something that stood in, or that is left out; ``count`` where it was counted."""

    name: str
    reason: str
    count: int | None = None


class Process(Part):
    """What tracing took, in the process that did it; with ``from_cache`` when it did."""

    from_cache: bool
    import_s: FiniteFloat
    trace_s: FiniteFloat
    host_peak_bytes: Bytes
    versions: dict[str, str]


class TraceAnswer(Header):
    """The answer of ``trace``."""

    job: dict[str, Any]
    software: dict[str, str | None]
    supported: bool = Field(
        description="The job's own code ran, with the stand-ins that are listed; false where "
        "transformers' model stood in for another library's."
    )
    hardware: Hardware | None = None
    sequences: int
    length: int
    assumptions: list[Assumption]
    warnings: list[Notice]
    fit: Fit | list[FitOn] | None = None
    fit_in: list[Fit] = Field(description="For each memory size that was asked for.")
    memory: TracedMemory
    model: Model
    peft_type: str | None = Field(
        default=None, description="PEFT's method, where --peft gave one in place of the adapter."
    )
    estimated_peak_bytes: Bytes | None = Field(
        description="The allocated peak by formula; null with --peft, whose methods have none."
    )
    timeline: list[Moment]
    at_peak: list[Alive]
    operations: list[OperationClass]
    stand_ins: list[Remark]
    not_modelled: list[Remark]
    process: Process
    elapsed_s: FiniteFloat
