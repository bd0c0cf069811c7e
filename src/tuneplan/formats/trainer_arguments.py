"""``TrainingArguments`` in YAML, in JSON or on a launch line; most frameworks share them.

Sources: transformers 5.24 ``training_args.py`` and ``training_args_seq2seq.py``; names of older
releases (``evaluation_strategy``, ``group_by_length``, ``no_cuda``, ...): 4.57 and 4.31.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuneplan.contract.values import nearest
from tuneplan.formats.accelerate import carry_degrees
from tuneplan.formats.deepspeed import follow_engine
from tuneplan.formats.foreign import Companion
from tuneplan.formats.fsdp import WORDS as FSDP_WORDS
from tuneplan.formats.fsdp import carry_fsdp
from tuneplan.formats.keys import Keys
from tuneplan.formats.trainer_keys import IRRELEVANT, NOT_CARRIED, OPTIMIZERS, SCHEDULERS
from tuneplan.language import message

_T: Final = "training."
_OLD_NAMES: Final = (
    *("evaluation_strategy", "per_gpu_train_batch_size", "group_by_length", "no_cuda", "use_ipex"),
    *("half_precision_backend", "fp16_opt_level", "evaluate_during_training", "sharded_ddp"),
)
_STRATEGIES: Final = ("no", "steps", "epoch")
_COUNTS: Final = {
    "per_device_train_batch_size": "per_device_train_batch_size",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_device_eval_batch_size": "per_device_eval_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


def carry_trainer_arguments(keys: Keys, companion: Companion, *, shards: bool = True) -> None:
    """Everything that ``TrainingArguments`` say, with the files that they point to.

    Args:
        keys: Where they stand.
        companion: Reads the DeepSpeed and FSDP files that they name.
        shards: Whether ``deepspeed`` and ``fsdp`` are read here too.
    """
    for name, job_key in _COUNTS.items():
        carry_count(keys, name, f"{_T}{job_key}")
    kept = keys.whole("save_total_limit")
    if kept is not None and kept > 0:
        keys.carry("save_total_limit", (f"{_T}save_total_limit", kept))
    keys.irrelevant(("save_total_limit",), message("keeps_every", "every checkpoint is kept"))
    _duration(keys)
    _optimizer(keys)
    carry_precision_flags(keys)
    _checkpointing(keys)
    _kernels(keys)
    _sampling(keys)
    _occasions(keys)
    if not keys.closed("lr_scheduler_type"):
        keys.word("lr_scheduler_type", SCHEDULERS)
    if shards:
        carry_sharding(keys, companion)
    _chips(keys)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)


def carry_count(keys: Keys, name: str, job_key: str, *, least: int = 1) -> int | None:
    """A whole number of at least ``least``; less is wrong."""
    count = keys.whole(name)
    if count is None:
        return None
    if count < least:
        keys.wrong(name, message("at_least", "{key} is at least {least}", key=name, least=least))
        return None
    keys.carry(name, (job_key, count))
    return count


def _duration(keys: Keys) -> None:
    epochs, steps = keys.number("num_train_epochs"), keys.whole("max_steps")
    if steps is not None and steps > 0:
        keys.carry("max_steps", (f"{_T}max_steps", steps))
        counts = message("steps_count", "max_steps counts instead")
        keys.irrelevant(("num_train_epochs",), counts)
    elif epochs is not None and epochs > 0:
        keys.carry("num_train_epochs", (f"{_T}num_train_epochs", epochs))
    elif epochs is not None:
        keys.wrong("num_train_epochs", message("more_than_none", "that trains nothing"))
    keys.irrelevant(("max_steps",), message("steps_by_epochs", "-1: the epochs count"))
    norm = keys.number("max_grad_norm")
    if norm is not None:
        keys.carry("max_grad_norm", (f"{_T}max_grad_norm", max(0.0, norm)))


def _optimizer(keys: Keys) -> None:
    if keys.flag("adafactor"):
        keys.carry("adafactor", (f"{_T}optim", "adafactor"))
    name = keys.word("optim", OPTIMIZERS)
    if name is not None:
        keys.carry("optim", (f"{_T}optim", name))


def carry_precision_flags(keys: Keys) -> None:
    """``bf16``, ``fp16``, ``tf32``: at most one half precision, under autocast."""
    bf16, fp16, tf32 = (keys.flag(name) for name in ("bf16", "fp16", "tf32"))
    half = "bf16" if bf16 else "fp16" if fp16 else None
    if keys.carrier.said(f"{_T}precision") is not None:
        half = bf16 = None  # FP8 and pure half precision go before the flags
    elif bf16 and fp16:
        text = message("bf16_and_fp16", "bf16 and fp16 are both true: the run has one precision")
        keys.wrong("fp16", text, how_to_fix=message("keep_one", "keep one of them"))
        half = None
    if half is not None:
        keys.carry(half, (f"{_T}precision", half))
    elif bf16 is False:
        keys.carry("bf16", (f"{_T}precision", "tf32" if tf32 else "none"))
    other = message("other_precision", "another key, or the framework's default, says it")
    keys.irrelevant(("bf16", "fp16"), other)
    keys.irrelevant(("tf32",), message("tf32_in_half", "it speeds up fp32 products alone"))


def _checkpointing(keys: Keys) -> None:
    key = f"{_T}gradient_checkpointing"
    script = keys.flag("use_reentrant")  # an argument of many scripts
    if script is not None:
        keys.carry("use_reentrant", (f"{_T}use_reentrant", script))
    for name in ("gradient_checkpointing", "activation_checkpointing"):
        if keys.closed(name):  # a framework that goes its own way
            continue
        value = keys.value(name)
        if isinstance(value, str) and value.strip().lower() == "unsloth":
            keys.carry(name, (key, "offload"))
        elif value is not None and keys.flag(name) is not None:
            keys.carry(name, (key, keys.flag(name)))
        options = keys.under(f"{name}_kwargs")
        reentrant = options.flag("use_reentrant")
        if reentrant is not None:
            if keys.carrier.said(key) is False:
                off = message("not_checkpointed", "nothing is checkpointed")
                options.irrelevant(("use_reentrant",), off)
            else:
                options.carry("use_reentrant", (f"{_T}use_reentrant", reentrant))
        details = message("checkpoint_details", "how a layer is run again")
        options.irrelevant(
            ("preserve_rng_state", "determinism_check", "debug", "early_stop"), details
        )
        unknown = message("checkpoint_kind", "this way of checkpointing has no job key")
        options.not_carried(("context_fn", "every_n_layers", "offload"), unknown)


def _kernels(keys: Keys) -> None:
    compiled = keys.flag("torch_compile")
    how = keys.first("torch_compile_backend", "torch_compile_mode")
    if compiled is not None:
        keys.carry("torch_compile", (f"{_T}torch_compile", compiled))
    elif how is not None:
        keys.carry(how, (f"{_T}torch_compile", True))
    keys.irrelevant(
        ("torch_compile_backend", "torch_compile_mode"),
        message("how_compiled", "how the model is compiled"),
    )
    for name in ("use_liger_kernel", "use_liger"):
        liger = keys.flag(name)
        if liger is not None:
            keys.carry(name, (f"{_T}use_liger_kernel", liger))
    settings = keys.value("liger_kernel_config")
    if isinstance(settings, Mapping):
        each = message("liger_parts", "which of Liger's kernels run is taken as the usual ones")
        keys.not_carried(("liger_kernel_config",), each)


def _sampling(keys: Keys) -> None:
    grouped = keys.flag("group_by_length")
    if grouped:
        keys.carry("group_by_length", (f"{_T}padding", "grouped"))
    strategy = keys.word("train_sampling_strategy", ("random", "sequential", "group_by_length"))
    if strategy == "group_by_length":
        keys.carry("train_sampling_strategy", (f"{_T}padding", "grouped"))
    keys.irrelevant(
        ("group_by_length", "train_sampling_strategy"),
        message("sampling_order", "the order of the samples alone"),
    )


def _occasions(keys: Keys) -> None:
    """When evaluation and checkpoints come; numbers below 1 are shares of the run."""
    every = keys.flag("evaluate_during_training")
    strategy = None
    for name in ("eval_strategy", "evaluation_strategy"):
        found = keys.word(name, _STRATEGIES)
        if found is not None:
            strategy = found
            keys.carry(name, (f"{_T}eval_strategy", found))
    if every and strategy is None:
        strategy = "steps"
        keys.carry("evaluate_during_training", (f"{_T}eval_strategy", "steps"))
    if strategy == "steps" and keys.value("eval_steps") is None:
        _steps(keys, "logging_steps", used=True, job_key=f"{_T}eval_steps")
    _steps(keys, "eval_steps", used=strategy == "steps")
    saves = keys.word("save_strategy", (*_STRATEGIES, "best"))
    if saves is not None:
        keys.carry("save_strategy", (f"{_T}save_strategy", saves))
    _steps(keys, "save_steps", used=saves in (None, "steps"))


def _steps(keys: Keys, name: str, *, used: bool, job_key: str | None = None) -> None:
    """A number of steps; where ``eval_steps`` is blank, ``logging_steps`` stands for it."""
    steps = keys.number(name)
    if steps is None:
        return
    if steps <= 0 or (steps > 1 and steps != int(steps)):
        text = message("steps_or_share", "a whole number of steps, or a share of the run below 1")
        keys.wrong(name, text)
    elif used:
        says = (job_key or f"{_T}{name}", int(steps) if steps >= 1 else steps)
        keys.carry(name, says)
    unused = message("steps_unused", "without the strategy `steps` it has no effect")
    keys.irrelevant((name,), unused)


# --- several cards --------------------------------------------------------------------------------


def carry_sharding(keys: Keys, companion: Companion) -> None:
    """``deepspeed``, ``fsdp`` and ``parallelism_config``."""
    words = _fsdp_words(keys)
    if words is not None and keys.value("deepspeed") is not None:
        text = message("deepspeed_and_fsdp", "deepspeed and fsdp cannot both shard the model")
        keys.wrong("deepspeed", text, how_to_fix=message("keep_one", "keep one of them"))
        return
    follow_engine(keys, "deepspeed", companion)
    if words is None:
        off = message("fsdp_off", "without fsdp it has no effect")
        keys.irrelevant(("fsdp", "fsdp_config"), off)
    else:
        _fsdp(keys, words, companion)
    layers = message("key_fsdp_loading", "how FSDP wraps, loads or saves, not what it holds")
    keys.irrelevant(("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params"), layers)
    degrees = keys.value("parallelism_config")
    if isinstance(degrees, Mapping):
        carry_degrees(keys.under("parallelism_config"))
        _plain_degrees(keys.under("parallelism_config"))


def _plain_degrees(keys: Keys) -> None:
    for name, axis in (("tp_size", "tensor"), ("cp_size", "context"), ("sp_size", "context")):
        size = keys.whole(name)
        if size is not None and size > 1:
            keys.carry(name, (f"parallelism.{axis}", size))
    shape = message("mesh_shape", "the number of processes and the other degrees say it")
    keys.irrelevant(("tp_size", "cp_size", "sp_size", "dp_replicate_size", "dp_shard_size"), shape)


def _fsdp_words(keys: Keys) -> tuple[str, ...] | None:
    """What ``fsdp`` lists; None where it is off."""
    value = keys.value("fsdp")
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return () if keys.flag("fsdp") else None
    words = keys.names("fsdp") or ()
    for word in words:
        if word not in FSDP_WORDS:
            near = message("fsdp_words", "fsdp lists {words}", words=", ".join(FSDP_WORDS))
            keys.wrong("fsdp", near, near=nearest(word, FSDP_WORDS))
            return None
    return words or None


def _fsdp(keys: Keys, words: tuple[str, ...], companion: Companion) -> None:
    keys.carry("fsdp")
    section = keys.under("fsdp_config")
    written = keys.value("fsdp_config")
    if isinstance(written, str):
        document = companion(written)
        if document is None:
            text = message("file_not_here", "{name} is not here", name=written)
            keys.not_carried(("fsdp_config",), text)
            keys.notice("fsdp_config", text)
        else:
            keys.carrier.join(document)
            keys.carry("fsdp_config")
            section = Keys(carrier=keys.carrier, document=document)
    versioned = any(section.value(name) is not None for name in ("version", "fsdp_version"))
    if words and not versioned:
        keys.notice(
            "fsdp",
            message(
                "fsdp_of_old",
                "fsdp as a list of words is how releases of transformers before 5.12 have it, "
                "which ran FSDP1; newer ones run FSDP2: --set parallelism.strategy=fsdp2",
            ),
        )
    carry_fsdp(section, default_version=1 if words else 2, words=words)


def _chips(keys: Keys) -> None:
    for name in ("use_cpu", "no_cuda", "use_mps_device"):
        if keys.flag(name):
            keys.refuse(name, message("no_accelerator", "{key}: no accelerator is used", key=name))
    off = message("accelerators_used", "accelerators are used")
    keys.irrelevant(("use_cpu", "no_cuda", "use_mps_device"), off)


def say_old_names(keys: Keys) -> None:
    """Arguments that transformers 5 no longer has tell an older release, with other defaults."""
    old = keys.first(*_OLD_NAMES)
    if old is None or keys.carrier.said("software.transformers") is not None:
        return
    text = message(
        "argument_of_old",
        "{key} is an argument of transformers before 5; the newest release is assumed all the "
        "same, and defaults differ (the type that weights are loaded in): "
        "--set software.transformers=4.57 states yours",
        key=old,
    )
    keys.notice(old, text)
