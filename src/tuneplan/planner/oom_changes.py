"""Which changes may cure a job of running out of memory, and where each cannot.

In the order of the mission's list; which of them helps, and how much, ``oom_ranking.py`` finds by
estimating the changed job. Changes of cards and layout are in ``oom_layout.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from tuneplan.diagnosis.oom_cause import Cause, unusable_bytes
from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.estimation.batches import sample_lengths
from tuneplan.language import Message, message
from tuneplan.planner.change import Lever, Price, outside_job
from tuneplan.planner.oom_layout import layout_levers, loading_levers, offload_levers
from tuneplan.planner.oom_situation import Situation, evaluates, evaluation_of
from tuneplan.planner.recipe_changes import (
    checkpointing,
    evaluation_batch,
    flash_attention,
    fused_loss,
    half_weights,
    lacking,
    lora,
    micro_batch,
    no_copies,
    optimizer_8bit,
    qlora,
    sdpa,
    shorter_length,
)
from tuneplan.spec.parallelism import Offload
from tuneplan.spec.recipe import Checkpointing, DType, LossPath
from tuneplan.units import format_gib


def levers(at: Situation) -> Iterator[Lever]:
    """Every lever of the mission's list, those that cannot help with the reason."""
    framework = at.resolved.recipe.framework
    for lever in _of_any_framework(at):
        has = tuple(one for one in lever.levels if lacking(framework, one) is None)
        if has or lever.cannot is not None:
            yield replace(lever, levels=has or lever.levels)
            continue
        because = message(
            "framework_lacks",
            "{framework} has no switch for {library}, as it is described here",
            framework=framework,
            library=lacking(framework, lever.levels[0]),
        )
        yield replace(lever, cannot=because)


def _of_any_framework(at: Situation) -> Iterator[Lever]:
    yield from _other_processes(at)
    yield _batch(at)
    yield _checkpointing(at)
    yield _attention(at)
    yield _evaluation(at)
    yield from _kept_logits(at)
    yield _length(at)
    yield _optimizer(at)
    yield from layout_levers(at)
    yield _method(at)
    yield _loss(at)
    yield _segments(at)
    yield _dtype(at)
    yield from _copies(at)
    yield from loading_levers(at)
    yield from offload_levers(at)


def _other_processes(at: Situation) -> Iterator[Lever]:
    others = at.failure.others_bytes if at.failure else None
    if others:
        text = message(
            "stop_others", "stop the other processes on the card (nvidia-smi lists them)"
        )
        yield Lever(levels=(outside_job("stop_others", text, saves_bytes=float(others)),))


