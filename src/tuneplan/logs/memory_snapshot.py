"""A memory snapshot of PyTorch: the peaks of the time that its history covers.

The file is a pickle. It is read by an unpickler that refuses every class and function, so nothing
in it is executed; what PyTorch writes holds dictionaries, lists, text and numbers alone. Source:
PyTorch ``torch/cuda/memory.py`` (``_dump_snapshot``), ``c10/cuda/CUDACachingAllocator.h`` (actions
of ``TraceEntry``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from tuneplan.language import message
from tuneplan.logs.refusing import unreadable
from tuneplan.spec.answer import Notice
from tuneplan.spec.run_log import LogPoint, Metric, RunLog

NAME: Final = "memory_snapshot"
_LARGEST_BYTES: Final = 4 * 2**30
_ENDINGS: Final = (".pickle", ".pkl")


class _Refused(pickle.UnpicklingError):
    """The pickle names a class or a function."""


class _PlainUnpickler(pickle.Unpickler):
    """Containers, text and numbers; everything that could run code is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise _Refused(f"{module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused(repr(pid)[:80])


def is_memory_snapshot(path: Path, head: bytes) -> bool:
    """A pickle by its ending and its first byte."""
    return path.suffix in _ENDINGS and head[:1] == b"\x80"


def read_memory_snapshot(path: Path) -> RunLog:
    """Peak allocated and reserved bytes of each card in the snapshot.

    Raises:
        UnreadableFile: It would run code, is broken, or no snapshot.
    """
    snapshot = _unpickled(path)
    if not isinstance(snapshot, Mapping) or not isinstance(snapshot.get("segments"), list):
        raise unreadable(path, message("log_no_snapshot", "it is no memory snapshot of PyTorch"))
    try:
        points = tuple(_points(snapshot))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(
            path, message("log_snapshot_broken", "a part of it is broken: {why}", why=repr(error))
        ) from None
    notice = Notice(
        message=message(
            "snapshot_covers_its_history",
            "the peak is that of the history which the snapshot holds, not of the whole run",
        ),
        path=str(path),
    )
    return RunLog(format=NAME, path=str(path), points=points, notices=(notice,))


def _unpickled(path: Path) -> Any:
    if path.stat().st_size > _LARGEST_BYTES:
        raise unreadable(path, message("log_over_4_gib", "it is larger than 4 GiB"))
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file).load()
    except _Refused as error:
        why = message(
            "pickle_refused",
            "it asks for {name}; a snapshot holds plain data only, so nothing of it was run",
            name=str(error),
        )
        raise unreadable(path, why) from None
    except Exception as error:  # a broken pickle can raise almost anything
        raise unreadable(path, str(error) or type(error).__name__) from None


def _points(snapshot: Mapping[str, Any]) -> Iterable[LogPoint]:
    segments = snapshot["segments"]
    traces = snapshot.get("device_traces") or []
    devices = {int(segment.get("device", 0)) for segment in segments}
    devices |= {number for number, trace in enumerate(traces) if trace}
    for device in sorted(devices):
        own = [segment for segment in segments if int(segment.get("device", 0)) == device]
        trace = traces[device] if device < len(traces) else []
        allocated = sum(int(segment["allocated_size"]) for segment in own)
        reserved = sum(int(segment["total_size"]) for segment in own)
        yield LogPoint(
            device=device,
            values={
                Metric.PEAK_ALLOCATED_BYTES: _peak(trace, allocated, "alloc", "free_completed"),
                Metric.PEAK_RESERVED_BYTES: _peak(
                    trace, reserved, "segment_alloc", "segment_free", "segment_map", "segment_unmap"
                ),
            },
        )


def _peak(trace: Sequence[Mapping[str, Any]], at_end: int, *actions: str) -> float:
    """The highest level of the history, walked backwards from what is held at its end."""
    taken, given = set(actions[::2]), set(actions[1::2])
    level = highest = at_end
    for entry in reversed(trace):
        if entry["action"] in taken:
            level -= int(entry["size"])
        elif entry["action"] in given:
            level += int(entry["size"])
        highest = max(highest, level)
    return float(highest)
