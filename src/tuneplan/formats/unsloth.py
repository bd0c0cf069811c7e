"""Unsloth: lines of ``unsloth-cli.py`` and ``unsloth train``, and the YAML of the latter.

Source: unsloth ``unsloth-cli.py``, ``unsloth_cli/config.py`` and ``commands/train.py`` at 015bdef0.
Flat files with the arguments of its notebooks (``use_gradient_checkpointing``) are read too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tuneplan.formats.behind_line import with_file_behind
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.tables import Reasons
from tuneplan.formats.trainer_arguments import carry_trainer_arguments
from tuneplan.formats.trainer_keys import KNOWN as TRAINER_KEYS
from tuneplan.formats.vicuna_scripts import say_defaults
from tuneplan.language import message

NAME: Final = "unsloth"
_SECTIONS: Final = ("training", "lora", "data", "logging")
_CHECKPOINTING: Final = {"unsloth": "offload", "true": True, "false": False, "none": False}
# The script's own defaults where they are not those of Unsloth's functions.
_SCRIPT: Final[dict[str, Any]] = {"training.max_steps": 400, "training.max_length": 2048}
_COMMAND: Final[dict[str, Any]] = {
    "training.num_train_epochs": 3,
    "training.max_length": 2048,
    "adapter.r": 64,
    "adapter.lora_alpha": 16,
}
_PLAIN: Final = (
    (("model_name", "model"), "model", "text"),
    (("max_seq_length",), "training.max_length", "whole"),
    (("batch_size",), "training.per_device_train_batch_size", "whole"),
    (("num_epochs",), "training.num_train_epochs", "number"),
    (("packing",), "training.packing", "flag"),
    (("r", "lora_r"), "adapter.r", "whole"),
    (("lora_alpha",), "adapter.lora_alpha", "number"),
    (("lora_dropout",), "adapter.lora_dropout", "number"),
    (("use_rslora",), "adapter.use_rslora", "flag"),
    (("use_dora",), "adapter.use_dora", "flag"),
)
_IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("learning_rate", "warmup_steps", "weight_decay", "lr_scheduler_type", "seed"),
            *("random_state", "random_seed", "bias", "train_on_completions", "warmup_ratio"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        (
            *("report_to", "logging_steps", "save_model", "save_method", "save_gguf", "save_path"),
            *("quantization", "push_model", "push_gguf", "hub_path", "hub_token", "enable_*"),
            *("wandb_*", "tensorboard_dir", "hf_token", "output_dir", "quantization_method"),
        ),
    ),
    (
        message("key_prepares", "it prepares or renders the samples before training"),
        ("format_type", "chunk_size", "stride", "dataset_text_field", "dataset_num_proc", "config"),
    ),
)
_NOT_CARRIED: Final = Reasons(
    (
        message("key_adapter_parts", "all adapters of a job have one rank, in every layer"),
        ("loftq_config", "use_loftq", "finetune_attention_modules", "finetune_mlp_modules"),
    ),
    (
        message("key_trained_parts", "which part of a model that sees is trained has no job key"),
        ("finetune_vision_layers", "finetune_language_layers", "vision_all_linear"),
    ),
    (
        message("key_unsloth_loading", "what it keeps in main memory beside this has no job key"),
        ("offload_embedding", "gpu_memory_utilization", "fast_inference", "float8_kv_cache"),
    ),
)
KEYS: Final = (
    *(name for names, _, _ in _PLAIN for name in names),
    *("load_in_4bit", "load_in_8bit", "full_finetuning", "training_type", "target_modules"),
    *("use_gradient_checkpointing", "gradient_checkpointing", "dtype", "dataset", "local_dataset"),
    *("training.max_seq_length", "training.training_type", "lora.lora_r", "data.dataset"),
    *_IRRELEVANT.names,
    *_NOT_CARRIED.names,
    *TRAINER_KEYS,
)


def recognise(document: ForeignDocument) -> float:
    """One of its programs, its sections, or its word for checkpointing."""
    tree = document.tree
    if document.form == "shell":
        return 1.0 if _program(tree) is not None else 0.0
    training, lora = tree.get("training"), tree.get("lora")
    if isinstance(training, Mapping) and ("training_type" in training or isinstance(lora, Mapping)):
        own = {"training_type", "max_seq_length", "load_in_4bit", "batch_size", "num_epochs"}
        return 0.9 if own & set(training) else 0.0
    flat = "use_gradient_checkpointing" in tree
    return 0.8 if flat and {"max_seq_length", "load_in_4bit", "lora_r", "r"} & set(tree) else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a line or a file of Unsloth's.

    Raises:
        InvalidRequest: Values that Unsloth would refuse, with lines and near matches.
    """
    program = _program(document.tree)
    document = with_file_behind(document, companion)
    carrier = Carrier(document)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    places = [Keys(carrier=carrier)]
    places += [places[0].under(name) for name in _SECTIONS if places[0].under(name).section]
    for keys in places:
        _plain(keys)
        _checkpointing(keys)
        _targets(keys)
        _data(keys, document)
    _method(places, program)
    for keys in places:
        carry_trainer_arguments(keys, companion)
        keys.close(irrelevant=_IRRELEVANT, not_carried=_NOT_CARRIED)
    carry_launch(carrier, companion)
    if program == "unsloth-cli":
        say_defaults(places[0], _SCRIPT)
    elif program == "unsloth":
        say_defaults(places[0], _COMMAND)
    if carrier.said("method") == "full":
        carrier.drop("adapter")
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _program(tree: Mapping[str, Any]) -> str | None:
    shell = tree.get("shell")
    name = PurePosixPath(str(shell.get("program", ""))).name if isinstance(shell, Mapping) else ""
    stem = name.removesuffix(".py").replace("_", "-")
    return stem if stem in ("unsloth-cli", "unsloth") else None


