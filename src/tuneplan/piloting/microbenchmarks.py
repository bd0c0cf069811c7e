"""What a chip does at its best: products and memory, measured here. Imports PyTorch.

``python -m tuneplan.piloting.microbenchmarks DEVICE`` writes one line of JSON. Products: square and
tall shapes of the sizes that training has, the best of several; memory: a copy of what no cache
holds, read and write counted, as STREAM's copy does (McCalpin 1995).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

_SHAPES: Final = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 1024), (4096, 4096, 4096))
_DTYPES: Final = ("float32", "bfloat16", "float16")
_TARGET_S: Final = 0.3  # of one repetition
_REPETITIONS: Final = 5
_COPY_BYTES: Final = 256 * 2**20
_LARGEST_S: Final = 0.5  # a shape that takes longer is the last of its dtype


def main() -> int:
    """Measure and write."""
    import torch

    device = sys.argv[1]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {
        "device": device,
        "name": _name(torch, device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory_bytes(torch, device),
        "capacity_bytes": _memory_bytes(torch, device),
        "compute_capability": _capability(torch, device),
        "flop_per_s": {name: _product_rate(torch, device, name) for name in _DTYPES},
        "bytes_per_s": _copy_rate(torch, device),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _product_rate(torch: Any, device: str, dtype: str) -> float | None:
    """The best rate of any shape; None where the device has no such products."""
    best = 0.0
    for m, n, k in _SHAPES:
        try:
            a = torch.ones((m, k), device=device, dtype=getattr(torch, dtype))
            b = torch.ones((k, n), device=device, dtype=getattr(torch, dtype))
            out = torch.empty((m, n), device=device, dtype=getattr(torch, dtype))
            seconds = best_of(torch, device, lambda: torch.mm(a, b, out=out))  # noqa: B023
        except RuntimeError:  # no kernel, or no memory
            break
        best = max(best, 2.0 * m * n * k / seconds)
        if seconds > _LARGEST_S:
            break
    return best or None


def _copy_rate(torch: Any, device: str) -> float:
    source = torch.ones(_COPY_BYTES, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2.0 * _COPY_BYTES / best_of(torch, device, lambda: target.copy_(source))


def best_of(torch: Any, device: str, work: Callable[[], Any]) -> float:
    """Seconds of one call, the least of several repetitions of many calls."""
    calls, best = 1, float("inf")
    work()
    for _ in range(_REPETITIONS):
        _wait(torch, device)
        began = time.perf_counter()
        for _ in range(calls):
            work()
        _wait(torch, device)
        seconds = time.perf_counter() - began
        best = min(best, seconds / calls)
        if seconds > _LARGEST_S:
            break
        calls = max(1, min(int(_TARGET_S / max(best, 1e-9)), 10_000))
    return best


def _wait(torch: Any, device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def _name(torch: Any, device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name(0))
    from tuneplan.piloting.worker import processor

    return f"{processor()} ({torch.get_num_threads()} threads)"


def _memory_bytes(torch: Any, device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _capability(torch: Any, device: str) -> float | None:
    if device != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return float(f"{major}.{minor}")


if __name__ == "__main__":
    sys.exit(main())
