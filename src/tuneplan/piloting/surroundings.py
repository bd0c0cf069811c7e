"""What a training process can say of its memory, its chip and its libraries."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tuneplan.piloting.meter import gathered

_PEAKS: Final = ("allocated_bytes", "reserved_bytes", "device_bytes", "host_bytes")
_UNTOLD: Final = -1.0  # what a device does not tell, among numbers
_LIBRARIES: Final = (
    *("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes", "deepspeed"),
    *("flash-attn", "liger-kernel", "datasets"),
)


def host_bytes() -> int:
    """The most that this process has held so far (getrusage(2) counts KiB on Linux)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak(before_bytes: int) -> dict[str, int | None]:
    """The highest memory so far, of each kind that this device tells.

    A processor has no allocator that counts: what the process holds is its device memory, and what
    came on top of ``before_bytes``, before there was a model, stands for reserved memory.
    """
    import torch

    host = host_bytes()
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        alone = not torch.backends.mps.is_available()
        return {
            "allocated_bytes": None,
            "reserved_bytes": max(host - before_bytes, 0) if alone else None,
            "device_bytes": host if alone else None,
            "host_bytes": host,
        }
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes": total - free,
        "host_bytes": host,
    }


def rank_peaks(
    before_bytes: int, step_s: float | None
) -> tuple[dict[str, int | None], list[dict[str, Any]]]:
    """The peaks of the worst device, and those of each with its own mean step."""
    own = peak(before_bytes)
    told = gathered([*(_number(own[name]) for name in _PEAKS), _number(step_s)])
    ranks: list[dict[str, Any]] = [
        {
            **{name: _whole(value) for name, value in zip(_PEAKS, values, strict=False)},
            "step_s": values[-1] if values[-1] > 0 else None,
        }
        for values in told
    ]
    worst = {
        name: max((one[name] for one in ranks if one[name] is not None), default=None)
        for name in _PEAKS
    }
    return worst, ranks


def _number(value: float | None) -> float:
    return _UNTOLD if value is None else float(value)


def _whole(value: float) -> int | None:
    return None if value == _UNTOLD else int(value)


def environment(kind: str) -> dict[str, Any]:
    """Chip, count and versions; ``kind`` is the device's: ``cpu``, ``cuda``, ``mps``."""
    import torch

    software = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            software[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    toolkits = {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    software |= {name: version for name, version in toolkits.items() if version}
    return {
        "accelerator": torch.cuda.get_device_name(0) if kind == "cuda" else processor(),
        "device": kind,
        "num_accelerators": int(os.environ.get("WORLD_SIZE", "1")),
        "threads": torch.get_num_threads(),
        "software": software,
    }


def processor() -> str:
    """The CPU's own name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
