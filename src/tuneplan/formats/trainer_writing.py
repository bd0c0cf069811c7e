"""A job as ``TrainingArguments``: what TRL, LLaMA-Factory and ms-swift write alike.

Keys and words: transformers ``training_args.py`` 5.24, checked against 4.57. What a framework
says in words of its own (checkpointing, attention, precision) is in its own module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuneplan.formats.telling import Teller, kept
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

# transformers training_args.py OptimizerNames, those with a formula here.
OPTIMIZERS: Final = (
    *("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit"),
    *("paged_adamw_32bit", "paged_adamw_8bit", "adafactor", "sgd"),
    *("lion_32bit", "lion_8bit", "paged_lion_32bit", "paged_lion_8bit"),
)
_GONE: Final[Mapping[str, str]] = {"adamw_hf": "5", "adamw_apex_fused": "5"}  # and the release
STRATEGIES_WITHOUT_ENGINE: Final = ("single", "ddp", "auto")
ENGINES: Final = ("zero1", "zero2", "zero3")
ENGINE_KEYS: Final = {  # key of the section parallelism: key of zero_optimization
    "reduce_bucket_elements": "reduce_bucket_size",
    "allgather_bucket_elements": "allgather_bucket_size",
    "overlap_communication": "overlap_comm",
    "max_live_parameters": "stage3_max_live_parameters",
    "persistence_threshold": "stage3_param_persistence_threshold",
}
SHARDED: Final = ("fsdp", "fsdp2", "hsdp")


def at_least(job: StatedJob, library: str, version: str) -> bool:
    """Whether the job runs a library at or above a version; blank = the newest."""
    from packaging.version import InvalidVersion, Version

    stated = job.recipe.software.get(library)
    if library == job.recipe.framework and job.recipe.framework_version:
        stated = job.recipe.framework_version
    try:
        return stated is None or Version(stated) >= Version(version)
    except InvalidVersion:
        return True


def batches(teller: Teller) -> dict[str, Any]:
    """Micro-batches and accumulation, as numbers."""
    found = {
        name: _number(teller, f"training.{name}")
        for name in (
            "per_device_train_batch_size",
            "per_device_eval_batch_size",
            "gradient_accumulation_steps",
        )
    }
    whole = teller.take("training.global_batch_size")
    if whole is not None and None in (
        found["per_device_train_batch_size"],
        found["gradient_accumulation_steps"],
    ):
        teller.refuse(
            "training.global_batch_size",
            message(
                "no_global_batch",
                "{framework} counts a step in micro-batches, not in whole steps",
                framework=teller.framework,
            ),
            how_to_fix=message(
                "state_accumulation",
                "state per_device_train_batch_size and gradient_accumulation_steps",
            ),
        )
    return kept(found)


def _number(teller: Teller, path: str) -> int | None:
    value = teller.take(path)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    why = message("not_a_number_yet", "{framework} takes a number", framework=teller.framework)
    teller.refuse(path, why, how_to_fix=message("state_number", "state the number itself"))
    return None


def duration(teller: Teller) -> dict[str, Any]:
    """Epochs or steps, and clipping."""
    return kept(
        {
            "num_train_epochs": teller.take("training.num_train_epochs"),
            "max_steps": teller.take("training.max_steps"),
            "max_grad_norm": teller.take("training.max_grad_norm"),
        }
    )


def optimizer(teller: Teller) -> dict[str, Any]:
    """``optim``, where this release knows the name."""
    name = teller.take("training.optim")
    if name is None:
        return {}
    gone = _GONE.get(name)
    if gone is not None and not at_least(teller.job, "transformers", gone):
        return {"optim": name}
    if name not in OPTIMIZERS:
        near = ("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit")
        teller.refuse("training.optim", near=near)
    return {"optim": name}


def saving(teller: Teller) -> dict[str, Any]:
    """Checkpoints and evaluation: strategy, steps, limit."""
    strategy, steps = teller.take("training.eval_strategy"), teller.take("training.eval_steps")
    if strategy is None and steps is not None:
        strategy = "steps" if steps else "no"
    if strategy not in (None, "steps"):
        steps = None  # it has no effect
    key = "eval_strategy" if at_least(teller.job, "transformers", "4.41") else "evaluation_strategy"
    save, every = teller.take("training.save_strategy"), teller.take("training.save_steps")
    if save not in (None, "steps"):
        every = None
    return kept(
        {
            key: strategy,
            "eval_steps": steps or None,
            "save_strategy": save,
            "save_steps": every or None,
            "save_total_limit": teller.take("training.save_total_limit"),
        }
    )


def switches(teller: Teller) -> dict[str, Any]:
    """Compilation and Liger's kernels."""
    return kept(
        {
            "torch_compile": teller.take("training.torch_compile"),
            "use_liger_kernel": teller.take("training.use_liger_kernel"),
        }
    )


def loss_without_word(teller: Teller) -> None:
    """A stated ``loss`` where the framework has no key for it: Liger's is said by its switch."""
    loss = teller.take("training.loss")
    liger = bool(teller.peek("training.use_liger_kernel"))
    if loss in (None, "auto") or (loss == "fused" and liger) or (loss == "full" and not liger):
        return
    fix = message("fused_by_liger", "leave loss blank, or state use_liger_kernel: true for fused")
    teller.refuse("training.loss", how_to_fix=fix)


