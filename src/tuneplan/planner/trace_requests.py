"""What of a job is traced: which batches, of which lengths."""

from __future__ import annotations

import math
from typing import Final

from tuneplan.planner.resolving import Resolved
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.tracing.images import FIXED_SIZE, ImageSize
from tuneplan.tracing.wire import TraceRequest

_STEP_TOKENS: Final = (64, 16)
_GEMMA_3_TOKENS: Final = 256  # of an image, where its configuration is silent


def request_of(resolved: Resolved, images: tuple[ImageSize, ...] = ()) -> TraceRequest:
    """What is to be traced for the longest micro-batch to expect; ``images`` of every row."""
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
        shorter=shorter_length(length, image_tokens(resolved.model, images)) if varies else None,
        compute_capability=accelerator.compute_capability if accelerator else None,
        evaluation_sequences=_evaluation_sequences(resolved),
        images=images,
    )


def _evaluation_sequences(resolved: Resolved) -> int:
    schedule, statistics = resolved.schedule, resolved.dataset.statistics
    evaluates = statistics is not None and statistics.num_eval_samples > 0
    if not evaluates or not schedule.evaluates:
        return 0
    return schedule.per_device_eval_batch_size * resolved.recipe.sequences_per_sample


def image_tokens(model: ModelArchitecture, images: tuple[ImageSize, ...]) -> int:
    """Tokens that the images of a row take, as the processors of the traced families count them.

    Qwen's merge ``merge_size`` patches a side into a token, of sides rounded to whole tokens;
    Gemma 3's makes ``mm_tokens_per_image`` of every image.
    """
    tower = model.vision
    if tower is None or not images:
        return 0
    if model.model_type == FIXED_SIZE:
        return len(images) * int(model.hf_config.get("mm_tokens_per_image") or _GEMMA_3_TOKENS)
    pixels = tower.patch_size * tower.merge_size
    sides = ([max(round(side / pixels), 1) for side in (one.height, one.width)] for one in images)
    return sum(map(math.prod, sides))


def shorter_length(length: int, filled: int = 0) -> int | None:
    """A second length, about 0.6 of the first, and longer than what images fill of a row.

    The two differ by a multiple of 64 (or 16) tokens, so that both are padded alike: attention with
    a mask pads it to a multiple of 16.
    """
    room = length - filled - 1
    for step in _STEP_TOKENS:
        less = min(round(0.4 * length / step), room // step) * step
        if 0 < less < length:
            return length - less
    return None
