"""What could be changed about a configuration: each change as keys of the job file.

Nothing is judged here: a change that the framework or the chip refuses is found out when it is
estimated, and one that helps nothing is found out by its figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from tuneplan.estimation.batches import sample_lengths
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import (
    AttentionKernel,
    Checkpointing,
    DType,
    LossPath,
    Method,
    Objective,
    OptimizerFamily,
)

_LENGTHS: Final = (
    *(256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384),
    *(24_576, 32_768, 49_152, 65_536, 131_072),
)
_ROWS: Final = "training.per_device_train_batch_size"
_ACCUMULATION: Final = "training.gradient_accumulation_steps"
_LARGER: Final = (2, 4, 8)
_CARDS: Final = (2, 4, 8)
# Frameworks that split a job over cards with one kind of FSDP, and in no other way.
FSDP_ONLY: Final = {"torchtune": "fsdp2", "litgpt": "fsdp", "torchtitan": "fsdp2"}
SPLIT_NAMES: Final = {"zero3": "ZeRO-3", "fsdp": "FSDP", "fsdp2": "FSDP2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        name: Stable, e.g. ``packing``.
        settings: Keys of the job file and what they would say.
        note: What it changes besides memory, time and cost; None where that is nothing.
    """

    name: str
    message: Message
    settings: Mapping[str, Any]
    note: Message | None = None

    @property
    def kind(self) -> str:
        """The same for changes of which only one can be made: micro-batches, numbers of cards."""
        if self.name.startswith("cards_"):
            return "one_card"
        return self.name.partition(" ")[0].rstrip("0123456789")


def changes_of(resolved: Resolved) -> tuple[Change, ...]:
    """Every change that makes sense for a configuration, none of them estimated yet."""
    return tuple(change for kind in _KINDS for change in kind(resolved))


def other_card(name: str) -> Change:
    """The same job on another card."""
    return Change(
        name=f"card {name}",
        message=message("change_card", "a larger card: {name}", name=name),
        settings={"hardware.accelerator": name},
        note=message("change_card_note", "other hardware"),
    )


def _packing(resolved: Resolved) -> Iterator[Change]:
    recipe, batch = resolved.recipe, resolved.batch
    if recipe.packing or recipe.objective not in (Objective.SFT, Objective.PRETRAIN):
        return
    if resolved.dataset.statistics is None:  # rows are taken as full then
        return
    rows = max(1, round(batch.positions / recipe.max_length))
    per_row = recipe.max_length / max(batch.real_tokens / max(batch.samples, 1e-9), 1.0)
    wanted = batch.samples * recipe.gradient_accumulation_steps
    yield Change(
        name="packing",
        message=message(
            "change_packing", "pack samples into rows of {length:,} tokens, {rows} a micro-batch",
            length=recipe.max_length, rows=rows,
        ),
        settings={
            "training.packing": True,
            _ROWS: rows,
            _ACCUMULATION: max(1, round(wanted / (rows * per_row))),
        },
    )  # fmt: skip


def _checkpointing(resolved: Resolved) -> Iterator[Change]:
    key = "training.gradient_checkpointing"
    if resolved.recipe.gradient_checkpointing is Checkpointing.NONE:
        text = message("change_checkpointing_on", "switch activation checkpointing on")
        yield Change(name="checkpointing", message=text, settings={key: True})
        return
    text = message("change_checkpointing_off", "switch activation checkpointing off")
    yield Change(name="no_checkpointing", message=text, settings={key: False})


