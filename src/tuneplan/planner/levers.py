"""The one change that would help a configuration most: each tried in full, none guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tuneplan.errors import TuneplanError
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import StatedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change and what it saves.

    Attributes:
        key, value: The job key to set.
        saves: ``hours_fraction``, ``cost_fraction``, ``peak_bytes``: positive = less.
    """

    change: Message
    key: str
    value: object
    saves: Mapping[str, float]


def next_best_lever(
    job: StatedJob, now: JobEstimate, sources: Sources, dataset: Dataset
) -> Lever | None:
    """The change that shortens the run most, or, where none does, that frees most memory.

    None where no change saves at least 3 % of the time or of the memory.
    """
    tried: list[Lever] = []
    for key, value, change, changed in _changes(job, now):
        try:
            then = estimate_job(changed, sources, dataset=dataset)
        except TuneplanError:
            continue
        tried.append(Lever(change=change, key=key, value=value, saves=_saves(now, then)))
    fast = [lever for lever in tried if lever.saves.get("hours_fraction", 0.0) >= 0.03]
    if fast:
        return max(fast, key=lambda lever: (lever.saves["hours_fraction"], lever.key))
    peak = now.memory.ranges.peak_bytes.likely
    small = [lever for lever in tried if lever.saves["peak_bytes"] >= 0.03 * peak]
    return max(small, key=lambda lever: (lever.saves["peak_bytes"], lever.key)) if small else None


def _saves(now: JobEstimate, then: JobEstimate) -> dict[str, float]:
    saves = {
        "peak_bytes": now.memory.ranges.peak_bytes.likely - then.memory.ranges.peak_bytes.likely
    }
    fit = then.memory.fit
    runs = fit is None or fit.headroom_bytes >= 0
    if now.total_s is not None and then.total_s is not None and runs:
        saves["hours_fraction"] = 1 - then.total_s.likely / now.total_s.likely
    if now.cost is not None and then.cost is not None and runs:
        before, after = now.cost.total.likely, then.cost.total.likely
        if before.currency == after.currency and before.amount:
            saves["cost_fraction"] = float(1 - after.amount / before.amount)
    return saves


def _changes(job: StatedJob, now: JobEstimate) -> Iterator[tuple[str, object, Message, StatedJob]]:
    recipe, training = now.resolved.recipe, job.recipe.training

    def with_training(**changes: object) -> StatedJob:
        changed = replace(training, **changes)  # type: ignore[arg-type]
        return replace(job, recipe=replace(job.recipe, training=changed))

    if not recipe.packing:
        text = message("lever_packing", "pack samples (training.packing: true)")
        yield "training.packing", True, text, with_training(packing=True)
    if recipe.gradient_checkpointing.value != "none":
        text = message(
            "lever_checkpointing", "switch checkpointing off (training.gradient_checkpointing)"
        )
        key = "training.gradient_checkpointing"
        yield key, False, text, with_training(gradient_checkpointing=False)
    if not recipe.attention.value.startswith("flash"):
        text = message("lever_flash", "use flash attention (training.attn_implementation)")
        key = "training.attn_implementation"
        yield key, "flash_attention_2", text, with_training(attn_implementation="flash_attention_2")
    if not recipe.kernels.fused_norm:
        text = message("lever_liger", "use fused kernels (training.use_liger_kernel: true)")
        yield "training.use_liger_kernel", True, text, with_training(use_liger_kernel=True)
    if recipe.autocast and str(recipe.frozen_dtype) == "float32":
        text = message("lever_dtype", "load the weights in bfloat16 (training.dtype)")
        yield "training.dtype", "bfloat16", text, with_training(dtype="bfloat16")
