"""DeepSpeed's JSON: alone, in a key of another configuration, or in a file that one points to.

Sources: DeepSpeed 0.19.6 ``runtime/config.py``, ``runtime/zero/config.py`` and
``runtime/config_utils.py`` (aliases hold beside names) at edaa7221; the word ``auto`` and what must
match the Trainer's own arguments: transformers 5.24 ``integrations/deepspeed.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.formats import deepspeed_writing
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.deepspeed_keys import IRRELEVANT, KNOWN, NOT_CARRIED, ZERO
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.language import message, phrase
from tuneplan.spec.stated import StatedJob

NAME: Final = "deepspeed"
_SIGNS: Final = (
    *("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_clipping", "steps_per_print"),
    *("zero_allow_untested_optimizer", "wall_clock_breakdown", "zero_force_ds_cpu_optimizer"),
)
_STRATEGIES: Final = ("ddp", "zero1", "zero2", "zero3")
_DEVICES: Final = ("none", "cpu", "nvme")
# Optimizers that DeepSpeed builds itself (runtime/config.py), as TrainingArguments names them.
_OPTIMIZERS: Final = {
    "adam": "adamw_torch_fused",  # FusedAdam, with AdamW's decay unless told otherwise
    "adamw": "adamw_torch_fused",
    "lion": "lion_32bit",
    "sgd": "sgd",
    "muon": "muon",
}
_OTHER_OPTIMIZERS: Final = (
    *("lamb", "onebitadam", "onebitlamb", "zerooneadam", "muadam", "muadamw", "musgd", "adagrad"),
    "cpuadam",
)
_BY_NAME: Final = re.compile(r"(?:zero|stage|z|s)[_-]?(?:stage)?[_-]?([0-3])(?!\d)", re.IGNORECASE)


def recognise(document: ForeignDocument) -> float:
    """``zero_optimization``, or keys that only DeepSpeed has, and no model."""
    tree = document.tree
    if document.form == "shell":
        return 0.0
    if isinstance(tree.get("zero_optimization"), Mapping | bool):
        return 1.0
    signs = sum(name in tree for name in _SIGNS)
    halves = sum(_enabled(tree, name) for name in ("fp16", "bf16"))
    return min(0.95, 0.4 * signs + 0.3 * halves)


def _enabled(tree: Mapping[str, Any], name: str) -> bool:
    section = tree.get(name)
    return isinstance(section, Mapping) and "enabled" in section


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """What the JSON says about sharding, precision and batches; it names no model.

    Raises:
        InvalidRequest: Values that DeepSpeed would refuse, or that contradict each other.
    """
    del companion
    carrier = Carrier(document)
    carry_engine(Keys(carrier=carrier))
    return carrier.finish(name=NAME, version=version, known=KNOWN)


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for DeepSpeed.

    Raises:
        CannotExport: DeepSpeed has no way to say a setting of the job.
    """
    return deepspeed_writing.dump(job)


def follow_engine(keys: Keys, name: str, companion: Companion) -> None:
    """Read what a key such as ``deepspeed`` points to: a file, or the JSON itself.

    A file that is not here is told by its name where that names the stage, as the files do that
    frameworks ship.
    """
    value = keys.value(name)
    if isinstance(value, Mapping):
        carry_engine(keys.under(name))
        return
    if isinstance(value, bool):  # a flag of the program itself
        keys.carry(name)
        return
    written = keys.text(name)
    if written is None:
        return
    document = companion(written)
    if document is None:
        _by_name(keys, name, written)
        return
    if not recognise(document):
        text = message("not_deepspeed", "{file} is no DeepSpeed configuration", file=written)
        keys.wrong(name, text)
        return
    keys.carrier.join(document)
    keys.carry(name)
    carry_engine(Keys(carrier=keys.carrier, document=document))


def _by_name(keys: Keys, name: str, written: str) -> None:
    file = written.replace("\\", "/").rpartition("/")[2].lower()
    stage = stage_by_name(file)
    if stage is None:
        text = message(
            "engine_not_here",
            "{name} is not here, so that nothing is known of how DeepSpeed shards the job: "
            "--set parallelism.strategy=zero3 states it",
            name=written,
        )
        keys.not_carried((name,), text)
        keys.notice(name, text)
        return
    keys.agree(name, "parallelism.strategy", _STRATEGIES[stage])
    if "offload" in file and stage > 0:
        keys.agree(name, "parallelism.offload", "params" if stage == 3 else "optimizer")
    keys.notice(
        name,
        message(
            "engine_by_name",
            "{name} is not here; by its name it is taken as ZeRO stage {stage}, everything else "
            "in it as the framework has it",
            name=written,
            stage=stage,
        ),
    )


