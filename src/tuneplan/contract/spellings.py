"""Other spellings: Hugging Face's keys that mean one of ours, keys that change nothing, near keys.

Hugging Face's arguments are flat, so each of them may stand at the top level or in the section that
it belongs to. Sources: ``TrainingArguments`` and ``BitsAndBytesConfig`` of transformers,
``SFTConfig`` and ``ModelConfig`` of trl, ``LoraConfig`` of peft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tuneplan.contract.values import Refused, nearest
from tuneplan.frozen import dataclass
from tuneplan.language import message

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spelling:
    """Keys that together say something of ours.

    Attributes:
        written: The keys as Hugging Face has them.
        section: Where they may stand besides the top level.
        means: From what was written to our key paths and values.
        targets: The key paths that it may set, for the reference.
    """

    written: tuple[str, ...]
    section: str
    means: Callable[[Values], dict[str, Any]]
    targets: tuple[str, ...]


def _renamed(written: str, target: str) -> Spelling:
    def means(values: Values) -> dict[str, Any]:
        return {target: values[written]}

    return Spelling((written,), target.rpartition(".")[0], means, (target,))


def _flag(values: Values, name: str) -> bool | None:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(message("not_a_flag", "{name} expects true or false", name=name))
    return value


def _precision(values: Values) -> dict[str, Any]:
    bf16, fp16, tf32 = (_flag(values, name) for name in ("bf16", "fp16", "tf32"))
    if bf16 and fp16:
        raise Refused(
            message("bf16_and_fp16", "bf16 and fp16 are both true: the run has one precision"),
            how_to_fix=message("keep_one", "keep one of them"),
        )
    if bf16 or fp16 or tf32:
        return {"training.precision": "bf16" if bf16 else "fp16" if fp16 else "tf32"}
    # Without bf16 and fp16 the Trainer opens no autocast region; fp16: false alone says nothing
    # about bf16, whose default differs between frameworks.
    return {"training.precision": "none"} if bf16 is False else {}


def _bits(values: Values) -> dict[str, Any]:
    four, eight = (_flag(values, name) for name in ("load_in_4bit", "load_in_8bit"))
    if four and eight:
        raise Refused(
            message("four_and_eight_bits", "load_in_4bit and load_in_8bit are both true"),
            how_to_fix=message("keep_one", "keep one of them"),
        )
    return {"quantization.bits": 4 if four else 8} if four or eight else {}


def _grouped(values: Values) -> dict[str, Any]:
    return {"training.padding": "grouped"} if _flag(values, "group_by_length") else {}


def _sampling(values: Values) -> dict[str, Any]:
    strategy = values["train_sampling_strategy"]
    if strategy not in ("random", "sequential", "group_by_length"):
        raise Refused(
            message(
                "not_one_of",
                "{value!r} is not one of {choices}",
                value=str(strategy),
                choices="random, sequential, group_by_length",
            )
        )
    return {"training.padding": "grouped"} if strategy == "group_by_length" else {}


def _checkpointing_kwargs(values: Values) -> dict[str, Any]:
    options = values["gradient_checkpointing_kwargs"]
    if not isinstance(options, Mapping) or set(options) - {"use_reentrant"}:
        raise Refused(
            message(
                "checkpointing_kwargs",
                "gradient_checkpointing_kwargs expects {{use_reentrant: true}} or false",
            )
        )
    return {"training.use_reentrant": options.get("use_reentrant")}


_RENAMED: Final = {
    "model_name_or_path": "model",
    "model_name": "model",
    "torch_dtype": "training.dtype",
    "max_seq_length": "training.max_length",
    "use_liger": "training.use_liger_kernel",
    "bnb_4bit_quant_type": "quantization.type",
    "bnb_4bit_use_double_quant": "quantization.double_quant",
    "use_bnb_nested_quant": "quantization.double_quant",
    "lora_r": "adapter.r",
    "lora_target_modules": "adapter.target_modules",
    "lora_modules_to_save": "adapter.modules_to_save",
}
# Ours under Hugging Face's own names: only their place differs.
_FLAT: Final = (
    *(f"adapter.{name}" for name in ("lora_alpha", "lora_dropout", "target_modules")),
    *(f"adapter.{name}" for name in ("modules_to_save", "use_rslora", "use_dora")),
    *(
        f"training.{name}"
        for name in (
            *("dtype", "num_train_epochs", "max_steps", "max_length", "packing"),
            *("per_device_train_batch_size", "per_device_eval_batch_size"),
            *("gradient_accumulation_steps", "optim", "gradient_checkpointing"),
            *("attn_implementation", "use_liger_kernel", "torch_compile", "max_grad_norm"),
            *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "save_total_limit"),
        )
    ),
)
SPELLINGS: Final = (
    *(_renamed(written, target) for written, target in _RENAMED.items()),
    *(_renamed(target.rpartition(".")[2], target) for target in _FLAT),
    Spelling(("bf16", "fp16", "tf32"), "training", _precision, ("training.precision",)),
    Spelling(("load_in_4bit", "load_in_8bit"), "quantization", _bits, ("quantization.bits",)),
    Spelling(("group_by_length",), "training", _grouped, ("training.padding",)),
    Spelling(("train_sampling_strategy",), "training", _sampling, ("training.padding",)),
    Spelling(
        ("gradient_checkpointing_kwargs",),
        "training",
        _checkpointing_kwargs,
        ("training.use_reentrant",),
    ),
)

# Accepted at the top level and in `training`, and left aside: they change what is learnt, logged
# or published, not memory, time or cost as estimated.
IRRELEVANT: Final = frozenset(
    (
        *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_ratio"),
        *("warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
        *("seed", "data_seed", "full_determinism", "use_peft", "task_type", "lora_task_type"),
        *("logging_steps", "logging_dir", "logging_strategy", "logging_first_step", "log_level"),
        *("report_to", "run_name", "disable_tqdm", "output_dir", "overwrite_output_dir"),
        *("do_train", "do_eval", "metric_for_best_model", "greater_is_better"),
        *("resume_from_checkpoint", "ddp_timeout", "push_to_hub", "hub_model_id"),
        *("hub_strategy", "hub_private_repo", "trust_remote_code", "use_fast_tokenizer"),
        *("chat_template_path", "completion_only_loss", "assistant_only_loss", "beta"),
        *("dataset_text_field", "dataset_num_proc", "remove_unused_columns", "eos_token"),
        *(
            "pad_token",
            "neftune_noise_alpha",
            "dataloader_pin_memory",
            "ddp_find_unused_parameters",
        ),
    )
)

# Names that other tools have for a key of ours. They are refused, with this as the nearest key.
_ELSEWHERE: Final = {
    "batch_size": "training.per_device_train_batch_size",
    "micro_batch_size": "training.per_device_train_batch_size",
    "train_batch_size": "training.global_batch_size",
    "eval_batch_size": "training.per_device_eval_batch_size",
    "grad_accum": "training.gradient_accumulation_steps",
    "epochs": "training.num_train_epochs",
    "num_epochs": "training.num_train_epochs",
    "cutoff_len": "training.max_length",
    "sequence_len": "training.max_length",
    "seq_len": "training.max_length",
    "max_seq_len": "training.max_length",
    "seq_length": "training.max_length",
    "context_length": "training.max_length",
    "optimizer": "training.optim",
    "flash_attn": "training.attn_implementation",
    "compile": "training.torch_compile",
    "activation_checkpointing": "training.gradient_checkpointing",
    "sample_packing": "training.packing",
    "mixed_precision": "training.precision",
    "deepspeed": "parallelism.strategy",
    "fsdp": "parallelism.strategy",
    "fsdp_config": "parallelism.strategy",
    "tp": "parallelism.tensor",
    "pp": "parallelism.pipeline",
    "gpu": "hardware.accelerator",
    "gpus": "hardware.accelerator",
    "num_gpus": "hardware.accelerators_per_node",
    "gpus_per_node": "hardware.accelerators_per_node",
    "num_processes": "hardware.accelerators_per_node",
    "nodes": "hardware.num_nodes",
    "num_machines": "hardware.num_nodes",
    "ram": "hardware.host_memory",
    "lora": "adapter",
    "peft": "adapter",
    "rank": "adapter.r",
    "lora_rank": "adapter.r",
    "alpha": "adapter.lora_alpha",
    "dropout": "adapter.lora_dropout",
    "quantization_bit": "quantization.bits",
    "finetuning_type": "method",
    "stage": "objective",
    "dataset": "data.path",
    "train_file": "data.path",
    "samples": "data.num_samples",
    "tokens": "data.total_tokens",
    "base_model": "model",
}


def near_keys(path: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The key paths that ``path`` may have meant, best first."""
    section, _, leaf = path.rpartition(".")
    known = _ELSEWHERE | _RENAMED
    found = [known[leaf.lower()]] if leaf.lower() in known else []
    found += [key for key in keys if key.rpartition(".")[2] == leaf]
    leaves = nearest(leaf, tuple(dict.fromkeys(key.rpartition(".")[2] for key in keys)))
    for name in leaves:
        matches = [key for key in keys if key.rpartition(".")[2] == name]
        found += sorted(matches, key=lambda key: key.rpartition(".")[0] != section)
    return tuple(dict.fromkeys(found))[:3]