def checkpointing(teller: Teller, *, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """``gradient_checkpointing`` and the variant; ``also`` the further kinds a framework has."""
    value = teller.take("training.gradient_checkpointing")
    reentrant = teller.take("training.use_reentrant")
    if isinstance(value, str) and value not in also:
        teller.refuse("training.gradient_checkpointing", near=("true", "false", *also))
        return {}
    kwargs = {"use_reentrant": reentrant} if reentrant is not None and value is not False else None
    on = None if value is None else bool(value)
    return kept({"gradient_checkpointing": on, "gradient_checkpointing_kwargs": kwargs})


def precision_flags(teller: Teller, value: str | None) -> dict[str, Any]:
    """``bf16``, ``fp16`` and ``tf32``, each said in full so that no default decides."""
    flags = {
        "bf16": {"bf16": True},
        "fp16": {"fp16": True},
        "fp32": {"bf16": False, "fp16": False},
        "tf32": {"bf16": False, "fp16": False, "tf32": True},
        "none": {"bf16": False, "fp16": False},
    }
    if value is None:
        return {}
    if value not in flags:
        teller.refuse("training.precision", near=tuple(flags))
        return {}
    if value == "fp32" and teller.peek("training.dtype") in ("bfloat16", "float16"):
        teller.refuse(
            "training.precision",
            message("half_weights", "half weights compute in half: that is precision none"),
            near=("none",),
        )
    return dict(flags[value])


def masters(teller: Teller, *, fp32_weights: bool) -> None:
    """``master_weights`` follows from engine and dtype; refused where they say the contrary."""
    wanted = teller.take("training.master_weights")
    if wanted is None or wanted == "auto":
        return
    half = teller.peek("training.precision") in ("bf16", "fp16")
    engine = teller.peek("parallelism.strategy") in ENGINES and half
    if engine != wanted and not (wanted and fp32_weights):
        why = (
            message("engine_keeps_masters", "DeepSpeed's 16-bit engines keep fp32 copies")
            if engine
            else message(
                "no_masters", "{framework} keeps no fp32 copies there", framework=teller.framework
            )
        )
        teller.refuse("training.master_weights", why)


def sampling(teller: Teller) -> dict[str, Any]:
    """Batches of similar lengths; the other kinds of padding are said by each framework."""
    if teller.peek("training.padding") != "grouped":
        return {}
    teller.take("training.padding")
    if at_least(teller.job, "transformers", "5"):
        return {"train_sampling_strategy": "group_by_length"}
    return {"group_by_length": True}


def engine_keys(teller: Teller) -> None:
    """What the job says of DeepSpeed's buckets and off-loading, which its own file says.

    Parameters leave the device at stage 3 only (``runtime/zero/config.py``).
    """
    below = teller.peek("parallelism.strategy") != "zero3"
    if teller.take("parallelism.offload") == "params" and below:
        why = message("offloads_at_stage_3", "DeepSpeed off-loads parameters at stage 3 only")
        teller.refuse("parallelism.offload", why, near=("optimizer",))
    for name in ENGINE_KEYS:
        teller.take(f"parallelism.{name}")


def sharding(teller: Teller, *, deepspeed_file: str) -> dict[str, Any]:
    """``deepspeed`` or ``fsdp`` with ``fsdp_config``; nothing for DDP and one card.

    ``fsdp`` was a list of words before transformers 5; 5 has a switch and takes its settings from
    ``fsdp_config`` (``training_args.py _process_fsdp_args``).
    """
    strategy = teller.take("parallelism.strategy")
    offload = teller.take("parallelism.offload") or "none"
    if strategy is None or strategy in STRATEGIES_WITHOUT_ENGINE:
        if offload != "none":
            teller.refuse("parallelism.offload", near=("zero2", "zero3", "fsdp2"))
        return {}
    if strategy in ENGINES:
        engine_keys(teller)
        return {"deepspeed": deepspeed_file}
    if strategy not in SHARDED:
        teller.refuse("parallelism.strategy", near=("ddp", "zero3", "fsdp2"))
        return {}
    if offload == "optimizer":
        why = message("fsdp_offloads_all", "FSDP offloads parameters and optimizer together")
        teller.refuse("parallelism.offload", why, near=("params",))
    words = ["hybrid_shard" if strategy == "hsdp" else "full_shard", "auto_wrap"]
    if offload == "params":
        words.insert(1, "offload")
    version = 2 if strategy == "fsdp2" else 1
    return {"fsdp": " ".join(words), "fsdp_config": {"version": version}}


def refuse_old(teller: Teller, library: str, oldest: str) -> None:
    """Older releases of the framework spell their keys in other ways."""
    job = teller.job
    stated = job.recipe.framework_version
    if job.recipe.framework in (library, None) and stated and not at_least(job, library, oldest):
        why = message(
            "release_too_old",
            "files are written for {framework} {oldest} and newer, not for {stated}",
            framework=teller.framework,
            oldest=oldest,
            stated=stated,
        )
        teller.refuse("framework", why)
