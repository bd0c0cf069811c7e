"""Three jobs that 18 other estimators were asked about, and what this one answers.

The ranges of the others were read off their answers to the same inputs, all run offline.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import sources_for
from tuneplan.units import format_gib


@dataclass(frozen=True)
class Asked:
    """A job, the others' range in GiB, and what decides it."""

    name: str
    job: dict[str, Any]
    others: tuple[float, float]
    decides: str


ASKED = (
    Asked(
        "Llama-2-7B, full, pure bf16 AdamW, 2,048 tokens, no checkpointing",
        {
            "model": "meta-llama/Llama-2-7b-hf", "method": "full", "framework": "generic",
            "training": {
                "dtype": "bfloat16", "precision": "none", "max_length": 2048, "packing": True,
                "per_device_train_batch_size": 1, "gradient_checkpointing": False,
                "optim": "adamw_torch",
            },
            "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 1},
        },
        (44.0, 142.0),
        "whether weights, gradients and states are bf16 (8 bytes a parameter) or fp32 (16): it "
        "is bf16, so the low half of the spread is right. The peak is in the optimizer's step, "
        "where a foreach temporary of all parameters stands beside weights, gradients and states.",
    ),
    Asked(
        "Llama-3-8B, LoRA r 16 on all linears, 4,096 tokens, checkpointing",
        {
            "model": "meta-llama/Meta-Llama-3-8B", "method": "lora", "framework": "trl==0.13.0",
            "software": {"transformers": "4.48.1", "torch": "2.4.1", "peft": "0.13.2"},
            "adapter": {"r": 16, "target_modules": "all-linear"},
            "training": {
                "dtype": "bfloat16", "max_length": 4096, "packing": True,
                "per_device_train_batch_size": 1, "gradient_checkpointing": True, "loss": "full",
            },
            "hardware": {"accelerator": "NVIDIA A100 SXM 80GB", "accelerators_per_node": 1},
        },
        (17.0, 36.0),
        "logits and loss: 4,096 x 128,256 logits in bf16, their fp32 copy and its gradient are "
        "several GiB. Estimators that leave them out are at the low end; those that hold several "
        "copies more than the framework does, or keep every layer's activations, at the high end.",
    ),
    Asked(
        "Llama-2-70B, QLoRA r 16, 2,048 tokens, checkpointing",
        {
            "model": "meta-llama/Llama-2-70b-hf", "method": "qlora", "framework": "trl==0.13.0",
            "software": {"transformers": "4.48.1", "torch": "2.4.1", "peft": "0.13.2"},
            "adapter": {"r": 16, "target_modules": "all-linear"},
            "training": {
                "max_length": 2048, "packing": True, "per_device_train_batch_size": 1,
                "gradient_checkpointing": True,
            },
            "hardware": {"accelerator": "NVIDIA A100 SXM 80GB", "accelerators_per_node": 1},
        },
        (41.0, 73.0),
        "what is not quantised: embeddings and head, which k-bit preparation turns into fp32, "
        "adapters in fp32 on all linears, and the hidden states in fp32 that follow from it. The "
        "4-bit weights alone are about 33 GiB in every estimator.",
    ),
)  # fmt: skip


def answered(asked: Asked) -> JobEstimate:
    """The estimate of one."""
    job = load_job(asked.job)
    return estimate_job(job, sources_for(job, today=date(2026, 11, 30)), replays=True)


def section() -> str:
    """The part of the page about them."""
    lines = [
        "| job | others | allocated | needed on the card | largest terms |",
        "|---|---|---|---|---|",
    ]
    notes = []
    for asked in ASKED:
        found = answered(asked)
        peak = found.memory.ranges.peak_bytes
        need = found.memory.ranges.needed_bytes
        terms = sorted(found.memory.terms, key=lambda term: -term.value)[:5]
        said = ", ".join(f"{term.kind} {format_gib(term.value)}" for term in terms)
        low, high = asked.others
        lines.append(
            f"| {asked.name} | {low:g} to {high:g} GiB | {format_gib(peak.low)} - "
            f"**{format_gib(peak.likely)}** - {format_gib(peak.high)} (in {found.memory.phase}) | "
            f"{format_gib(need.likely)} | {said} |"
        )
        place = (peak.likely / 2**30 - low) / (high - low)
        notes.append(
            f"- {asked.name.split(',')[0]}: {place:.0%} of the way from the lowest to the highest "
            f"of the others. What decides: {asked.decides}"
        )
    return "\n".join([*lines, "", *notes]) + "\n"
