"""Verdicts on labelled runs: which were wrong, and why, as far as it was found out."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuneplan.planner.validate import ValidatedRow, Validation
from tuneplan.runs.comparison import DOES_NOT_FIT, FITS, TIGHT
from tuneplan.units import format_gib

BOUNDARY = ("fsdpq-cap", "unsl-ctx", "iiswc24-cap")
# Why verdicts were wrong, by the ids that a reason explains (regular expressions). A row that none
# of these names stands in the table as unexplained.
REASONS: tuple[tuple[str, str], ...] = (
    (
        r"field-sa-308$",
        (
            "it ran 8,402 steps and then failed by 208 MiB with 39.2 GiB in use, 7 more than are "
            "counted: what grew in 10 hours the report does not say"
        ),
    ),
    (
        r"field-fc-1781$",
        (
            "37.3 GiB were allocated, 5 more than are counted; eight cards failed too, so that it "
            "is nothing that sharding splits: not found out"
        ),
    ),
    (
        r"field-qwen-424$",
        (
            "DeepSpeed's copies of the trained weights are counted at rank 1, which is next to "
            "nothing; what took the other 12 GiB the report does not say"
        ),
    ),
    (
        r"field-unsloth-2366$",
        (
            "the report reckons with full fp32 logits of 262,208 words; the count has the loss by "
            "chunks that this version has for its other families"
        ),
    ),
    (
        r"bsg-00(4[89]|5\d|6\d|70)$",
        (
            "bigscience's launch lines for Megatron with ZeRO-3 split the checkpoints over the "
            "tensor ranks and keep them in main memory (`--partition-activations "
            "--checkpoint-in-cpu`); the table does not say so, and the count keeps them on the card"
        ),
    ),
    (
        r"litgpt-ch-0(30|43)$",
        (
            "the table contradicts itself: weights, gradients and states of 3.2 (3.8) billion "
            "parameters in bf16 are 25.7 (30.6) GB, more than was measured and than the card has"
        ),
    ),
    (
        r"mb-|mbcard-|dgxc-",
        (
            "the table leaves out what is recomputed and whether states are offloaded; a blank is "
            "taken as no recomputation"
        ),
    ),
    (
        r"tt-002[12]$",
        (
            "the table leaves out checkpointing and what the optimizer's step does; its memory has "
            "no unit, and on one card it is as much as the card has"
        ),
    ),
    (
        r"swift-old-058$",
        (
            "the comment contradicts the settings: the weights alone of 141 billion parameters "
            "over 4 cards are 70 GB a card, 41 are stated"
        ),
    ),
)


def reason_of(run_id: str) -> str:
    """Why a verdict on this run is wrong; blank where it is not known."""
    return next((text for pattern, text in REASONS if re.match(pattern, run_id)), "")


def wrong(found: Validation) -> list[ValidatedRow]:
    """Runs whose verdict contradicts what happened; ``tight`` contradicts nothing."""
    return [
        row
        for row in found.rows
        if row.predicted is not None
        and (
            (row.run.measured.out_of_memory is True and row.predicted.verdict == FITS)
            or (row.run.measured.out_of_memory is False and row.predicted.verdict == DOES_NOT_FIT)
        )
    ]


def verdict_rows(rows: Iterable[ValidatedRow]) -> list[str]:
    """A line each of the table of wrong verdicts, rows with one reason together."""
    groups: dict[str, list[ValidatedRow]] = {}
    for row in rows:
        groups.setdefault(reason_of(row.run.id) or f"? {row.run.id}", []).append(row)
    lines = []
    for reason, own in groups.items():
        first = own[0]
        predicted = first.predicted
        need = predicted.physics.likely_bytes if predicted and predicted.physics else 0.0
        capacity = predicted.physics.capacity_bytes if predicted and predicted.physics else None
        ids = ", ".join(row.run.id for row in own[:6]) + (", ..." if len(own) > 6 else "")
        said = first.predicted.verdict if first.predicted else ""
        happened = "ran out of memory" if first.run.measured.out_of_memory else "ran"
        text = "not found out" if reason.startswith("? ") else reason
        lines.append(
            f"| {len(own)} | {ids} | {happened}, `{said}` | {format_gib(need)} of "
            f"{format_gib(capacity or 0)} | {text} |"
        )
    return lines


def boundary_rows(found: Validation) -> list[str]:
    """A line each for runs that were published as "fits at X, not at X + 1"."""
    lines = []
    for row in found.rows:
        if row.run.source not in BOUNDARY:
            continue
        happened = {True: "ran out of memory", False: "ran", None: "the largest that ran"}
        if row.predicted is None:
            said = f"skipped: {row.reason}"
        elif row.predicted.verdict is not None:
            said = f"`{row.predicted.verdict}`"
            if row.predicted.verdict == TIGHT:
                said += ", as a boundary should be"
        else:  # a size of card alone
            device = row.predicted.peak_device_bytes
            need = format_gib(device.likely) if device else "-"
            said = f"{need} of {row.run.accelerator_memory_gb:g} GB"
        run = row.run
        lines.append(
            f"| {run.id} | {run.model} | {run.accelerator} x {run.accelerators} | "
            f"{run.micro_batch or '-'} x {run.max_length or '-'} | "
            f"{happened[run.measured.out_of_memory]} | {said} |"
        )
    return lines
