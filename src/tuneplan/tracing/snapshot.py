"""A memory snapshot in the form of ``torch.cuda.memory._snapshot``, for PyTorch's memory viewer.

Source: PyTorch ``torch/csrc/cuda/memory_snapshot.cpp`` and ``torch/cuda/_memory_viz.py`` (2.9 to
2.13): ``segments`` as they are at the end, ``device_traces`` with what happened before. In place of
Python frames stand the model's module and the operation.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.blocks import Block, Pool
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.replay import TOP_ADDRESS, DownwardAllocator, Played, replay

_BASE: Final = 0x7FFF00000000 - TOP_ADDRESS  # the first segment lies high, as on a card
Frames = list[dict[str, Any]]


def write_snapshot(name: str | Path, played: Played) -> None:
    """Play a job from an empty cache and write what the viewer reads."""
    with Path(name).open("wb") as file:
        pickle.dump(snapshot(played), file, protocol=4)


def snapshot(played: Played) -> dict[str, Any]:
    """The content of the file."""
    allocator = _Observed()
    tracer = _Tracer(played.recording, allocator)
    replay(played, allocator=allocator, watch=tracer.saw)
    return {
        "segments": allocator.segments(tracer.frames_at),
        "device_traces": [allocator.trace],
        "allocator_settings": {"expandable_segments": False},
        "external_annotations": [],
    }


class _Tracer:
    """Says which frames belong to what the allocator did last."""

    def __init__(self, recording: Recording, allocator: _Observed) -> None:
        self.recording, self.allocator = recording, allocator
        self.frames_at: dict[int, Frames] = {}
        self.frames: dict[tuple[str, str, str], Frames] = {}

    def saw(self, index: int, _allocator: CachingAllocator) -> None:
        """Give the entries of one event their frames."""
        event = self.recording.events[index]
        block = self.recording.blocks[event if event >= 0 else ~event]
        key = (block.operation, block.module, block.phase)
        frames = self.frames.get(key)
        if frames is None:
            frames = self.frames[key] = _frames(*key)
        for entry in self.allocator.unnamed:
            entry["frames"] = frames
            if entry["action"] == "alloc":
                self.frames_at[entry["addr"]] = frames
        self.allocator.unnamed.clear()


def _frames(operation: str, module: str, phase: str) -> Frames:
    """Innermost first: the operation, then the modules from the inner to the outer one."""
    parts = [part for part in module.split(".") if part]
    paths = [".".join(parts[: len(parts) - n]) for n in range(len(parts))]
    names = [operation or "load", *paths, phase]
    return [{"name": name, "filename": phase, "line": 0} for name in names]


class _Observed(DownwardAllocator):
    """An allocator that writes down what it does.

    Attributes:
        trace: Entries as the viewer reads them.
        unnamed: Entries of the event that is being played.
        held: Blocks in use by address: their size, and what was asked for.
    """

    __slots__ = ("_segments", "_streams", "held", "trace", "unnamed")

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[dict[str, Any]] = []
        self.unnamed: list[dict[str, Any]] = []
        self.held: dict[int, tuple[int, int]] = {}
        self._segments: dict[int, tuple[int, Pool]] = {}
        self._streams: dict[int, int] = {}

    def malloc(self, size: int, stream: int = 0) -> Block | None:
        """As the allocator does; noted as ``alloc``."""
        for pool in self._pools_of(stream):
            self._streams[id(pool)] = stream
        block = super().malloc(size, stream)
        if block is not None:
            self.held[block.address] = (block.size, size)
            self._note("alloc", block.address, size, block.pool)
        return block

    def free(self, block: Block) -> None:
        """As the allocator does; noted as requested and completed."""
        address = block.address  # that of a freed block may become its neighbour's
        _, asked = self.held.pop(address)
        super().free(block)
        for action in ("free_requested", "free_completed"):
            self._note(action, address, asked, block.pool)

    def _taken(self, pool: Pool, size: int, needed: int) -> Block | None:
        block = super()._taken(pool, size, needed)
        if block is not None:
            self._segments[block.address] = (block.size, pool)
            self._note("segment_alloc", block.address, block.size, pool)
        return block

    def _release(self, pool: Pool, block: Block) -> None:
        super()._release(pool, block)
        self._segments.pop(block.address, None)
        self._note("segment_free", block.address, block.size, pool)

    def _note(self, action: str, address: int, size: int, pool: Pool) -> None:
        entry = {
            "action": action,
            "addr": _BASE + address,
            "size": size,
            "stream": self._streams[id(pool)],
            "time_us": len(self.trace),
            "frames": [],
        }
        self.trace.append(entry)
        self.unnamed.append(entry)

    def segments(self, frames: Mapping[int, Frames]) -> list[dict[str, Any]]:
        """What the allocator holds now, each segment with its blocks."""
        return [
            self._segment(address, size, pool, frames)
            for address, (size, pool) in sorted(self._segments.items())
        ]

    def _segment(
        self, start: int, total: int, pool: Pool, frames: Mapping[int, Frames]
    ) -> dict[str, Any]:
        used = sorted(at for at in self.held if start <= at < start + total)
        blocks, at = [], start
        for address in used:
            size, asked = self.held[address]
            if address > at:
                blocks.append(_block(at, address - at))
            blocks.append(_block(address, size, asked, frames.get(_BASE + address, [])))
            at = address + size
        if at < start + total:
            blocks.append(_block(at, start + total - at))
        return {
            "device": 0,
            "address": _BASE + start,
            "total_size": total,
            "allocated_size": sum(self.held[address][0] for address in used),
            "active_size": sum(self.held[address][0] for address in used),
            "requested_size": sum(self.held[address][1] for address in used),
            "stream": self._streams[id(pool)],
            "segment_type": "small" if pool.small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }


def _block(
    address: int, size: int, asked: int | None = None, frames: Frames | None = None
) -> dict[str, Any]:
    """A block in use, or a free one where nothing was asked for."""
    return {
        "address": _BASE + address,
        "size": size,
        "requested_size": asked or 0,
        "state": "inactive" if asked is None else "active_allocated",
        "frames": frames or [],
    }
