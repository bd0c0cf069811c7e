"""What of a job is traced: which batches, of which lengths."""

from __future__ import annotations

from typing import Final

from tuneplan.planner.resolving import Resolved
from tuneplan.tracing.wire import TraceRequest

_STEP_TOKENS: Final = (64, 16)


def request_of(resolved: Resolved) -> TraceRequest:
    """What is to be traced for the longest micro-batch to expect."""
    batch, accelerator = resolved.batch, resolved.accelerator
    length = max(round(batch.worst_length), 1)
    recipe = resolved.recipe
    varies = batch.varies and (not recipe.longest_first or recipe.empties_cache_steps > 0)
    return TraceRequest(
        architecture=resolved.model,
        recipe=resolved.recipe,
        parallelism=resolved.parallelism,
        sequences=max(round(batch.sequences), 1),
        length=length,
        shorter=shorter_length(length) if varies else None,
        compute_capability=accelerator.compute_capability if accelerator else None,
        evaluation_sequences=_evaluation_sequences(resolved),
    )


def _evaluation_sequences(resolved: Resolved) -> int:
    schedule, statistics = resolved.schedule, resolved.dataset.statistics
    evaluates = statistics is not None and statistics.num_eval_samples > 0
    if not evaluates or not schedule.evaluates:
        return 0
    return schedule.per_device_eval_batch_size * resolved.recipe.sequences_per_sample


def shorter_length(length: int) -> int | None:
    """A second length, about 0.6 of the first.

    The two differ by a multiple of 64 (or 16) tokens, so that both are padded alike: attention with
    a mask pads it to a multiple of 16.
    """
    for step in _STEP_TOKENS:
        less = round(0.4 * length / step) * step
        if less and less < length:
            return length - less
    return None