def stage_by_name(file: str) -> int | None:
    """The ZeRO stage that the name of a file tells, as the files do that frameworks ship."""
    match = _BY_NAME.search(file)
    if match is not None:
        return int(match[1])
    return 3 if "offload" in file and "param" in file else None  # only stage 3 off-loads weights


def carry_engine(keys: Keys) -> None:
    """Everything a DeepSpeed configuration says, into a job that others may have begun."""
    _precision(keys)
    _batches(keys)
    _optimizer(keys)
    zero = keys.value("zero_optimization")
    if isinstance(zero, bool):  # deepspeed up to 0.3: true = stage 1
        keys.agree("zero_optimization", "parallelism.strategy", "zero1" if zero else "ddp")
    elif zero is not None and not isinstance(zero, Mapping):
        keys.wrong(
            "zero_optimization",
            message("not_a_section_here", "{key} holds keys, it is no value", key=phrase("it")),
        )
    else:
        _zero(keys.under("zero_optimization"))
    for path, job_key in (
        ("tensor_parallel.autotp_size", "parallelism.tensor"),
        ("sequence_parallel_size", "parallelism.context"),
    ):
        if not _auto(keys, path) and keys.whole(path) is not None:
            keys.agree(path, job_key, max(1, keys.whole(path) or 1))
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)


# --- precision, batches, optimizer ----------------------------------------------------------------


def _auto(keys: Keys, name: str) -> bool:
    """Whether a key says ``auto``, which the Trainer fills in; it is then closed."""
    value = keys.value(name)
    if not (isinstance(value, str) and value.strip().lower() == "auto"):
        return False
    filled = message("filled_by_trainer", "auto: filled in by the program's own arguments")
    keys.irrelevant((name,), filled)
    return True


def _precision(keys: Keys) -> None:
    names = {"bf16": _half_key(keys, "bf16", "bfloat16"), "fp16": "fp16.enabled"}
    found = {half: None if _auto(keys, name) else keys.flag(name) for half, name in names.items()}
    if found["bf16"] and found["fp16"]:
        both = message("both_halves", "bf16 and fp16 are both enabled: DeepSpeed refuses that")
        keys.wrong(names["fp16"], both, how_to_fix=message("keep_one", "keep one of them"))
        return
    for half, on in found.items():
        if on:
            keys.agree(names[half], "training.precision", half)
        elif on is False and keys.carrier.said("training.precision") == half:
            keys.agree(names[half], "training.precision", "none")
    if found["bf16"] is False and found["fp16"] is False:
        keys.agree(names["bf16"], "training.precision", "fp32")
    off = message("half_off", "that half precision is off")
    keys.irrelevant(names.values(), off)


def _half_key(keys: Keys, name: str, old: str) -> str:
    return f"{name}.enabled" if not keys.holds(f"{old}.enabled") else f"{old}.enabled"


def _batches(keys: Keys) -> None:
    for name, job_key in (
        ("train_micro_batch_size_per_gpu", "training.per_device_train_batch_size"),
        ("gradient_accumulation_steps", "training.gradient_accumulation_steps"),
        ("train_batch_size", "training.global_batch_size"),
    ):
        if _auto(keys, name):
            continue
        count = keys.whole(name)
        if count is not None and count < 1:
            keys.wrong(name, message("at_least_one", "{key} is at least 1", key=name))
        elif count is not None:
            keys.agree(name, job_key, count)
    if not _auto(keys, "gradient_clipping"):
        norm = keys.number("gradient_clipping")
        if norm is not None:
            keys.agree("gradient_clipping", "training.max_grad_norm", norm)


def _optimizer(keys: Keys) -> None:
    """The optimizer that DeepSpeed builds itself goes before the Trainer's ``optim``."""
    if _auto(keys, "optimizer.type"):
        return
    written = keys.word("optimizer.type", (*_OPTIMIZERS, *_OTHER_OPTIMIZERS))
    if written is None:
        return
    if written not in _OPTIMIZERS:
        text = message("optimizer_refused", "optimizer {name} has no formula yet", name=written)
        keys.refuse("optimizer.type", text)
        return
    if keys.carrier.said("training.optim") is not None:
        text = message(
            "engine_builds_optimizer",
            "DeepSpeed builds the optimizer that its own file names, whatever optim says",
        )
        keys.notice("optimizer.type", text)
    keys.carry("optimizer.type", ("training.optim", _OPTIMIZERS[written]))


# --- ZeRO -----------------------------------------------------------------------------------------


