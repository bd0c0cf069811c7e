"""What could be changed about a configuration: the changes that make sense for it.

Nothing is judged here: a change that the framework or the chip refuses is found out when it is
estimated, and one that helps nothing is found out by its figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tuneplan.estimation.batches import sample_lengths
from tuneplan.planner.change import Change
from tuneplan.planner.layout_changes import (
    fewer_cards,
    more_cards,
    no_offload,
    one_card,
    strategies_of,
    stronger_layouts,
    unsplit,
    whole_weights,
)
from tuneplan.planner.recipe_changes import (
    checkpointing,
    flash_attention,
    fused_loss,
    half_precision,
    half_weights,
    lacking,
    lora,
    micro_batch,
    no_checkpointing,
    optimizer_8bit,
    packing,
    qlora,
    rarer_evaluation,
    rarer_saving,
    shorter_length,
)
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import AttentionKernel, Checkpointing, DType, LossPath, Method, Objective

_LENGTHS: Final = (
    *(256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384),
    *(24_576, 32_768, 49_152, 65_536, 131_072),
)
_LARGER: Final = (2, 4, 8)
_CARDS: Final = (2, 4, 8)
_FLASH: Final = (AttentionKernel.FLASH_2, AttentionKernel.FLASH_3, AttentionKernel.SDPA_FLASH)


def changes_of(resolved: Resolved) -> tuple[Change, ...]:
    """Every change that makes sense for a configuration, none of them estimated yet."""
    return tuple(
        change
        for kind in _KINDS
        for change in kind(resolved)
        if lacking(resolved.recipe.framework, change) is None
    )


def packings(resolved: Resolved) -> Iterator[Change]:
    """Packing, where samples are joined by nothing yet and their lengths are known."""
    recipe, batch = resolved.recipe, resolved.batch
    if recipe.packing or recipe.objective not in (Objective.SFT, Objective.PRETRAIN):
        return
    if resolved.dataset.statistics is None:  # rows are taken as full then
        return
    rows = max(1, round(batch.positions / recipe.max_length))
    per_row = recipe.max_length / max(batch.real_tokens / max(batch.samples, 1e-9), 1.0)
    wanted = batch.samples * recipe.gradient_accumulation_steps
    yield packing(resolved, rows, max(1, round(wanted / (rows * per_row))))


def checkpointings(resolved: Resolved) -> Iterator[Change]:
    """On where it is off, off where it is on."""
    off = resolved.recipe.gradient_checkpointing is Checkpointing.NONE
    yield checkpointing() if off else no_checkpointing()


def _batches(resolved: Resolved) -> Iterator[Change]:
    recipe = resolved.recipe
    rows, accumulation = recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps
    for fewer in sorted({math.ceil(rows / 2), 1} - {rows}, reverse=True):
        yield micro_batch(resolved, fewer, math.ceil(accumulation * rows / fewer))
    for factor in _LARGER:
        if accumulation % factor == 0:
            yield micro_batch(resolved, rows * factor, accumulation // factor)


def attentions(resolved: Resolved) -> Iterator[Change]:
    """Flash attention, where the chip has it and something else runs."""
    chip = resolved.accelerator
    if resolved.recipe.attention in _FLASH or (chip and not chip.supports_flash_attention_2):
        return
    yield flash_attention()


def fused_losses(resolved: Resolved) -> Iterator[Change]:
    """A loss without whole logits, and Liger's other kernels with it."""
    recipe = resolved.recipe
    change = fused_loss(recipe.framework, resolved.job.recipe.training.loss)
    there = (LossPath.FUSED_LINEAR, *((LossPath.CHUNKED,) if change.name != "liger" else ()))
    if recipe.loss.path not in there:
        yield change


def half_dtypes(resolved: Resolved) -> Iterator[Change]:
    """Weights in bf16, where they are in fp32 and the chip computes in bf16."""
    recipe, chip = resolved.recipe, resolved.accelerator
    native = chip is None or chip.supports_bf16
    if recipe.frozen_dtype is DType.FLOAT32 and native and recipe.quantization is None:
        yield half_weights("bfloat16", full=not recipe.method.uses_adapter)


def _precisions(resolved: Resolved) -> Iterator[Change]:
    recipe, chip = resolved.recipe, resolved.accelerator
    native = chip is None or chip.supports_bf16
    wanted = DType.FLOAT32 if native else DType.BFLOAT16
    if recipe.compute_dtype is wanted:
        yield half_precision(recipe.framework, native=native)


def _optimizers(resolved: Resolved) -> Iterator[Change]:
    change = optimizer_8bit(resolved.recipe.optimizer.family)
    if change is not None:
        yield change


def _lengths(resolved: Resolved) -> Iterator[Change]:
    """The shortest usual context that keeps 99 % of the samples whole."""
    statistics, recipe = resolved.dataset.statistics, resolved.recipe
    if statistics is None or not statistics.num_samples:
        return
    lengths = sample_lengths(statistics)
    longest = float(np.quantile(lengths, 0.99))
    enough = next((length for length in _LENGTHS if length >= longest), recipe.max_length)
    if enough > recipe.max_length / 1.5:
        return
    accumulation = None
    if recipe.packing:
        rows = recipe.gradient_accumulation_steps * recipe.max_length / enough
        accumulation = max(1, round(rows))
    yield shorter_length(enough, float(np.mean(lengths > enough)), accumulation)


def _methods(resolved: Resolved) -> Iterator[Change]:
    method = resolved.recipe.method
    if method in (Method.FULL, Method.FREEZE):
        yield lora()
    if not method.quantized and method is not Method.DORA:
        yield qlora(method)


def _layouts(resolved: Resolved) -> Iterator[Change]:
    layout = resolved.parallelism
    yield from stronger_layouts(resolved)
    if layout.shards_parameters and layout.world_size == 1:
        yield unsplit()
    elif layout.shards_parameters and Strategy.DDP in strategies_of(resolved.recipe.framework):
        yield whole_weights()
    if layout.offload is not Offload.NONE:
        yield no_offload()


def _cards(resolved: Resolved) -> Iterator[Change]:
    cluster = resolved.cluster
    if cluster is None:
        return
    count = cluster.num_accelerators
    if count > 1:
        yield one_card(resolved, count)
    for number in _CARDS:
        if number < count:
            yield fewer_cards(resolved, number, count)
        elif number > count and cluster.num_nodes == 1:
            yield more_cards(resolved, 1, number)


def _four_times(every: float | None) -> float | None:
    """Four times an interval; None where there is none, or where a share would pass the run."""
    if not every or (every < 1 <= 4 * every):
        return None
    return 4 * every if every < 1 else 4 * int(every)


def _rarer(resolved: Resolved) -> Iterator[Change]:
    schedule = resolved.schedule
    rarer = _four_times(schedule.eval_steps)
    if rarer and resolved.dataset.statistics is not None:
        yield rarer_evaluation(rarer)
    rarer = _four_times(schedule.save_steps)
    if rarer:
        yield rarer_saving(rarer)


_KINDS: Final[tuple[Callable[[Resolved], Iterator[Change]], ...]] = (
    packings,
    checkpointings,
    _batches,
    attentions,
    fused_losses,
    half_dtypes,
    _precisions,
    _optimizers,
    _lengths,
    _rarer,
    _layouts,
    _cards,
    _methods,
)