def _plain(keys: Keys) -> None:
    readers = {"text": keys.text, "whole": keys.whole, "number": keys.number, "flag": keys.flag}
    for names, job_key, kind in _PLAIN:
        for name in names:
            if isinstance(keys.value(name), Mapping):
                continue
            value = readers[kind](name)
            if value is not None:
                keys.carry(name, (job_key, value))
    zero = message("zero_is_blank", "0: the epochs, or the framework's default, count")
    for name in ("max_steps", "save_steps"):
        if keys.value(name) == 0:
            keys.irrelevant((name,), zero)
        elif (count := keys.whole(name)) is not None:
            keys.carry(name, (f"training.{name}", count))
    dtype = keys.value("dtype")
    if isinstance(dtype, str) and dtype not in ("None", "auto"):
        known = keys.word("dtype", ("float16", "bfloat16", "float32"))
        if known is not None:
            keys.carry("dtype", ("training.dtype", known))


def _checkpointing(keys: Keys) -> None:
    for name in ("use_gradient_checkpointing", "gradient_checkpointing"):
        word = keys.word(name, tuple(_CHECKPOINTING))
        if word is not None:
            keys.carry(name, ("training.gradient_checkpointing", _CHECKPOINTING[word]))


def _targets(keys: Keys) -> None:
    names = keys.names("target_modules")
    if names:
        says = "all-linear" if names == ("all-linear",) else list(names)
        keys.carry("target_modules", ("adapter.target_modules", says))


def _data(keys: Keys, document: ForeignDocument) -> None:
    for name in ("dataset", "local_dataset", "raw_text_file"):
        value = keys.value(name)
        named = [one for one in (value if isinstance(value, list) else [value])
                 if isinstance(one, str)]  # fmt: skip
        files = local_files(named, document)
        if files:
            keys.carry(name, ("data.path", list(files)))
        keys.not_carried((name,), NO_DATA_HERE)


def _method(places: list[Keys], program: str | None) -> None:
    """Full training, an adapter, or an adapter on 4 or 8 bits.

    ``load_in_4bit`` is a switch of the old script (off unless given), on in the functions and in
    the new command.
    """
    carrier = places[0].carrier
    four: bool | None = None
    full = False
    for keys in places:
        kind = keys.word("training_type", ("lora", "full"))
        whole = keys.flag("full_finetuning")
        full = full or kind == "full" or bool(whole)
        stated = keys.flag("load_in_4bit")
        four = four if stated is None else stated
        for name in ("training_type", "full_finetuning"):
            if keys.value(name) is not None:
                keys.carry(name, ("method", "full" if full else "lora"))
        if keys.flag("load_in_8bit"):
            keys.carry("load_in_8bit", ("quantization.bits", 8))
    if four is None and program != "unsloth-cli":
        four = True
    eight = carrier.said("quantization.bits") == 8
    method = "full" if full else "qlora" if four or eight else "lora"
    carrier.say("method", method)
    for keys in places:
        if keys.value("load_in_4bit") is not None:
            keys.carry("load_in_4bit", ("method", method))
        if method == "qlora" and four and not eight and keys.value("load_in_4bit"):
            keys.carry("load_in_4bit", ("quantization.bits", 4))
    if method == "full":
        carrier.drop("quantization")