def _zero(keys: Keys) -> None:
    stage = keys.whole("stage") if not _auto(keys, "stage") else None
    if stage is not None and stage not in range(4):
        text = message("no_such_stage", "ZeRO has the stages 0, 1, 2 and 3, not {n}", n=stage)
        keys.wrong("stage", text, near=("3",) if stage > 3 else ("0",))
    elif stage is not None:
        keys.agree("stage", "parallelism.strategy", _STRATEGIES[stage])
        if stage == 0 and keys.carrier.said("training.precision") in ("bf16", "fp16"):
            keys.carry("stage", ("training.master_weights", True))
    _offload(keys, stage)
    if stage:
        _buffers(keys)
    for name in ("stage3_prefetch_bucket_size", "prefetch_bucket_size"):
        _auto(keys, name)
    unused = message("stage_without", "ZeRO stage {stage} does not use it", stage=stage or 0)
    if stage != 3:
        keys.irrelevant((*(f"stage3_{name}" for name in ZERO), *ZERO), unused)
    if not stage:
        keys.irrelevant(
            ("reduce_bucket_size", "allgather_bucket_size", "overlap_comm", "sub_group_size"),
            unused,
        )
    partition = keys.whole("zero_hpz_partition_size")
    if partition is not None and partition > 1:
        text = message("second_shard", "a second shard on each node (hpZ) has no formula yet")
        keys.refuse("zero_hpz_partition_size", text)


def _offload(keys: Keys, stage: int | None) -> None:
    devices = {
        what: keys.word(f"offload_{what}.device", _DEVICES) for what in ("optimizer", "param")
    }
    for what, old in (("optimizer", "cpu_offload"), ("param", "cpu_offload_params")):
        if keys.flag(old):  # deepspeed up to 0.3
            devices[what] = devices[what] or "cpu"
            keys.carry(old)
    carry_offload(keys, "offload_{}.device", devices, stage=stage)
    details = message("offload_details", "how it is off-loaded, not what")
    for what in devices:
        section = keys.value(f"offload_{what}")
        if isinstance(section, Mapping):
            keys.irrelevant((f"offload_{what}.{n}" for n in section if n != "device"), details)


def carry_offload(
    keys: Keys, name: str, devices: Mapping[str, str | None], *, stage: int | None
) -> None:
    """What DeepSpeed keeps in main memory; ``name`` holds ``{}`` for what."""
    there = {what: device for what, device in devices.items() if device not in (None, "none")}
    for what, device in there.items():
        if device == "nvme":
            keys.refuse(
                name.format(what),
                message("nvme_offload", "off-loading to NVMe has no formula yet"),
                how_to_fix=message("offload_to_cpu", "write cpu"),
            )
    cpu = {what for what, device in there.items() if device == "cpu"}
    if stage == 3 and cpu == {"optimizer", "param"}:
        keys.agree(name.format("optimizer"), "parallelism.offload", "params")
        keys.agree(name.format("param"), "parallelism.offload", "params")
    elif "optimizer" in cpu and stage != 0:
        keys.agree(name.format("optimizer"), "parallelism.offload", "optimizer")
    elif cpu == {"param"} and stage == 3:
        text = message(
            "params_offloaded_alone",
            "weights in main memory with their optimizer on the card have no formula yet: they are "
            "counted as if they stayed on the card",
        )
        keys.not_carried((name.format("param"),), text)
        keys.notice(name.format("param"), text)
    stays = message("stays_on_card", "it stays on the card, or this ZeRO stage does not off-load")
    keys.irrelevant((name.format("optimizer"), name.format("param")), stays)


def _buffers(keys: Keys) -> None:
    for name, job_key in (
        ("reduce_bucket_size", "reduce_bucket_elements"),
        ("allgather_bucket_size", "allgather_bucket_elements"),
        ("stage3_max_live_parameters", "max_live_parameters"),
        ("max_live_parameters", "max_live_parameters"),
        ("stage3_param_persistence_threshold", "persistence_threshold"),
        ("param_persistence_threshold", "persistence_threshold"),
    ):
        if not keys.holds(name) or _auto(keys, name):
            continue
        third = keys.carrier.said("parallelism.strategy") == "zero3"
        count = keys.whole(name)
        if count is not None and (third or name.endswith("bucket_size")):
            _buffer(keys, name, job_key, count)
    if not _auto(keys, "overlap_comm"):
        overlap = keys.flag("overlap_comm")
        if overlap is not None:
            keys.agree("overlap_comm", "parallelism.overlap_communication", overlap)


def _buffer(keys: Keys, name: str, job_key: str, count: int) -> None:
    if count < 0 or (count == 0 and job_key.endswith("bucket_elements")):
        keys.wrong(name, message("at_least_one", "{key} is at least 1", key=name))
    else:
        keys.agree(name, f"parallelism.{job_key}", count)
