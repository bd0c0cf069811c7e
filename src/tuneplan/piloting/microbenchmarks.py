"""What a chip does at its best: products, attention, memory, launches. Imports PyTorch.

``python -m tuneplan.piloting.microbenchmarks DEVICE`` writes one line of JSON. Each figure is the
least of several repetitions: what else runs on the machine only adds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

_DTYPES: Final = ("float32", "bfloat16", "float16")
_REPETITIONS: Final = 5
_COPY_BYTES: Final = 256 * 2**20
_LARGEST_S: Final = 0.5  # a call that takes longer is not repeated
# Of a grid of products: rows, columns, and what is summed over; a processor has smaller ones.
_GRIDS: Final = {
    "cpu": ((16, 128, 1024, 4096), (128, 512, 2048), (128, 512, 2048)),
    "other": ((128, 1024, 8192, 32768), (256, 1024, 4096, 16384), (256, 1024, 4096, 16384)),
}
# Dtypes whose best product is this much slower than fp32's are emulated: no grid of theirs.
_EMULATED: Final = 4.0
# Of attention: width of a head, tokens, sequences x heads.
_ATTENTION: Final = {
    "cpu": ((64, 128), (128, 512, 2048), (4, 16)),
    "other": ((64, 128), (512, 2048, 8192, 32768), (8, 32, 128)),
}
_ATTENTION_FLOP: Final = 4e12  # a call of more operations is left out of the grid on a card
_STREAM_BYTES: Final = {"cpu": 16 * 2**20, "other": 256 * 2**20}
_LAUNCHES: Final = 500


def main() -> int:
    """Measure and write."""
    import torch

    device = sys.argv[1]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {
        "context_bytes": _context_bytes(device),
        "device": device,
        "name": _name(torch, device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory_bytes(torch, device),
        "capacity_bytes": _memory_bytes(torch, device),
        "compute_capability": _capability(torch, device),
        "bytes_per_s": _copy_rate(torch, device),
        **_products(torch, device),
        "attention": _attention(torch, device),
        **_streams(torch, device),
        "host_operation_s": _host_operation_s(torch, device),
        "synchronous": device == "cpu",
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _products(torch: Any, device: str) -> dict[str, Any]:
    """Best rate and the grid of each dtype that the device multiplies."""
    rates: dict[str, float] = {}
    grids: dict[str, Any] = {}
    rows, columns, depths = _GRIDS.get(device, _GRIDS["other"])
    for dtype in _DTYPES:
        square = 1024 if device == "cpu" else 4096
        first = _product_s(torch, device, dtype, (square, square, square))
        if first is None:
            continue
        rates[dtype] = 2.0 * square**3 / first
        if rates[dtype] * _EMULATED < rates.get("float32", 0.0):
            continue
        shapes = [(m, n, k) for m in rows for n in columns for k in depths]
        seconds = [_product_s(torch, device, dtype, shape) for shape in shapes]
        if None in seconds:
            continue
        sizes = [2.0 * m * n * k for m, n, k in shapes]
        pairs = zip(sizes, seconds, strict=True)
        rates[dtype] = max(rates[dtype], *(size / one for size, one in pairs if one))
        grids[dtype] = {"m": rows, "n": columns, "k": depths, "seconds": seconds}
    return {"flop_per_s": rates, "products": grids}


def _product_s(torch: Any, device: str, dtype: str, shape: Sequence[int]) -> float | None:
    """Seconds of one product as a linear layer has it; None where there is no kernel or room."""
    m, n, k = shape
    try:
        a = torch.ones((m, k), device=device, dtype=getattr(torch, dtype))
        b = torch.ones((n, k), device=device, dtype=getattr(torch, dtype))
        return best_of(torch, device, lambda: torch.nn.functional.linear(a, b))
    except RuntimeError:
        return None


def _attention(torch: Any, device: str) -> dict[str, Any] | None:
    """Forward rate of PyTorch's causal attention, counted as causality leaves it."""
    dims, lengths, heads = _ATTENTION.get(device, _ATTENTION["other"])
    dtype = torch.float32 if device == "cpu" else torch.float16
    rates: list[float] = []
    for dim in dims:
        for length in lengths:
            for head in heads:
                flop = 4.0 * dim * head * length * (length + 1) / 2
                if flop > _ATTENTION_FLOP:
                    rates.append(rates[-1])
                    continue
                try:
                    rates.append(flop / _attention_s(torch, device, dtype, (1, head, length, dim)))
                except RuntimeError:
                    return None
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "head_dims": dims,
        "lengths": lengths,
        "heads": heads,
        "flop_per_s": rates,
    }


def _attention_s(torch: Any, device: str, dtype: Any, shape: Sequence[int]) -> float:
    query = torch.ones(tuple(shape), device=device, dtype=dtype)
    run = torch.nn.functional.scaled_dot_product_attention
    return best_of(torch, device, lambda: run(query, query, query, is_causal=True))


def _streams(torch: Any, device: str) -> dict[str, float]:
    """Bytes per second of pointwise kernels: plain, with a cast, with strides.

    Their results are new tensors, as in training; on a processor that costs the faults of their
    pages, which a copy into memory that is there does not show.
    """
    size = _STREAM_BYTES.get(device, _STREAM_BYTES["other"]) // 4
    one = torch.ones(size, device=device)
    other = torch.ones(size, device=device)
    turned = torch.ones((size // 64, 64), device=device).t()
    return {
        "streaming_bytes_per_s": 12.0 * size / best_of(torch, device, lambda: one * other),
        "cast_bytes_per_s": 6.0 * size / best_of(torch, device, lambda: one.to(torch.bfloat16)),
        "strided_bytes_per_s": 8.0 * turned.numel() / best_of(torch, device, turned.contiguous),
    }


def _context_bytes(device: str) -> int | None:
    """What a process of the Trainer holds before there is a model, where the host is the device."""
    if device != "cpu":
        return None
    try:
        import peft  # noqa: F401 - it is what such a process holds
        from transformers import Trainer  # noqa: F401
    except ImportError:
        return None
    from tuneplan.piloting.surroundings import host_bytes

    return host_bytes()


def _host_operation_s(torch: Any, device: str) -> float:
    """Host time of one operation that autograd records; there is nothing to compute."""
    weight = torch.ones(8, device=device, requires_grad=True)

    def chain() -> None:
        value = weight
        for _ in range(_LAUNCHES):
            value = value * weight
        value.sum().backward()

    # Forward one kernel, backward two products and an addition.
    return best_of(torch, device, chain) / (4 * _LAUNCHES)


def _copy_rate(torch: Any, device: str) -> float:
    """A copy of what no cache holds, read and write counted, as STREAM's (McCalpin 1995)."""
    source = torch.ones(_COPY_BYTES, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2.0 * _COPY_BYTES / best_of(torch, device, lambda: target.copy_(source))


def best_of(torch: Any, device: str, work: Callable[[], Any]) -> float:
    """Seconds of one call, the least of several repetitions of many calls."""
    target_s = 0.02 if device == "cpu" else 0.05
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
        calls = max(1, min(int(target_s / max(best, 1e-9)), 10_000))
    return best


def _wait(torch: Any, device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def _name(torch: Any, device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name(0))
    from tuneplan.piloting.surroundings import processor

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
