"""What a trace found, as plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.tracing.recording import Block, Recording

_ROUND = 512  # CUDACachingAllocator.cpp kMinBlockSize: every block is a multiple of it


@dataclass(frozen=True, slots=True, kw_only=True)
class AliveGroup:
    """Equal blocks that are alive at the peak.

    Attributes:
        kind: ``frozen_weight``, ``trained_weight``, ``gradient``, ``optimizer_state``,
            ``activation`` (made in a forward), ``temporary`` or ``cublas_workspace``.
        module: Where they were made; a ``*`` stands for the layers' numbers.
        operation: What made them.
        size_bytes: Of all ``count`` together.
    """

    kind: str
    module: str
    operation: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """One traced job.

    Attributes:
        allocated_peak_bytes: Most that is allocated at once, block sizes rounded as by CUDA.
        by_phase: The same within each phase of the last step (``load`` of the first).
        phase_of_peak: Where the peak is.
        at_peak: What is alive then, largest first.
        timeline: ``(event index, allocated bytes)`` at every phase's begin, end and extremes.
        operations: Calls, FLOPs and bytes of each operation in the steps, without loading.
        notes: What did not run as on a GPU, by name, with a count.
        versions: Library to version.
    """

    allocated_peak_bytes: int
    by_phase: Mapping[str, int]
    phase_of_peak: str
    at_peak: tuple[AliveGroup, ...]
    timeline: tuple[tuple[int, int], ...] = ()
    operations: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    num_events: int = 0
    trace_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def rounded(size: int) -> int:
    """Bytes that the allocator hands out for a request."""
    return -(-size // _ROUND) * _ROUND


def summarize(
    recording: Recording, *, versions: Mapping[str, str] | None = None, trace_s: float = 0.0
) -> TraceResult:
    """Totals, phases and what is alive at the peak."""
    peak, at = 0, 0
    phases: dict[str, int] = {}
    peak_phase = ""
    timeline: list[tuple[int, int]] = []
    for index, phase, total in totals(recording):
        if total > phases.get(phase, -1):
            phases[phase] = total
        if total > peak:
            peak, at, peak_phase = total, index, phase
        timeline.append((index, total))
    phases.pop("other", None)
    return TraceResult(
        allocated_peak_bytes=peak,
        by_phase=phases,
        phase_of_peak=peak_phase,
        at_peak=alive_at(recording, at),
        timeline=thinned(timeline),
        operations=dict(recording.operations),
        notes=dict(recording.notes),
        versions=dict(versions or {}),
        num_events=len(recording.events),
        trace_s=trace_s,
    )


def totals(recording: Recording) -> Iterator[tuple[int, str, int]]:
    """``(event index, phase, allocated bytes after it)`` of every event."""
    marks, blocks = recording.marks, recording.blocks
    total, mark, phase = 0, 0, "load"
    for index, event in enumerate(recording.events):
        while mark < len(marks) and marks[mark][0] <= index:
            phase = marks[mark][1]
            mark += 1
        total += rounded(blocks[event].size) if event >= 0 else -rounded(blocks[~event].size)
        yield index, phase, total


def alive_at(recording: Recording, index: int) -> tuple[AliveGroup, ...]:
    """What is alive right after an event, equal blocks together, largest first."""
    groups: dict[tuple[str, str, str, str, tuple[int, ...]], tuple[int, int]] = {}
    for block in recording.blocks:
        if block.born < 0 or block.born > index or 0 <= block.died <= index:
            continue
        key = (
            kind_of(block, recording, index),
            starred(block.module),
            block.operation,
            block.dtype,
            block.shape,
        )
        count, size = groups.get(key, (0, 0))
        groups[key] = (count + 1, size + rounded(block.size))
    found = [
        AliveGroup(
            kind=kind, module=module, operation=operation, dtype=dtype, shape=shape,
            size_bytes=size, count=count,
        )
        for (kind, module, operation, dtype, shape), (count, size) in groups.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda group: -group.size_bytes))


def kind_of(block: Block, recording: Recording, index: int) -> str:
    """What a block is, by name where it was named, else by where it was born and dies."""
    if block.kind:
        return block.kind
    if block.phase in ("forward", "loss") and block.died >= 0:
        end = next(
            (at for at, phase, _ in recording.marks if at > block.born and phase == "backward"), 0
        )
        return "activation" if block.died > end else "temporary"
    del index
    return "temporary" if block.phase != "load" else "buffer"


def starred(module: str) -> str:
    """A module's path with layer numbers replaced by ``*``."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def thinned(points: list[tuple[int, int]], most: int = 2000) -> tuple[tuple[int, int], ...]:
    """At most about ``most`` points: the lowest and the highest of every stretch."""
    if len(points) <= most:
        return tuple(points)
    width = -(-2 * len(points) // most)
    kept: set[tuple[int, int]] = set()
    for start in range(0, len(points), width):
        stretch = points[start : start + width]
        kept.add(min(stretch, key=lambda point: point[1]))
        kept.add(max(stretch, key=lambda point: point[1]))
    return tuple(sorted(kept))
