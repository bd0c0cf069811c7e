"""Cures where main memory ran out: what the processes of one machine hold, and how to hold less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.estimation.persistent import persistent
from tuneplan.language import message
from tuneplan.planner.change import Change, Lever, Price, outside_job
from tuneplan.planner.oom_situation import Situation, evaluation_of
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.units import GIB, format_gib


def host_levers(at: Situation) -> Iterator[Lever]:
    """What holds less main memory, by the stage; then machines with more of it."""
    stage = at.stage.stage
    if stage is Stage.EVALUATION:
        yield _kept_on_host(at)
    if stage is Stage.SAVE:
        yield _sharded_checkpoints(at)
    if stage in (Stage.LOAD, Stage.UNKNOWN):
        yield _one_copy(at)
    yield from _less_offload(at)
    yield from _to_disk(at)
    yield _more_memory(at)


def _one(change: Change) -> Lever:
    return Lever(levels=(change,))


def _ranks(at: Situation) -> int:
    return at.resolved.cluster.accelerators_per_node if at.resolved.cluster else 1


def _whole_model(at: Situation) -> float:
    recipe = at.resolved.recipe
    dtype = recipe.trainable_dtype if not recipe.method.uses_adapter else recipe.frozen_dtype
    return float(at.resolved.model.total_parameters * dtype.num_bytes)


def _kept_on_host(at: Situation) -> Lever:
    statistics = at.dataset.statistics
    samples = statistics.num_eval_samples if statistics else 0
    each = evaluation_of(at.resolved).kept_bytes_per_sample
    text = message(
        "change_kept_on_host",
        "no logits kept over the evaluation (prediction_loss_only, or "
        "preprocess_logits_for_metrics)",
    )
    saves = samples * each if samples else None
    return _one(outside_job("kept_logits", text, saves_bytes=saves))


def _sharded_checkpoints(at: Situation) -> Lever:
    """Gathering puts the whole model, and with FSDP the whole optimizer, on the first rank."""
    held = persistent(at.resolved.model, at.resolved.recipe)
    text = message(
        "change_sharded_checkpoints",
        "checkpoints in shards (FSDP SHARDED_STATE_DICT; DeepSpeed without "
        "stage3_gather_16bit_weights_on_model_save), or save_only_model",
    )
    saves = _whole_model(at) + held.state_bytes + held.master_bytes
    return _one(outside_job("sharded_checkpoints", text, saves_bytes=saves))


def _one_copy(at: Situation) -> Lever:
    """Each process reads the whole model into main memory."""
    ranks = _ranks(at)
    text = message(
        "change_one_copy",
        "one copy in main memory while loading, not one for each of the {ranks} "
        "{ranks:~process/processes} (zero3_init, fsdp_cpu_ram_efficient_loading, "
        "low_cpu_mem_usage)",
        ranks=ranks,
    )
    saves = _whole_model(at) * (ranks - 1)
    return _one(outside_job("one_copy", text, saves_bytes=saves or None))


def _less_offload(at: Situation) -> Iterator[Lever]:
    """Back to the card, as far as it has room."""
    now = at.resolved.parallelism.offload
    host = float(at.now.memory.host_bytes.likely) * _ranks(at)
    words = {
        "optimizer": message("less_optimizer", "only the optimizer states offloaded"),
        "none": message("less_none", "nothing offloaded to main memory"),
    }
    kinds = {Offload.PARAMS: ("optimizer", "none"), Offload.OPTIMIZER: ("none",)}.get(now, ())
    for kind in kinds:
        parallelism = replace(at.job.recipe.parallelism, offload=kind)
        then = at.estimate(replace(at.job, recipe=replace(at.job.recipe, parallelism=parallelism)))
        change = outside_job(
            "less_offload",
            words[kind],
            settings={"parallelism.offload": kind},
            saves_bytes=max(host - then.memory.host_bytes.likely * _ranks(at), 0.0),
        )
        need, room = then.memory.ranges.needed_bytes.likely, at.limit_bytes
        cannot = None
        if room is not None and need > room:
            cannot = message(
                "no_room_on_card",
                "a card then needs {need}, more than the {room} that keep the head-room",
                need=format_gib(need),
                room=format_gib(room),
            )
        yield Lever(levels=(change,), cannot=cannot)


def _to_disk(at: Situation) -> Iterator[Lever]:
    """DeepSpeed's ZeRO-Infinity: what is offloaded lies on NVMe."""
    parallelism = at.resolved.parallelism
    if parallelism.offload is Offload.NONE or parallelism.strategy is not Strategy.ZERO3:
        return
    held = persistent(at.resolved.model, at.resolved.recipe)
    states = held.state_bytes + held.master_bytes
    text = message(
        "change_nvme", "offload to NVMe in place of main memory (offload_optimizer: device: nvme)"
    )
    yield _one(outside_job("nvme_offload", text, price=Price.SPEED, saves_bytes=states or None))


def _more_memory(at: Situation) -> Lever:
    high = at.now.memory.host_bytes.high * _ranks(at)
    gib = round(high / GIB)
    return _one(
        outside_job(
            "more_host_memory",
            message(
                "change_host_memory",
                "a machine with at least {size} GiB of main memory (or the job over more machines)",
                size=gib,
            ),
            price=Price.MONEY,
            settings={"hardware.host_memory": f"{gib} GiB"},
        )
    )
