"""What the parent asks of the child, and the events that the child answers with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.tracing.images import ImageSize
from tuneplan.tracing.wire import TraceRequest, read_request, request_document

_PLAIN = (
    *("arguments", "trainer", "sft", "rows", "pad_to", "weights", "num_steps"),
    *("until_steady", "time_limit_s", "memory_limit_bytes", "device", "seed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRequest:
    """One pilot.

    Attributes:
        model: Architecture and recipe, as for a trace.
        arguments: Of transformers' ``TrainingArguments``.
        trainer: ``transformers`` for its Trainer, ``trl`` for TRL's SFTTrainer.
        sft: Of TRL's ``SFTConfig``, beside ``arguments``.
        lengths: Rows of each micro-batch; the parent has chosen their order. Where TRL packs: of
            the samples that it packs.
        rows: File of tokens in rows of these lengths (``pilot_rows``); None for random ones.
        images: Of every row.
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
    trainer: str = "transformers"
    sft: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[tuple[int, ...], ...]
    rows: str | None = None
    images: tuple[ImageSize, ...] = ()
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
        **{name: getattr(request, name) for name in _PLAIN},
        "arguments": dict(request.arguments),
        "sft": dict(request.sft),
        "model": request_document(request.model),
        "lengths": request.lengths,
        "images": [[one.height, one.width] for one in request.images],
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
            "images": tuple(ImageSize(*one) for one in document["images"]),
        }
    )