def _batch(resolved: Resolved) -> Iterator[Change]:
    recipe = resolved.recipe
    rows, accumulation = recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps
    smaller = sorted({math.ceil(rows / 2), 1} - {rows}, reverse=True)
    for fewer in smaller:
        yield Change(
            name=f"micro_batch_{fewer}",
            message=message(
                "change_smaller_batch",
                "micro-batch {rows} instead of {before}, accumulation {accumulation}",
                rows=fewer, before=rows, accumulation=math.ceil(accumulation * rows / fewer),
            ),
            settings={_ROWS: fewer, _ACCUMULATION: math.ceil(accumulation * rows / fewer)},
        )  # fmt: skip
    for factor in _LARGER:
        if accumulation % factor == 0:
            yield Change(
                name=f"micro_batch_{rows * factor}",
                message=message(
                    "change_larger_batch",
                    "micro-batch {rows} instead of {before}, accumulation {accumulation}",
                    rows=rows * factor, before=rows, accumulation=accumulation // factor,
                ),
                settings={_ROWS: rows * factor, _ACCUMULATION: accumulation // factor},
            )  # fmt: skip


def _attention(resolved: Resolved) -> Iterator[Change]:
    flash = (AttentionKernel.FLASH_2, AttentionKernel.FLASH_3, AttentionKernel.SDPA_FLASH)
    chip = resolved.accelerator
    if resolved.recipe.attention in flash or (chip and not chip.supports_flash_attention_2):
        return
    text = message("change_flash", "use flash attention")
    key = "training.attn_implementation"
    yield Change(name="flash_attention", message=text, settings={key: "flash_attention_2"})


def _fused(resolved: Resolved) -> Iterator[Change]:
    if resolved.recipe.loss.path is LossPath.FUSED_LINEAR:
        return
    text = message("change_liger", "use Liger's fused kernels (no logits are kept)")
    yield Change(name="liger", message=text, settings={"training.use_liger_kernel": True})


_NO_AUTOCAST: Final = ("torchtune",)  # one dtype for everything, no autocast beside it


def _element_types(resolved: Resolved) -> Iterator[Change]:
    recipe, chip = resolved.recipe, resolved.accelerator
    native = chip is None or chip.supports_bf16
    if recipe.frozen_dtype is DType.FLOAT32 and native and recipe.quantization is None:
        text = message("change_dtype", "load the weights in bfloat16")
        full = not recipe.method.uses_adapter
        note = message("change_pure_bf16", "small updates are lost to rounding in pure bf16")
        yield Change(
            name="bf16_weights",
            message=text,
            settings={"training.dtype": "bfloat16"},
            note=note if full else None,
        )
    if recipe.compute_dtype is DType.FLOAT32 and native and recipe.framework in _NO_AUTOCAST:
        yield Change(
            name="bf16",
            message=message("change_pure", "hold and compute everything in bf16 (dtype: bf16)"),
            settings={"training.dtype": "bfloat16", "training.precision": "none"},
            note=message("change_pure_bf16", "small updates are lost to rounding in pure bf16"),
        )
    elif recipe.compute_dtype is DType.FLOAT32 and native:
        text = message("change_precision", "compute in bf16")
        yield Change(name="bf16", message=text, settings={"training.precision": "bf16"})
    if recipe.compute_dtype is DType.BFLOAT16 and not native:
        text = message("change_fp16", "compute in fp16, which this chip has")
        settings = {"training.precision": "fp16", "training.dtype": "float16"}
        yield Change(name="fp16", message=text, settings=settings)


def _optimizer(resolved: Resolved) -> Iterator[Change]:
    if resolved.recipe.optimizer.family is not OptimizerFamily.ADAMW:
        return
    yield Change(
        name="optimizer_8bit",
        message=message("change_8bit", "an 8-bit AdamW (optim: adamw_bnb_8bit)"),
        settings={"training.optim": "adamw_bnb_8bit"},
        note=message("change_8bit_states", "optimizer states are kept in 8 bits"),
    )


def _length(resolved: Resolved) -> Iterator[Change]:
    """The shortest usual context that keeps 99 % of the samples whole."""
    statistics, recipe = resolved.dataset.statistics, resolved.recipe
    if statistics is None or not statistics.num_samples:
        return
    longest = float(np.quantile(sample_lengths(statistics), 0.99))
    enough = next((length for length in _LENGTHS if length >= longest), recipe.max_length)
    if enough > recipe.max_length / 1.5:
        return
    settings: dict[str, Any] = {"training.max_length": enough}
    text = message(
        "change_length", "max_length {length:,}, which keeps 99% of the samples whole",
        length=enough,
    )  # fmt: skip
    if recipe.packing:
        rows = recipe.gradient_accumulation_steps * recipe.max_length / enough
        settings[_ACCUMULATION] = max(1, round(rows))
        text = message(
            "change_length_packed", "max_length {length:,}, which keeps 99% of the samples whole, "
            "accumulation {accumulation}", length=enough, accumulation=settings[_ACCUMULATION],
        )  # fmt: skip
    yield Change(
        name="shorter_context",
        message=text,
        settings=settings,
        note=message("change_cut", "the longest samples are cut"),
    )  # fmt: skip


def _method(resolved: Resolved) -> Iterator[Change]:
    recipe = resolved.recipe
    note = message("change_method_note", "another method: fewer parameters learn")
    adapter = {"adapter.r": 16, "adapter.target_modules": "all-linear"}
    blank = {"training.trained_layers": None, "training.master_weights": None}
    if recipe.method in (Method.FULL, Method.FREEZE):
        text = message("change_lora", "train a LoRA adapter (r 16, all linear layers)")
        settings = {"method": "lora", **adapter, **blank}
        yield Change(name="lora", message=text, settings=settings, note=note)
    if not recipe.method.quantized and recipe.method is not Method.DORA:
        text = message("change_qlora", "QLoRA: the frozen base in 4 bits")
        settings = {"method": "qlora", "quantization.bits": 4, "quantization.type": "nf4", **blank}
        if not recipe.method.uses_adapter:
            settings |= adapter
        quantized = message("change_quantized_note", "the base is rounded to 4 bits")
        yield Change(name="qlora", message=text, settings=settings, note=quantized)


def _split(resolved: Resolved) -> str:
    """The layout that splits the weights, as the framework has it."""
    return FSDP_ONLY.get(resolved.recipe.framework, "zero3")


def _layout(resolved: Resolved) -> Iterator[Change]:
    layout, ranks = resolved.parallelism, resolved.parallelism.world_size
    split = _split(resolved)
    if ranks > 1 and not layout.shards_parameters:
        text = message("change_split", "split the weights too: {split} over {ranks} cards",
                       split=SPLIT_NAMES[split], ranks=ranks)  # fmt: skip
        yield Change(name="zero3", message=text, settings={"parallelism.strategy": split})
    if ranks > 1 and layout.strategy is Strategy.DDP and split == "zero3":
        text = message("change_zero2", "split gradients and optimizer states: ZeRO-2 over {ranks} "
                       "cards", ranks=ranks)  # fmt: skip
        yield Change(name="zero2", message=text, settings={"parallelism.strategy": "zero2"})
    if layout.shards_parameters and ranks == 1:
        text = message("change_unsplit", "no ZeRO or FSDP: one card has nobody to share with")
        settings = {"parallelism.strategy": "single", "parallelism.offload": None}
        yield Change(name="single", message=text, settings=settings)
    elif layout.shards_parameters and split == "zero3":
        text = message("change_ddp", "whole weights on each card (DDP): less is exchanged")
        settings = {"parallelism.strategy": "ddp", "parallelism.offload": None}
        yield Change(name="ddp", message=text, settings=settings)
    if layout.offload is not Offload.NONE:
        text = message("change_no_offload", "keep everything on the cards (no offload)")
        yield Change(name="no_offload", message=text, settings={"parallelism.offload": "none"})


def _cards(resolved: Resolved) -> Iterator[Change]:
    cluster = resolved.cluster
    if cluster is None:
        return
    count = cluster.num_accelerators
    if count > 1:
        settings = {"hardware.accelerators_per_node": 1, "hardware.num_nodes": 1,
                    "parallelism.strategy": None, "parallelism.offload": None,
                    **_same_step(resolved, 1)}  # fmt: skip
        text = message("change_one_card", "one card instead of {count}", count=count)
        yield Change(name="one_card", message=text, settings=settings)
    for fewer in _CARDS:
        if fewer < count:
            settings = {"hardware.accelerators_per_node": fewer, "hardware.num_nodes": 1,
                        **_same_step(resolved, fewer)}  # fmt: skip
            text = message("change_fewer_cards", "{fewer} cards instead of {count}",
                           fewer=fewer, count=count)  # fmt: skip
            yield Change(name=f"cards_{fewer}", message=text, settings=settings)
        elif fewer > count and cluster.num_nodes == 1:
            split = _split(resolved)
            settings = {"hardware.accelerators_per_node": fewer,
                        "parallelism.strategy": split, **_same_step(resolved, fewer)}  # fmt: skip
            text = message("change_more_cards", "{more} cards with the weights split ({split})",
                           more=fewer, split=SPLIT_NAMES[split])  # fmt: skip
            yield Change(name=f"cards_{fewer}", message=text, settings=settings)


def _same_step(resolved: Resolved, cards: int) -> dict[str, Any]:
    """Accumulation on another number of cards, so that a step sees about the same samples."""
    now = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
    return {
        _ROWS: resolved.recipe.per_device_train_batch_size,
        _ACCUMULATION: max(1, round(now / cards)),
    }


def _four_times(every: float | None) -> float | None:
    """Four times an interval; None where there is none, or where a share would pass the run."""
    if not every or (every < 1 <= 4 * every):
        return None
    return 4 * every if every < 1 else 4 * int(every)


def _rarer(resolved: Resolved) -> Iterator[Change]:
    schedule = resolved.schedule
    rarer = _four_times(schedule.eval_steps)
    if rarer and resolved.dataset.statistics is not None:
        text = message("change_rarer_evaluation", "evaluate four times less often: eval_steps "
                       "{steps:g}", steps=rarer)  # fmt: skip
        settings: dict[str, Any] = {"training.eval_strategy": "steps"}
        settings |= {"training.eval_steps": rarer}
        yield Change(name="rarer_evaluation", message=text, settings=settings)
    rarer = _four_times(schedule.save_steps)
    if rarer:
        text = message("change_rarer_saving", "write checkpoints four times less often: "
                       "save_steps {steps:g}", steps=rarer)  # fmt: skip
        settings = {"training.save_strategy": "steps"}
        settings |= {"training.save_steps": rarer}
        yield Change(name="rarer_saving", message=text, settings=settings)


_KINDS: Final[tuple[Callable[[Resolved], Iterator[Change]], ...]] = (
    _packing,
    _checkpointing,
    _batch,
    _attention,
    _fused,
    _element_types,
    _optimizer,
    _length,
    _rarer,
    _layout,
    _cards,
    _method,
)
