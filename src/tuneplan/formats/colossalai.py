"""Colossal-AI: launch lines of its examples, read for what decides memory; estimates are refused.

Source: ColossalAI ``examples/language/llama/benchmark.py`` and ``applications/Colossal-LLaMA/
train.py`` at v0.5.0 (plugins and their arguments). Its Gemini manager and low-level ZeRO have no
formula here, so that an estimate is refused by the framework's name.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.tables import Reasons
from tuneplan.language import message

NAME: Final = "colossalai"
_PLUGINS: Final = {
    "ddp": "ddp",
    "torch_ddp": "ddp",
    "torch_ddp_fp16": "ddp",
    "fsdp": "fsdp",
    "torch_fsdp": "fsdp",
    "fsdp_cpu": "fsdp",
    "zero2": "zero2",
    "zero2_cpu": "zero2",
    "low_level_zero": "zero2",
    "gemini": "zero3",
    "gemini_auto": "zero3",
    "3d": None,
    "3d_cpu": None,
    "hybrid_parallel": None,
    "moe": None,
}
_PLAIN: Final = (
    (("pretrained", "pretrain", "model_name_or_path", "model_path"), "model", "text"),
    (("batch_size", "micro_batch_size"), "training.per_device_train_batch_size", "whole"),
    (("accumulation_steps", "gradient_accumulation"), "training.gradient_accumulation_steps",
     "whole"),
    (("max_length", "max_len"), "training.max_length", "whole"),
    (("num_epochs", "max_epochs", "num_epoch"), "training.num_train_epochs", "number"),
    (("num_steps", "max_steps"), "training.max_steps", "whole"),
    (("grad_clip", "max_norm"), "training.max_grad_norm", "number"),
    (("save_interval",), "training.save_steps", "whole"),
    (("lora_rank",), "adapter.r", "whole"),
    (("tp", "tensor_parallel"), "parallelism.tensor", "whole"),
    (("pp",), "parallelism.pipeline", "whole"),
    (("sp",), "parallelism.context", "whole"),
    (("ep", "ep_size"), "parallelism.expert", "whole"),
)  # fmt: skip
_IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("lr", "learning_rate", "weight_decay", "warmup_steps", "seed", "warmup_ratio"),
            *("lr_scheduler", "use_neft", "freeze_non_embeds_params", "dropout", "beta"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        ("tensorboard_dir", "config_file", "save_dir", "save_path", "log_dir", "use_wandb"),
    ),
    (
        message("key_loads", "it tells how things are loaded, kept on disk or started"),
        ("tokenizer_dir", "load_checkpoint", "skip_save_each_epoch", "merge_lora_weights", "s"),
    ),
)
_NOT_CARRIED: Final = Reasons(
    (
        message("key_colossal_plugin", "the plugin's own settings have no job key"),
        (
            *("zero_stage", "zero_cpu_offload", "custom_ckpt", "microbatch_size", "enable_async_*"),
            *("n_chunks", "pp_style", "sp_mode", "enable_sequence_parallelism", "placement_policy"),
            *("shard_param_frac", "offload_optim_frac", "offload_param_frac", "extra_dp_size"),
            *("memory_limit", "mbs", "zero", "initial_scale", "padding_mode", "pad_token"),
        ),
    ),
)
KEYS: Final = (
    *(name for names, _, _ in _PLAIN for name in names),
    *("plugin", "mixed_precision", "use_grad_checkpoint", "use_flash_attn", "dataset"),
    *_IRRELEVANT.names,
    *_NOT_CARRIED.names,
)


def recognise(document: ForeignDocument) -> float:
    """Started by ``colossalai run``, or with one of its plugins."""
    tree = document.tree
    if document.form != "shell":
        return 0.0
    shell = tree.get("shell")
    started = isinstance(shell, dict) and shell.get("launcher") == "colossalai"
    plugin = tree.get("plugin") in _PLUGINS
    return 1.0 if started and plugin else 0.9 if started else 0.8 if plugin else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a launch line of Colossal-AI's.

    Raises:
        InvalidRequest: Values that it would refuse, with lines and near matches.
    """
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    plugin = keys.word("plugin", tuple(_PLUGINS))
    if plugin is not None:
        strategy = _PLUGINS[plugin]
        keys.carry("plugin", *([("parallelism.strategy", strategy)] if strategy else []))
        if plugin.endswith("_cpu"):
            keys.carry("plugin", ("parallelism.offload", "optimizer"))
    readers = {"text": keys.text, "whole": keys.whole, "number": keys.number}
    for names, job_key, kind in _PLAIN:
        name = keys.first(*names)
        value = readers[kind](name) if name is not None else None
        if name is not None and value not in (None, 0):
            keys.carry(name, (job_key, value))
        elif name is not None:
            keys.irrelevant((name,), message("zero_is_off", "0: it is off"))
    _switches(keys)
    carrier.say("method", "lora" if carrier.said("adapter.r") else "full")
    for name in ("dataset", "dataset_path", "data_path", "train_dataset"):
        keys.not_carried((name,), NO_DATA_HERE)
    keys.close(irrelevant=_IRRELEVANT, not_carried=_NOT_CARRIED)
    carry_launch(carrier, companion)
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _switches(keys: Keys) -> None:
    precision = keys.word("mixed_precision", ("fp16", "bf16", "fp8", "no"))
    if precision is not None:
        word = "none" if precision == "no" else precision
        keys.carry("mixed_precision", ("training.precision", word))
    for name in ("use_grad_checkpoint", "grad_checkpoint", "grad_ckpt"):
        on = keys.flag(name)
        if on is not None:
            keys.carry(name, ("training.gradient_checkpointing", on))
    for name in ("use_flash_attn", "flash_attention"):
        if keys.flag(name):
            keys.carry(name, ("training.attn_implementation", "flash_attention_2"))
    keys.irrelevant(("use_flash_attn", "flash_attention"), message("switch_off", "it is off"))
