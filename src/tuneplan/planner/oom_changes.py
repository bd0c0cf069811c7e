"""The changes that may cure a job of running out of memory: what each sets, and where it cannot.

In the order of the mission's list; which of them helps, and how much, ``oom_ranking.py`` finds by
estimating the changed job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from enum import IntEnum
from typing import Final

import numpy as np

from tuneplan.diagnosis.oom_cause import Cause, unusable_bytes
from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.estimation.batches import sample_lengths
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.changes import FSDP_ONLY
from tuneplan.planner.oom_situation import (
    Situation,
    evaluates,
    evaluation_of,
    loaded_bytes,
    loads_whole,
    with_training,
)
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import Checkpointing, DType, LossPath, OptimizerFamily
from tuneplan.spec.stated import StatedAdapter, StatedJob, StatedQuantization
from tuneplan.units import format_gib


class Price(IntEnum):
    """What a change asks for, cheapest first."""

    NOTHING = 0  # the same run, at most slower
    SPEED = 1  # the host does a part
    NUMERICS = 2  # the same run with coarser states
    DATA = 3  # less of the data is seen
    METHOD = 4  # something else is trained
    MONEY = 5  # other hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a job.

    Attributes:
        settings: Job keys and their new values; empty where no job key says it.
        apply: Makes the changed job; None where no job key says it.
        saves_bytes: Where no estimate tells: what it saves on the card.
    """

    code: str
    text: Message
    price: Price
    settings: Mapping[str, object] = field(default_factory=dict)
    apply: Callable[[StatedJob], StatedJob] | None = None
    saves_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """Changes of one kind, the mildest first, of which one is chosen.

    Attributes:
        cannot: Why none of them can help; then ``levels`` holds the one that is spoken of.
    """

    name: str
    levels: tuple[Change, ...]
    cannot: Message | None = None


def levers(at: Situation) -> Iterator[Lever]:
    """Every lever of the mission's list, those that cannot help with the reason."""
    yield from _other_processes(at)
    yield _batch(at)
    yield _checkpointing(at)
    yield _attention(at)
    yield _evaluation(at)
    yield from _kept_logits(at)
    yield _length(at)
    yield _optimizer(at)
    yield _layout(at)
    yield _method(at)
    yield _loss(at)
    yield _segments(at)
    yield _dtype(at)
    yield from _copies(at)
    yield from _loading(at)
    yield _offload(at)
    yield from _offloaded_checkpoints(at)


def _one(change: Change, cannot: Message | None = None) -> Lever:
    return Lever(name=change.code, levels=(change,), cannot=cannot)


def _training_change(code: str, text: Message, price: Price, **settings: object) -> Change:
    return Change(
        code=code,
        text=text,
        price=price,
        settings={f"training.{name}": value for name, value in settings.items()},
        apply=lambda job: with_training(
            job, **{name: None if value == "auto" else value for name, value in settings.items()}
        ),
    )


def _other_processes(at: Situation) -> Iterator[Lever]:
    others = at.failure.others_bytes if at.failure else None
    if others:
        text = message(
            "stop_others", "stop the other processes on the card (nvidia-smi lists them)"
        )
        yield _one(
            Change(code="stop_others", text=text, price=Price.NOTHING, saves_bytes=float(others))
        )