def _batch(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    rows, times = recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps
    levels = tuple(
        micro_batch(at.resolved, smaller, times * rows // smaller)
        for smaller in range(rows - 1, 0, -1)
        if rows % smaller == 0
    )
    if levels:
        return Lever(levels=levels)
    text = message("change_batch_none", "a smaller micro-batch")
    return Lever(
        levels=(outside_job("smaller_batch", text),),
        cannot=message("batch_is_one", "the micro-batch is 1 already"),
    )


def _checkpointing(at: Situation) -> Lever:
    now = at.resolved.recipe.gradient_checkpointing
    there = now in (Checkpointing.FULL, Checkpointing.OFFLOAD)
    because = message("checkpoints_already", "it is on already") if there else None
    return Lever(levels=(checkpointing(),), cannot=because)


def _attention(at: Situation) -> Lever:
    recipe, accelerator = at.resolved.recipe, at.resolved.accelerator
    flash = accelerator is None or accelerator.supports_flash_attention_2
    because = None
    if not recipe.attention.keeps_scores:
        because = message(
            "no_scores", "{kernel} keeps no attention scores", kernel=recipe.attention.value
        )
    return Lever(levels=(flash_attention() if flash else sdpa(),), cannot=because)


def _evaluation(at: Situation) -> Lever:
    rows = at.resolved.schedule.per_device_eval_batch_size
    levels = tuple(
        evaluation_batch(smaller) for smaller in range(rows - 1, 0, -1) if rows % smaller == 0
    )
    because = _no_evaluation(at)
    if because is None and levels:
        return Lever(levels=levels)
    text = message("change_eval_batch_none", "a smaller evaluation batch")
    spoken_of = levels[-1] if levels else outside_job("eval_batch", text)
    if because is None:
        because = message("eval_batch_is_one", "the evaluation batch is 1 already")
    return Lever(levels=(spoken_of,), cannot=because)


def _no_evaluation(at: Situation) -> Message | None:
    stage = at.stage.stage
    if stage not in (Stage.EVALUATION, Stage.UNKNOWN):
        return message("not_in_evaluation", "it was not in an evaluation that memory ran out")
    if stage is Stage.UNKNOWN and not evaluates(at.resolved):
        return message("no_evaluation", "the job evaluates nothing")
    return None


def _kept_logits(at: Situation) -> Iterator[Lever]:
    """Logits of all evaluation samples, which a Trainer with metrics collects."""
    if at.stage.stage is not Stage.EVALUATION:
        return
    text = message(
        "change_kept_logits",
        "no logits kept over the evaluation (prediction_loss_only, or "
        "preprocess_logits_for_metrics; eval_accumulation_steps only moves them to main memory)",
    )
    statistics = at.dataset.statistics
    samples = statistics.num_eval_samples if statistics else 0
    each = evaluation_of(at.resolved).kept_bytes_per_sample
    saves = samples / at.resolved.parallelism.data * each if samples else None
    yield Lever(levels=(outside_job("kept_logits", text, saves_bytes=saves),))


_LENGTHS: Final = (0.75, 0.5, 0.375, 0.25, 0.125)
_LENGTH_STEP: Final = 64


def _length(at: Situation) -> Lever:
    resolved = at.resolved
    longest = int(min(resolved.recipe.max_length, resolved.batch.limit_length))
    shorter = [int(longest * share) // _LENGTH_STEP * _LENGTH_STEP for share in _LENGTHS]
    levels = tuple(
        shorter_length(length, _cut(at, length)) for length in shorter if length >= 2 * _LENGTH_STEP
    )
    if levels:
        return Lever(levels=levels)
    text = message("change_length_none", "a shorter max_length")
    return Lever(
        levels=(outside_job("shorter_length", text, price=Price.DATA),),
        cannot=message("short_already", "sequences have {length} tokens at most", length=longest),
    )


def _cut(at: Situation, length: int) -> float | None:
    """The share of the samples that are longer; None where their lengths are not known."""
    statistics = at.dataset.statistics
    if statistics is None or not statistics.num_samples:
        return None
    return float(np.mean(sample_lengths(statistics) > length))


def _optimizer(at: Situation) -> Lever:
    optimizer = at.resolved.recipe.optimizer
    change = optimizer_8bit(optimizer.family)
    if change is None:
        text = message("change_8bit_none", "8-bit optimizer states")
        because = message("small_states", "{name} keeps little already", name=optimizer.name)
        return Lever(levels=(outside_job("optimizer_8bit", text),), cannot=because)
    because_offloaded = None
    if at.resolved.parallelism.offload is not Offload.NONE:
        because_offloaded = message("states_on_host", "the states lie in main memory already")
    return Lever(levels=(change,), cannot=because_offloaded)


def _method(at: Situation) -> Lever:
    method = at.resolved.recipe.method
    levels = (qlora(method),) if method.uses_adapter else (lora(), qlora(method))
    if method.quantized:
        because = message("quantized_already", "the base is quantised already")
        return Lever(levels=levels, cannot=because)
    return Lever(levels=levels)


def _loss(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    because = None
    if recipe.loss.path in (LossPath.CHUNKED, LossPath.FUSED_LINEAR):
        because = message("no_logits", "no whole logits are made in training already")
    elif at.stage.stage is Stage.EVALUATION:
        because = message("logits_in_evaluation", "an evaluation makes whole logits all the same")
    change = fused_loss(recipe.framework, at.job.recipe.training.loss)
    return Lever(levels=(change,), cannot=because)


def _segments(at: Situation) -> Lever:
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(at.resolved.software.get("torch") or "2.13")
    except InvalidVersion:
        version = Version("2.13")
    name = "PYTORCH_ALLOC_CONF" if version >= Version("2.9") else "PYTORCH_CUDA_ALLOC_CONF"
    pieces = unusable_bytes(at.failure) if at.failure else None
    reserving = at.now.memory.reserving
    if pieces is None and reserving is not None:
        pieces = round(reserving.fragmentation_bytes)
    text = message(
        "change_segments", "{name}=expandable_segments:True in the environment", name=name
    )
    change = outside_job("expandable_segments", text, saves_bytes=float(pieces or 0))
    because = None
    if version < Version("2.0"):
        because = message("no_segments", "PyTorch has it from 2.0 on")
    elif at.cause.cause is not Cause.FRAGMENTATION:
        because = message(
            "no_fragmentation",
            "fragmentation is not the cause: it may give back {size}",
            size=format_gib(pieces or 0),
        )
    return Lever(levels=(change,), cannot=because)


def _dtype(at: Situation) -> Lever:
    recipe, accelerator = at.resolved.recipe, at.resolved.accelerator
    half = "bfloat16" if accelerator is None or accelerator.supports_bf16 else "float16"
    full = not recipe.method.uses_adapter
    held = recipe.trainable_dtype if full else recipe.frozen_dtype
    because = None
    if held is not DType.FLOAT32 or recipe.method.quantized:
        because = message("half_already", "they are in half precision already")
    return Lever(levels=(half_weights(half, full=full),), cannot=because)


def _copies(at: Situation) -> Iterator[Lever]:
    adapter = at.resolved.recipe.adapter
    if adapter is not None and adapter.modules_to_save:
        yield Lever(levels=(no_copies(adapter.modules_to_save),))
