"""Which layout over the cards, or over card and host, may cure a lack of memory."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.language import Message, message
from tuneplan.planner.change import Change, Lever, Price, outside_job
from tuneplan.planner.layout_changes import (
    LAYOUT_NAMES,
    offload,
    split_of,
    stronger_layouts,
)
from tuneplan.planner.oom_situation import Situation, loaded_bytes, loads_whole
from tuneplan.planner.recipe_changes import offloaded_checkpoints
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import Checkpointing


def layout_levers(at: Situation) -> Iterator[Lever]:
    """Shards over the cards there are."""
    levels = stronger_layouts(at.resolved)
    if levels:
        yield Lever(levels=levels)
        return
    text = message("change_sharding", "ZeRO or FSDP")
    yield Lever(levels=(outside_job("sharding", text),), cannot=_why_not_sharded(at))


def _why_not_sharded(at: Situation) -> Message:
    parallelism = at.resolved.parallelism
    if parallelism.world_size == 1:
        return message("one_card", "there is one card: nothing to share with")
    if split_of(at.resolved) is None:
        return message(
            "sharded_by_framework",
            "{framework} has no layout that splits more over these cards",
            framework=at.resolved.recipe.framework,
        )
    return message(
        "sharded_already",
        "{layout} splits everything already",
        layout=LAYOUT_NAMES[parallelism.strategy.value],
    )


def loading_levers(at: Situation) -> Iterator[Lever]:
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
        change = Change(
            name="sharded_loading",
            kind="sharded_loading",
            message=text,
            settings={"parallelism.strategy": "fsdp"},
        )
        yield Lever(levels=(change,))
        return
    whole = loaded_bytes(at.resolved, whole=True)
    text = message(
        "change_loading",
        "load in shards: zero3_init_flag: true and TrainingArguments before from_pretrained "
        "(DeepSpeed), fsdp_cpu_ram_efficient_loading (FSDP)",
    )
    saves = whole - loaded_bytes(at.resolved, whole=False)
    yield Lever(levels=(outside_job("sharded_loading", text, saves_bytes=saves),))


def offload_levers(at: Situation) -> Iterator[Lever]:
    """Optimizer states, or parameters too, in main memory; then checkpoints of activations."""
    parallelism, strategy = at.resolved.parallelism, split_of(at.resolved)
    levels: list[Change] = []
    if strategy is not None:
        single = parallelism.world_size == 1
        shares = single or parallelism.strategy in (Strategy.ZERO1, Strategy.ZERO2)
        if parallelism.offload is Offload.NONE:
            kept = "zero2" if shares and strategy == "zero3" else strategy
            levels.append(offload(kept, "optimizer"))
        if parallelism.offload is not Offload.PARAMS:
            levels.append(offload(strategy, "params"))
    if levels:
        yield Lever(levels=tuple(levels))
    else:
        text = message("change_offload_none", "offload to main memory")
        spoken_of = outside_job("offload", text, price=Price.SPEED)
        yield Lever(levels=(spoken_of,), cannot=_why_not_offloaded(at))
    if at.resolved.recipe.gradient_checkpointing is not Checkpointing.OFFLOAD:
        yield Lever(levels=(offloaded_checkpoints(),))


def _why_not_offloaded(at: Situation) -> Message:
    if at.resolved.parallelism.offload is Offload.PARAMS:
        return message("offloaded_already", "parameters and states lie there already")
    return message(
        "no_offload_in_framework",
        "{framework} has no layout that offloads, as it is described here",
        framework=at.resolved.recipe.framework,
    )
