"""What the parent asks of the child, and the events that the child answers with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.tracing.wire import TraceRequest, read_request, request_document


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRequest:
    """One pilot.

    Attributes:
        model: Architecture and recipe, as for a trace.
        arguments: Of transformers' ``TrainingArguments``.
        lengths: Rows of each micro-batch; the parent has chosen their order.
        pad_to: Every row is padded to this; 0 pads to the longest of the micro-batch.
        weights: Folder of the model whose weights are loaded; None builds random ones.
        num_steps: At most.
        until_steady: The child ends as soon as the step time is steady.
        time_limit_s: Of the steps; the child ends by itself after it.
        memory_limit_bytes: Of the process (CPU) or on the card; None for no limit.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        seed: Of tokens and weights.
    """

    model: TraceRequest
    arguments: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[tuple[int, ...], ...]
    pad_to: int = 0
    weights: str | None = None
    num_steps: int = 40
    until_steady: bool = True
    time_limit_s: float = 120.0
    memory_limit_bytes: int | None = None
    device: str = "auto"
    seed: int = 0


def write_request(request: PilotRequest, path: Path) -> None:
    """Write what is asked where the child reads it."""
    document = {
        "model": request_document(request.model),
        "arguments": dict(request.arguments),
        "lengths": request.lengths,
        "pad_to": request.pad_to,
        "weights": request.weights,
        "num_steps": request.num_steps,
        "until_steady": request.until_steady,
        "time_limit_s": request.time_limit_s,
        "memory_limit_bytes": request.memory_limit_bytes,
        "device": request.device,
        "seed": request.seed,
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def read_pilot_request(path: Path) -> PilotRequest:
    """Read what ``write_request`` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return PilotRequest(
        **{
            **document,
            "model": read_request(document["model"]),
            "lengths": tuple(tuple(rows) for rows in document["lengths"]),
        }
    )
