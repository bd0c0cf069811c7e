"""What this machine does beside its chip: collectives, disk, loader. Imports PyTorch.

``python -m tuneplan.piloting.machine_benchmarks DEVICE FOLDER`` writes one line of JSON; what could
not be measured is null.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

_REPETITIONS: Final = 5
_COLLECTIVE_BYTES: Final = 64 * 2**20
_DISK_BYTES: Final = 256 * 2**20
_BLOCK_BYTES: Final = 8 * 2**20
_LOADER_ROWS: Final = 512
_ROW_TOKENS: Final = 1024
_JOIN_LIMIT_S: Final = 90.0


def main() -> int:
    """Measure and write."""
    device, folder = sys.argv[1], Path(sys.argv[2])
    found = {
        **_collectives(device),
        **_disk(folder),
        "loader_tokens_per_s": _loader_tokens_per_s(),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _collectives(device: str) -> dict[str, Any]:
    """Bus bandwidth of an all-reduce over all cards, or over two processes of a processor.

    Bytes a rank sends in one direction: 2 (n - 1) / n of the buffer, as nccl-tests counts it.
    """
    import torch
    from torch import multiprocessing

    cards = torch.cuda.device_count() if device != "cpu" else 0
    nothing = {"collective_bytes_per_s": None, "collective_processes": None}
    if device != "cpu" and cards < 2:
        return nothing
    count, backend = (cards, "nccl") if cards else (2, "gloo")
    with tempfile.TemporaryDirectory(prefix="tuneplan-collective-") as name:
        meeting, told = f"file://{name}/meeting", f"{name}/told"
        context = multiprocessing.start_processes(
            _rank, (count, backend, meeting, told), nprocs=count, join=False, start_method="spawn"
        )
        try:
            ended = time.monotonic() + _JOIN_LIMIT_S
            while not context.join(timeout=1.0):
                if time.monotonic() > ended:
                    return nothing
            seconds = float(Path(told).read_text(encoding="utf-8"))
        except (RuntimeError, OSError, ValueError, multiprocessing.ProcessException):
            return nothing
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
                process.join()
    sent = 2 * (count - 1) / count * _COLLECTIVE_BYTES
    return {"collective_bytes_per_s": sent / seconds, "collective_processes": count}


def _rank(rank: int, count: int, backend: str, meeting: str, told: str) -> None:
    import torch
    from torch import distributed

    distributed.init_process_group(backend, init_method=meeting, rank=rank, world_size=count)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    buffer = torch.ones(_COLLECTIVE_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(_REPETITIONS + 1):  # the first makes the connections
        distributed.barrier()
        began = time.perf_counter()
        distributed.all_reduce(buffer)
        if backend == "nccl":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
        buffer.fill_(1.0)
    if rank == 0:
        Path(told).write_text(str(best), encoding="utf-8")
    distributed.destroy_process_group()


def _disk(folder: Path) -> dict[str, float | None]:
    """Bytes per second written and on the disk, and read again past the page cache."""
    nothing = {"disk_write_bytes_per_s": None, "disk_read_bytes_per_s": None}
    block = os.urandom(_BLOCK_BYTES)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".tuneplan-disk-") as file:
            began = time.perf_counter()
            for _ in range(_DISK_BYTES // _BLOCK_BYTES):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            written_s = time.perf_counter() - began
            return {
                "disk_write_bytes_per_s": _DISK_BYTES / written_s,
                "disk_read_bytes_per_s": _read_rate(Path(file.name)),
            }
    except OSError:
        return dict(nothing)


def _read_rate(path: Path) -> float | None:
    """None where the system cannot be told to forget what it has just written."""
    if not hasattr(os, "posix_fadvise"):
        return None
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        while file.read(_BLOCK_BYTES):
            pass
        return _DISK_BYTES / (time.perf_counter() - began)


def _loader_tokens_per_s() -> float:
    """Positions that PyTorch's loader makes ready in one process: rows padded to batches of 8."""
    import numpy as np
    import torch

    from tuneplan.piloting.rows import TokenRow, collated

    generator = np.random.default_rng(0)
    rows = [
        TokenRow(
            ids=generator.integers(0, 1000, _ROW_TOKENS, dtype=np.int32),
            learned=np.ones(_ROW_TOKENS, dtype=np.bool_),
        )
        for _ in range(_LOADER_ROWS)
    ]
    loader = torch.utils.data.DataLoader(
        rows,
        batch_size=8,
        collate_fn=lambda batch: collated(batch, 0),
    )
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _batch in loader:
            pass
        best = min(best, time.perf_counter() - began)
    return _LOADER_ROWS * _ROW_TOKENS / best


if __name__ == "__main__":
    sys.exit(main())
