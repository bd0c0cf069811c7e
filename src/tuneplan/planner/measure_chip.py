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


def measure_chip(*, device: str, as_of: str, python: str = sys.executable) -> str:
    """An accelerator file with what this machine's chip does at its best.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        as_of: The day, ISO 8601.
        python: The interpreter whose PyTorch measures.

    Raises:
        MissingExtra: PyTorch is not installed.
        UnreadableFile: The measurement failed; the message is the library's own.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtra(extra="pilot", purpose=say("measuring a chip"))
    done = subprocess.run(  # noqa: S603 - our own code, in the user's interpreter
        [python, "-m", "tuneplan.piloting.microbenchmarks", device],
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
    return chip_file(json.loads(done.stdout), as_of=as_of)


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
    entry["kernels"] = _kernels(found)
    if found["compute_capability"] is not None:
        entry["compute_capability"] = found["compute_capability"]
    comment = message(
        "measured_chip_comment",
        "Measured, not from a datasheet. Use: accelerators: [this file] in a job file.",
    )
    return yaml_text((comment, {"accelerators": [entry]}))


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