def _batch(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    rows, times = recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps
    levels = [
        _training_change(
            "smaller_batch",
            message(
                "change_batch",
                "micro-batch {rows} with {times} accumulation steps (the same batch in all)",
                rows=smaller,
                times=times * rows // smaller,
            ),
            Price.NOTHING,
            per_device_train_batch_size=smaller,
            gradient_accumulation_steps=times * rows // smaller,
        )
        for smaller in range(rows - 1, 0, -1)
        if rows % smaller == 0
    ]
    if levels:
        return Lever(name="smaller_batch", levels=tuple(levels))
    text = message("change_batch_none", "a smaller micro-batch")
    return _one(
        Change(code="smaller_batch", text=text, price=Price.NOTHING),
        message("batch_is_one", "the micro-batch is 1 already"),
    )


def _checkpointing(at: Situation) -> Lever:
    change = _training_change(
        "checkpointing",
        message("change_checkpointing", "activation checkpointing"),
        Price.NOTHING,
        gradient_checkpointing=True,
    )
    now = at.resolved.recipe.gradient_checkpointing
    if now in (Checkpointing.FULL, Checkpointing.OFFLOAD):
        return _one(change, message("checkpoints_already", "it is on already"))
    return _one(change)


def _attention(at: Situation) -> Lever:
    recipe, accelerator = at.resolved.recipe, at.resolved.accelerator
    flash = accelerator is None or accelerator.supports_flash_attention_2
    change = _training_change(
        "flash_attention",
        message("change_attention", "flash attention")
        if flash
        else message("change_sdpa", "PyTorch's attention function (this chip has no flash kernel)"),
        Price.NOTHING,
        attn_implementation="flash_attention_2" if flash else "sdpa",
    )
    if recipe.attention.keeps_scores:
        return _one(change)
    because = message(
        "no_scores", "{kernel} keeps no attention scores", kernel=recipe.attention.value
    )
    return _one(change, because)


def _evaluation(at: Situation) -> Lever:
    rows = at.resolved.schedule.per_device_eval_batch_size
    levels = [
        _training_change(
            "eval_batch",
            message("change_eval_batch", "evaluation batch of {rows}", rows=smaller),
            Price.NOTHING,
            per_device_eval_batch_size=smaller,
        )
        for smaller in range(rows - 1, 0, -1)
        if rows % smaller == 0
    ]
    if levels:
        change = levels[-1]
    else:
        text = message("change_eval_batch_none", "a smaller evaluation batch")
        change = Change(code="eval_batch", text=text, price=Price.NOTHING)
    stage = at.stage.stage
    if stage not in (Stage.EVALUATION, Stage.UNKNOWN):
        because = message("not_in_evaluation", "it was not in an evaluation that memory ran out")
        return _one(change, because)
    if stage is Stage.UNKNOWN and not evaluates(at.resolved):
        return _one(change, message("no_evaluation", "the job evaluates nothing"))
    if not levels:
        return _one(change, message("eval_batch_is_one", "the evaluation batch is 1 already"))
    return Lever(name="eval_batch", levels=tuple(levels))


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
    yield _one(Change(code="kept_logits", text=text, price=Price.NOTHING, saves_bytes=saves))


_LENGTHS: Final = (0.75, 0.5, 0.375, 0.25, 0.125)
_LENGTH_STEP: Final = 64


def _length(at: Situation) -> Lever:
    resolved = at.resolved
    longest = int(min(resolved.recipe.max_length, resolved.batch.limit_length))
    shorter = [int(longest * share) // _LENGTH_STEP * _LENGTH_STEP for share in _LENGTHS]
    levels = [
        _training_change(
            "shorter_length",
            _length_text(at, length),
            Price.DATA,
            max_length=length,
        )
        for length in shorter
        if length >= 2 * _LENGTH_STEP
    ]
    if levels:
        return Lever(name="shorter_length", levels=tuple(levels))
    text = message("change_length_none", "a shorter max_length")
    return _one(
        Change(code="shorter_length", text=text, price=Price.DATA),
        message("short_already", "sequences have {length} tokens at most", length=longest),
    )


def _length_text(at: Situation, length: int) -> Message:
    statistics = at.dataset.statistics
    if statistics is None or not statistics.num_samples:
        return message("change_length", "max_length {length}", length=length)
    longer = float(np.mean(sample_lengths(statistics) > length))
    return message(
        "change_length_cuts",
        "max_length {length} (cuts {share:.0%} of the samples)",
        length=length,
        share=longer,
    )


_HAS_8_BIT: Final = (OptimizerFamily.ADAMW, OptimizerFamily.LION)


def _optimizer(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    change = _training_change(
        "optimizer_8bit",
        message("change_optimizer", "8-bit optimizer states (adamw_bnb_8bit)"),
        Price.NUMERICS,
        optim="adamw_bnb_8bit",
    )
    if recipe.optimizer.family not in _HAS_8_BIT:
        because = message("small_states", "{name} keeps little already", name=recipe.optimizer.name)
        return _one(change, because)
    if at.resolved.parallelism.offload is not Offload.NONE:
        return _one(change, message("states_on_host", "the states lie in main memory already"))
    return _one(change)


def _with_layout(strategy: str, offload: str | None = None) -> Callable[[StatedJob], StatedJob]:
    def apply(job: StatedJob) -> StatedJob:
        now = job.recipe.parallelism
        changed = replace(now, strategy=strategy, offload=offload or now.offload)
        return replace(job, recipe=replace(job.recipe, parallelism=changed))

    return apply


_STRONGER: Final[Mapping[Strategy, tuple[str, ...]]] = {
    Strategy.SINGLE: ("zero2", "zero3"),
    Strategy.DEVICE_MAP: ("zero2", "zero3"),
    Strategy.DDP: ("zero2", "zero3"),
    Strategy.ZERO1: ("zero2", "zero3"),
    Strategy.ZERO2: ("zero3",),
    Strategy.HSDP: ("fsdp2",),
}


def sharding_of(at: Situation) -> str:
    """The layout that splits everything, in the framework's own way."""
    now = at.resolved.parallelism.strategy
    if now in (Strategy.FSDP, Strategy.FSDP2, Strategy.HSDP, Strategy.ZERO3):
        return now.value
    return FSDP_ONLY.get(at.resolved.recipe.framework, "zero3")


def _layout(at: Situation) -> Lever:
    parallelism, framework = at.resolved.parallelism, at.resolved.recipe.framework
    stronger = _STRONGER.get(parallelism.strategy, ())
    if framework in FSDP_ONLY and stronger:
        stronger = (FSDP_ONLY[framework],)
    levels = tuple(
        Change(
            code="sharding",
            text=message(
                "change_layout",
                "{layout}: {what} split over the {count} cards",
                layout=_LAYOUT_NAMES[name],
                what=_SPLITS[name],
                count=at.resolved.cluster.num_accelerators if at.resolved.cluster else 1,
            ),
            price=Price.NOTHING,
            settings={"parallelism.strategy": name},
            apply=_with_layout(name),
        )
        for name in stronger
    )
    if parallelism.world_size == 1:
        text = message("change_sharding", "ZeRO or FSDP")
        return _one(
            Change(code="sharding", text=text, price=Price.NOTHING),
            message("one_card", "there is one card: nothing to share with"),
        )
    if levels:
        return Lever(name="sharding", levels=levels)
    text = message("change_sharding", "ZeRO or FSDP")
    because = message(
        "sharded_already",
        "{layout} splits everything already",
        layout=_LAYOUT_NAMES[parallelism.strategy.value],
    )
    return _one(Change(code="sharding", text=text, price=Price.NOTHING), because)


_LAYOUT_NAMES: Final = {
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "fsdp": "FSDP",
    "fsdp2": "FSDP2",
    "hsdp": "HSDP",
}
_SPLITS: Final[Mapping[str, Message]] = {
    "zero2": message("splits_states", "gradients and optimizer states, not the weights,"),
    **dict.fromkeys(
        ("zero3", "fsdp", "fsdp2"),
        message("splits_all", "weights, gradients and optimizer states"),
    ),
}


def _with_method(method: str) -> Callable[[StatedJob], StatedJob]:
    def apply(job: StatedJob) -> StatedJob:
        recipe = replace(
            job.recipe,
            method=method,
            adapter=job.recipe.adapter if job.recipe.method != "full" else StatedAdapter(),
            quantization=StatedQuantization(),
            training=replace(job.recipe.training, trained_layers=None, master_weights=None),
        )
        return replace(job, recipe=recipe)

    return apply


def _method(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    names = {"lora": "LoRA", "qlora": "QLoRA"}
    steps = ("qlora",) if recipe.method.uses_adapter else ("lora", "qlora")
    levels = tuple(
        Change(
            code="adapter",
            text=message(
                "change_method",
                "{method} in place of {now} (trains something else)",
                method=names[name],
                now=recipe.method.value,
            )
            if not recipe.method.uses_adapter
            else message("change_qlora", "QLoRA: the frozen base in 4 bits"),
            price=Price.METHOD,
            settings={"method": name},
            apply=_with_method(name),
        )
        for name in steps
    )
    if recipe.method.quantized:
        because = message("quantized_already", "the base is quantised already")
        return _one(replace(levels[-1], text=message("change_4bit", "QLoRA")), because)
    return Lever(name="adapter", levels=levels)


def _loss(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    if recipe.framework == "torchtune":
        change = _training_change(
            "fused_loss",
            message("change_chunked", "the loss in chunks"),
            Price.NOTHING,
            loss="chunked",
        )
    else:
        stated = {} if at.job.recipe.training.loss in (None, "fused") else {"loss": "auto"}
        change = _training_change(
            "fused_loss",
            message("change_loss", "a fused loss (use_liger_kernel): no whole logits in training"),
            Price.NOTHING,
            use_liger_kernel=True,
            **stated,
        )
    if recipe.loss.path in (LossPath.CHUNKED, LossPath.FUSED_LINEAR):
        because = message("no_logits", "no whole logits are made in training already")
        return _one(change, because)
    if at.stage.stage is Stage.EVALUATION:
        because = message("logits_in_evaluation", "an evaluation makes whole logits all the same")
        return _one(change, because)
    return _one(change)


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
    change = Change(
        code="expandable_segments",
        text=message(
            "change_segments",
            "{name}=expandable_segments:True in the environment",
            name=name,
        ),
        price=Price.NOTHING,
        saves_bytes=float(pieces or 0),
    )
    if version < Version("2.0"):
        return _one(change, message("no_segments", "PyTorch has it from 2.0 on"))
    if at.cause.cause is Cause.FRAGMENTATION:
        return _one(change)
    because = message(
        "no_fragmentation",
        "fragmentation is not the cause: it may give back {size}",
        size=format_gib(pieces or 0),
    )
    return _one(change, because)


def _dtype(at: Situation) -> Lever:
    recipe = at.resolved.recipe
    accelerator = at.resolved.accelerator
    half = "bfloat16" if accelerator is None or accelerator.supports_bf16 else "float16"
    full = not recipe.method.uses_adapter
    change = _training_change(
        "half_weights",
        message("change_dtype", "weights loaded in {dtype}", dtype=half),
        Price.NUMERICS if full else Price.NOTHING,
        dtype=half,
    )
    held = recipe.trainable_dtype if full else recipe.frozen_dtype
    if held is not DType.FLOAT32 or recipe.method.quantized:
        return _one(change, message("half_already", "they are in half precision already"))
    return _one(change)


def _copies(at: Situation) -> Iterator[Lever]:
    adapter = at.resolved.recipe.adapter
    if adapter is None or not adapter.modules_to_save:
        return

    def apply(job: StatedJob) -> StatedJob:
        changed = replace(job.recipe.adapter, modules_to_save=())
        return replace(job, recipe=replace(job.recipe, adapter=changed))

    text = message(
        "change_copies",
        "no whole copies trained of {modules} (modules_to_save)",
        modules=", ".join(adapter.modules_to_save),
    )
    yield _one(
        Change(
            code="no_copies",
            text=text,
            price=Price.METHOD,
            settings={"adapter.modules_to_save": []},
            apply=apply,
        )
    )


def _loading(at: Situation) -> Iterator[Lever]:
    """Every rank loads the whole model although the layout splits it."""
    parallelism = at.resolved.parallelism
    if at.stage.stage is not Stage.LOAD or not parallelism.shards_parameters:
        return
    if loads_whole(at.resolved):
        text = message(
            "change_to_fsdp",
            "FSDP (with bnb_4bit_quant_storage) in place of ZeRO-3, which loads a quantised model "
            "whole on every rank",
        )
        yield _one(
            Change(
                code="sharded_loading",
                text=text,
                price=Price.NOTHING,
                settings={"parallelism.strategy": "fsdp"},
                apply=_with_layout("fsdp"),
            )
        )
        return
    whole = loaded_bytes(at.resolved, whole=True)
    text = message(
        "change_loading",
        "load in shards: zero3_init_flag: true and TrainingArguments before from_pretrained "
        "(DeepSpeed), fsdp_cpu_ram_efficient_loading (FSDP)",
    )
    yield _one(
        Change(
            code="sharded_loading",
            text=text,
            price=Price.NOTHING,
            saves_bytes=whole - loaded_bytes(at.resolved, whole=False),
        )
    )


def _offload(at: Situation) -> Lever:
    strategy = sharding_of(at)
    now = at.resolved.parallelism.offload
    zero2 = at.resolved.parallelism.strategy in (Strategy.ZERO1, Strategy.ZERO2)
    single = at.resolved.parallelism.world_size == 1
    levels = []
    if now is Offload.NONE:
        kept = "zero2" if (zero2 or single) and strategy == "zero3" else strategy
        levels.append((kept, "optimizer", message("offload_optimizer", "optimizer states")))
    if now is not Offload.PARAMS:
        every = message("offload_params", "parameters and optimizer states")
        levels.append((strategy, "params", every))
    changes = tuple(
        Change(
            code="offload",
            text=message(
                "change_offload",
                "{what} in main memory ({layout} with offload: {offload})",
                what=what,
                layout=_LAYOUT_NAMES[layout],
                offload=offload,
            ),
            price=Price.SPEED,
            settings={"parallelism.strategy": layout, "parallelism.offload": offload},
            apply=_with_layout(layout, offload),
        )
        for layout, offload, what in levels
    )
    if changes:
        return Lever(name="offload", levels=changes)
    text = message("change_offload_none", "offload to main memory")
    return _one(
        Change(code="offload", text=text, price=Price.SPEED),
        message("offloaded_already", "parameters and states lie there already"),
    )


def _offloaded_checkpoints(at: Situation) -> Iterator[Lever]:
    if at.resolved.recipe.gradient_checkpointing is Checkpointing.OFFLOAD:
        return
    text = message("change_checkpoint_offload", "checkpoints of activations in main memory")
    yield _one(
        _training_change("checkpoint_offload", text, Price.SPEED, gradient_checkpointing="offload")
    )
