"""Use-case: the chip of this machine, measured, as an entry of an accelerator file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.errors import MissingExtra, UnreadableFile
from tuneplan.formats.file_text import yaml_text
from tuneplan.language import message, say
from tuneplan.piloting.runner import child_environment
from tuneplan.units import GIB, TERA

_TIME_LIMIT_S: Final = 300.0


def measure_chip(
    *, device: str, as_of: str, python: str = sys.executable, folder: str = "."
) -> str:
    """An accelerator file with what this machine's chip does at its best.

    Collectives between its cards (or two processes of a processor) are the chip's link; what the
    disk and the loader do stands above it, for a job file.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        as_of: The day, ISO 8601.
        python: The interpreter whose PyTorch measures.
        folder: On the disk that is measured.

    Raises:
        MissingExtra: PyTorch is not installed.
        UnreadableFile: The measurement failed; the message is the library's own.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtra(extra="pilot", purpose=say("measuring a chip"))
    found = _measured([python, "-m", "tuneplan.piloting.microbenchmarks", device], device)
    kind = str(found["device"])
    words = [python, "-m", "tuneplan.piloting.machine_benchmarks", kind, folder]
    return chip_file({**found, **_measured(words, device)}, as_of=as_of)


def _measured(words: list[str], device: str) -> dict[str, Any]:
    """The line of JSON that a benchmark writes."""
    done = subprocess.run(  # noqa: S603 - our own code, in the user's interpreter
        words,
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT_S,
        env=child_environment(),
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["?"]
        text = message("measure_failed", "the chip cannot be measured: {why}", why=last[0])
        raise UnreadableFile(text, path=device)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def chip_file(found: Mapping[str, Any], *, as_of: str) -> str:
    """What was measured, as the text of an accelerator file.

    No datasheet is known for the chip, so its dense rates are the measured ones: utilization is
    then of the best that the chip was seen to do.
    """
    rates = {
        dtype: f"{rate / TERA:.4g} TFLOP/s" for dtype, rate in found["flop_per_s"].items() if rate
    }
    entry = {
        "name": found["name"],
        "memory": f"{found['memory_bytes'] / GIB:.2f} GiB",
        "capacity": f"{found['capacity_bytes'] / GIB:.2f} GiB",
        "memory_bandwidth": f"{found['bytes_per_s'] / 1e9:.4g} GB/s",
        "dense_rate": rates,
        "measured_rate": rates,
        "supports_bf16": "bfloat16" in rates,
        "source": f"measured by tuneplan catalog accelerators --measure, torch {found['torch']}",
        "as_of": as_of,
    }
    if found["context_bytes"] is not None:
        entry["context"] = f"{found['context_bytes'] / GIB:.3f} GiB"
    entry |= _link(found)
    entry["kernels"] = _kernels(found)
    if found["compute_capability"] is not None:
        entry["compute_capability"] = found["compute_capability"]
    comment = message(
        "measured_chip_comment",
        "Measured, not from a datasheet. Use: accelerators: [this file] in a job file.",
    )
    head = f"# {comment}{_machine(found)}\n"
    return head + yaml_text((None, {"accelerators": [entry]}))


def _link(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a card (or process) sends another, in one direction."""
    rate = found.get("collective_bytes_per_s")
    if not rate:
        return {}
    written = f"{rate / 1e9:.4g} GB/s"
    if found["device"] == "cpu":
        return {"link": "pcie", "pcie_bandwidth": written}
    return {"link": "measured", "link_bandwidth": written}


def _machine(found: Mapping[str, Any]) -> str:
    """Comments with what a job file may say of this machine."""
    lines = []
    disk = found.get("disk_write_bytes_per_s")
    if disk:
        read = found.get("disk_read_bytes_per_s")
        lines.append(
            say(
                "Of this machine, for a job file: hardware: {{disk: {{bandwidth: {write}}}}}",
                write=f"{disk / 1e9:.3g} GB/s",
            )
        )
        if read:
            lines.append(say("The disk is read at {read}.", read=f"{read / 1e9:.3g} GB/s"))
    loader = found.get("loader_tokens_per_s")
    if loader:
        lines.append(
            say("One loader process makes {count:,} tokens a second ready.", count=round(loader))
        )
    processes = found.get("collective_processes")
    if processes:
        lines.append(
            say(
                "The link is that of an all-reduce of 64 MiB between {count} processes.",
                count=processes,
            )
        )
    return "".join(f"\n# {line}" for line in lines)


def _kernels(found: Mapping[str, Any]) -> dict[str, Any]:
    """The timings, as an accelerator file has them."""
    kernels: dict[str, Any] = {
        "streaming": f"{found['streaming_bytes_per_s'] / 1e9:.4g} GB/s",
        "cast": f"{found['cast_bytes_per_s'] / 1e9:.4g} GB/s",
        "strided": f"{found['strided_bytes_per_s'] / 1e9:.4g} GB/s",
        "host_operation_microseconds": _short(found["host_operation_s"] * 1e6),
        "synchronous": found["synchronous"],
        "products": {
            dtype: {
                **{axis: list(grid[axis]) for axis in ("m", "n", "k")},
                "microseconds": [_short(one * 1e6) for one in grid["seconds"]],
            }
            for dtype, grid in found["products"].items()
        },
    }
    attention = found["attention"]
    if attention is not None:
        kernels["attention"] = {
            "dtype": attention["dtype"],
            **{axis: list(attention[axis]) for axis in ("head_dims", "lengths", "heads")},
            "gflop_per_s": [_short(one / 1e9) for one in attention["flop_per_s"]],
        }
    return kernels


def _short(number: float) -> float:
    return float(f"{number:.4g}")
