"""Launch lines of Megatron: ``pretrain_gpt.py`` and its kin, and ``megatron sft`` of ms-swift.

Source: Megatron-LM ``megatron/training/arguments.py`` core_v0.15.0; ms-swift 4.6.0.dev0
``swift/megatron/arguments/`` at 3602360a. A line of Megatron-LM gives the sizes of the model and no
name, so the model has to be stated beside it.
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
from tuneplan.formats.megatron_keys import IRRELEVANT, NOT_CARRIED
from tuneplan.formats.ms_swift_keys import IRRELEVANT as SWIFT_IRRELEVANT
from tuneplan.formats.ms_swift_keys import NOT_CARRIED as SWIFT_NOT_CARRIED
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.vicuna_scripts import say_defaults
from tuneplan.language import message

NAME: Final = "megatron"
_T: Final = "training."
_COMMANDS: Final = ("sft", "pt", "rlhf")
_SIGNS: Final = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size"),
    *("train_iters", "global_batch_size", "seq_length", "num_attention_heads", "train_samples"),
    *("recompute_granularity", "use_distributed_optimizer", "expert_model_parallel_size"),
)
_DEGREES: Final = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
}
_OBJECTIVES: Final = ("dpo", "kto", "rm", "grpo", "orpo", "simpo")
_ATTENTION: Final = {
    "flash": "flash_attention_2",
    "fused": "sdpa",
    "unfused": "eager",
    "local": "eager",
    "auto": None,
}
KEYS: Final = (
    *(*_SIGNS, *_DEGREES, "model", "num_train_epochs", "bf16", "fp16", "fp8_format", "optimizer"),
    *("clip_grad", "recompute_method", "recompute_num_layers", "recompute_activations"),
    *("save_interval", "save_steps", "eval_interval", "eval_steps", "tuner_type", "train_type"),
    *("lora_rank", "lora_alpha", "lora_dropout", "target_modules", "max_length", "packing"),
    *("attention_backend", "use_flash_attn", "optimizer_cpu_offload", "data_path", "dataset"),
    *("use_megatron_fsdp", "use_torch_fsdp2", "rlhf_type", "torch_dtype", "save_total_limit"),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)


def recognise(document: ForeignDocument) -> float:
    """``megatron sft``, or a launch line with several of Megatron's arguments."""
    tree = document.tree
    if document.form != "shell":
        return 0.0
    if _swift(tree):
        return 1.0
    signs = sum(name in tree for name in _SIGNS)
    return min(0.9, 0.2 * signs) if signs > 2 else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a launch line of Megatron's.

    Raises:
        InvalidRequest: Values that Megatron would refuse, with lines and near matches.
    """
    document = with_file_behind(document, companion)
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    command = _command(keys) if _swift(document.tree) else ""
    if command not in (*_COMMANDS, ""):
        return _nothing_trained(keys, command, version)
    _objective(keys, command)
    _model(keys)
    _tuner(keys)
    _training(keys)
    _recompute(keys)
    _precision(keys)
    _parallelism(keys)
    _data(keys, document)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    if _swift(document.tree):
        _swift_defaults(keys)
        keys.close(irrelevant=SWIFT_IRRELEVANT, not_carried=SWIFT_NOT_CARRIED)
    carry_launch(carrier, companion)
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _swift(tree: Mapping[str, Any]) -> bool:
    shell = tree.get("shell")
    program = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    return PurePosixPath(program).name == "megatron" or program.startswith("swift.cli._megatron")


def _command(keys: Keys) -> str:
    words = keys.value("shell.words")
    return str(words[0]) if isinstance(words, list) and words else ""


def _nothing_trained(keys: Keys, command: str, version: str | None) -> Imported:
    text = message("megatron_trains_nothing", "megatron {command} trains nothing", command=command)
    keys.refuse("shell.words", text)
    keys.irrelevant((*keys.section, *(f"shell.{n}" for n in keys.under("shell").section)), text)
    return keys.carrier.finish(name=NAME, version=version, known=KEYS)


def _swift_defaults(keys: Keys) -> None:
    """What ms-swift's Megatron does where the line is silent: its own, not Megatron's defaults."""
    says: dict[str, Any] = {
        "training.per_device_train_batch_size": 1,
        "training.global_batch_size": 16,
        "training.gradient_checkpointing": "selective",
        "parallelism.strategy": "zero1",
        "training.precision": "bf16",
    }
    if keys.carrier.said("method") == "lora":
        says |= {"adapter.r": 8, "adapter.lora_alpha": 32, "adapter.lora_dropout": 0.05}
        says |= {"adapter.target_modules": "all-linear"}
    say_defaults(keys, says)
    task = keys.text("task_type")
    if task not in (None, "causal_lm"):
        text = message("task_without_formula", "training for {task} has no formula yet", task=task)
        keys.refuse("task_type", text)
    if keys.value("teacher_model") is not None:
        text = message(
            "distillation_without_formula", "a teacher model beside the trained one has no formula"
        )
        keys.refuse("teacher_model", text)
    rest = message("belongs_to_refused", "it belongs to what is refused by name")
    keys.not_carried((n for n in keys.section if n.startswith(("teacher_", "offload_"))), rest)


def _objective(keys: Keys, command: str) -> None:
    program = str(keys.value("shell.program") or "")
    if command == "pt" or "pretrain" in PurePosixPath(program).name:
        keys.carrier.say("objective", "pretrain")
    kind = keys.word("rlhf_type", (*_OBJECTIVES, "gkd"))
    if kind == "gkd":
        text = message(
            "distillation_without_formula", "a teacher model beside the trained one has no formula"
        )
        keys.refuse("rlhf_type", text)
    elif kind is not None:
        keys.carry("rlhf_type", ("objective", kind))


def _model(keys: Keys) -> None:
    for name in ("model", "hf_model_path", "hf_path", "pretrained_model"):
        model = keys.text(name)
        if model is not None:
            keys.carry(name, ("model", model))
            return
    if keys.value("hidden_size") is not None and keys.carrier.said("model") is None:
        text = message(
            "sizes_without_name",
            "the line gives the model's sizes and no name: state which model it is (--model)",
        )
        keys.notice("hidden_size", text)


def _tuner(keys: Keys) -> None:
    name = keys.first("tuner_type", "train_type")
    kind = keys.word(name, ("lora", "full", "lora_llm")) if name is not None else "full"
    if name is not None and kind == "lora_llm":
        text = message("adapter_without_formula", "{name} has no formula yet", name=kind)
        keys.refuse(name, text)
        rest = message("belongs_to_refused", "it belongs to what is refused by name")
        keys.not_carried((n for n in keys.section if n.startswith(("lora_", "target_"))), rest)
        return
    if name is not None and kind is not None:
        keys.carry(name, ("method", kind))
    elif name is None:
        keys.carrier.say("method", "full")
    for written, job_key, read in (
        ("lora_rank", "adapter.r", keys.whole),
        ("lora_alpha", "adapter.lora_alpha", keys.number),
        ("lora_dropout", "adapter.lora_dropout", keys.number),
    ):
        value = read(written)
        if value is not None and kind == "lora":
            keys.carry(written, (job_key, value))
    targets = keys.names("target_modules")
    if targets and kind == "lora":
        every = set(targets) & {"all-linear", "ALL"}
        says = "all-linear" if every else [one for one in targets if one != "all-router"]
        keys.carry("target_modules", ("adapter.target_modules", says))
    unused = message("no_adapter", "no adapter is trained")
    keys.irrelevant(
        ("lora_rank", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save"), unused
    )


def _training(keys: Keys) -> None:
    for names, job_key, read in (
        (("micro_batch_size",), f"{_T}per_device_train_batch_size", keys.whole),
        (("global_batch_size",), f"{_T}global_batch_size", keys.whole),
        (("train_iters",), f"{_T}max_steps", keys.whole),
        (("num_train_epochs", "max_epochs"), f"{_T}num_train_epochs", keys.number),
        (("max_length", "seq_length"), f"{_T}max_length", keys.whole),
        (("clip_grad",), f"{_T}max_grad_norm", keys.number),
        (("save_interval", "save_steps"), f"{_T}save_steps", keys.whole),
        (("eval_interval", "eval_steps"), f"{_T}eval_steps", keys.whole),
        (("save_total_limit",), f"{_T}save_total_limit", keys.whole),
        (("packing",), f"{_T}packing", keys.flag),
    ):
        name = keys.first(*names)
        value = read(name) if name is not None else None
        if name is not None and value is not None:
            keys.carry(name, (job_key, value))
        keys.irrelevant(names, message("said_by_another", "another key says it"))
    _samples(keys)
    name = keys.text("optimizer")
    optimizer = {"adam": "adamw_apex_fused", "adamw": "adamw_apex_fused"}.get(name or "", name)
    if optimizer is not None:
        keys.carry("optimizer", (f"{_T}optim", optimizer))
    backend = keys.word("attention_backend", tuple(_ATTENTION))
    if backend is not None and _ATTENTION[backend] is not None:
        keys.carry("attention_backend", (f"{_T}attn_implementation", _ATTENTION[backend]))
    if keys.flag("use_flash_attn"):
        keys.carry("use_flash_attn", (f"{_T}attn_implementation", "flash_attention_2"))
    usual = message("attention_by_chip", "the backend's own choice for the chip")
    keys.irrelevant(("attention_backend", "use_flash_attn", "attn_impl"), usual)


def _samples(keys: Keys) -> None:
    samples, batch = keys.whole("train_samples"), keys.whole("global_batch_size")
    if samples is not None and batch and batch > 0:
        keys.carry("train_samples", (f"{_T}max_steps", max(1, samples // batch)))


def _recompute(keys: Keys) -> None:
    key = f"{_T}gradient_checkpointing"
    kind = keys.word("recompute_granularity", ("full", "selective", "none"))
    if kind is not None:
        says = {"full": True, "selective": "selective", "none": False}[kind]
        keys.carry("recompute_granularity", (key, says))
    elif keys.flag("recompute_activations"):
        keys.carry("recompute_activations", (key, "selective"))
    if kind == "full" and keys.value("recompute_method") == "block":
        text = message(
            "block_recompute", "with recompute_method block some layers are kept: all are counted "
            "as recomputed"
        )  # fmt: skip
        keys.not_carried(("recompute_num_layers",), text)
    detail = message("recompute_detail", "how many layers are recomputed at a time")
    keys.irrelevant(
        (
            *("recompute_method", "recompute_num_layers", "recompute_modules"),
            *("recompute_activations", "distribute_saved_activations", "moe_layer_recompute"),
        ),
        detail,
    )


def _precision(keys: Keys) -> None:
    bf16, fp16 = keys.flag("bf16"), keys.flag("fp16")
    if bf16 and fp16:
        text = message("bf16_and_fp16", "bf16 and fp16 are both true: the run has one precision")
        keys.wrong("fp16", text, how_to_fix=message("keep_one", "keep one of them"))
    half = "bf16" if bf16 else "fp16" if fp16 else None
    if half is not None:
        keys.carry(half, (f"{_T}precision", half))
    name = keys.first("fp8_format", "fp4_format")
    if name is not None:
        keys.carry(name, (f"{_T}precision", "fp8"))
    dtype = keys.text("torch_dtype")
    if dtype in ("bfloat16", "float16"):
        word = "bf16" if dtype == "bfloat16" else "fp16"
        keys.carry("torch_dtype", (f"{_T}precision", word))
    other = message("other_precision", "another key, or the framework's default, says it")
    details = (name for name in keys.section if name.startswith(("fp8_", "fp4_")))
    keys.irrelevant(("bf16", "fp16", "torch_dtype", *details), other)


def _parallelism(keys: Keys) -> None:
    for name, axis in _DEGREES.items():
        degree = keys.whole(name)
        if degree is not None:
            keys.carry(name, (f"parallelism.{axis}", max(1, degree)))
    for name in ("use_megatron_fsdp", "use_torch_fsdp2", "use_custom_fsdp"):
        if keys.flag(name):
            text = message("part_without_formula", "{key} has no formula yet", key=name)
            keys.refuse(name, text)
    distributed = keys.flag("use_distributed_optimizer")
    if distributed is not None:
        strategy = "zero1" if distributed else "ddp"
        keys.carry("use_distributed_optimizer", ("parallelism.strategy", strategy))
    if keys.flag("optimizer_cpu_offload"):
        keys.carry("optimizer_cpu_offload", ("parallelism.offload", "optimizer"))
    off = message("switch_off", "it is off")
    keys.irrelevant(
        (
            *("use_megatron_fsdp", "use_torch_fsdp2", "use_custom_fsdp", "optimizer_cpu_offload"),
            "data_parallel_sharding_strategy",
        ),
        off,
    )


def _data(keys: Keys, document: ForeignDocument) -> None:
    for name in ("dataset", "data_path", "train_data_path", "val_dataset", "valid_data_path"):
        value = keys.value(name)
        named = [one for one in (value if isinstance(value, list) else [value])
                 if isinstance(one, str)]  # fmt: skip
        files = local_files((one.partition("#")[0] for one in named), document)
        if files and not name.startswith("val"):
            keys.carry(name, ("data.path", list(files)))
        keys.not_carried((name,), NO_DATA_HERE)
    share = keys.number("split_dataset_ratio")
    if share is not None and 0 <= share < 1:
        keys.carry("split_dataset_ratio", ("data.eval_fraction", share))
    if keys.flag("padding_free") and not keys.flag("packing"):
        keys.carry("padding_free", (f"{_T}padding", "none"))
    keys.irrelevant(("padding_free", "mlp_padding_free"),
                    message("padding_settled", "rows are packed, or padded"))  # fmt: skip
