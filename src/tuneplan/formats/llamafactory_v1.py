"""Files of LLaMA-Factory's new trainer (``llamafactory-cli`` with ``USE_V1=1``).

Source: LLaMA-Factory ``v1/config/*_args.py`` and ``v1/plugins/`` at ff6d4d12. Its releases have no
description of their own in this program, so those of the usual trainer count where a file is
silent, and the reader is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuneplan.formats.data_files import NO_DATA_HERE
from tuneplan.formats.deepspeed import follow_engine
from tuneplan.formats.foreign import Companion, ForeignDocument
from tuneplan.formats.keys import Keys
from tuneplan.formats.remote_code import say_remote_code
from tuneplan.formats.tables import Reasons
from tuneplan.formats.targets import carry_targets
from tuneplan.formats.trainer_arguments import carry_count
from tuneplan.language import message

_SIGNS: Final = (
    *("model_class", "init_config", "kernel_config", "quant_config", "dist_config"),
    *("train_dataset", "sample_backend", "micro_batch_size", "batching_strategy", "cutoff_len"),
    *("optim_config", "peft_config", "enable_activation_checkpointing", "custom_chat_template"),
)
_ATTENTION: Final = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
_BATCHING: Final = ("normal", "padding_free", "dynamic_batching", "dynamic_padding_free")
_ENGINES: Final = ("fsdp2", "deepspeed", "fsdpturbo", "ddp")

IRRELEVANT: Final = Reasons(
    (
        message("v1_learning", "what is learnt, not what it takes"),
        (
            *("learning_rate", "lr_scheduler_config", "seed", "full_determinism", "pref_beta"),
            *("pref_ftx", "simpo_gamma", "dpo_label_smoothing", "ld_alpha"),
        ),
    ),
    (
        message("v1_running", "where the run starts, what is logged and stored"),
        (
            *("output_dir", "logging_steps", "resume_from_checkpoint", "save_ckpt_as_hf"),
            *("model_class", "init_config", "custom_chat_template", "batching_workers"),
            *("sample_backend", "max_new_tokens", "dist_timeout", "report_to", "run_name"),
            *("peft_config.adapter_name_or_path", "peft_config.infer_dtype", "logging_dir"),
            *("peft_config.export_size", "dist_config.dcp_path", "cp_mode", "optim_config"),
            *("dist_config.ep_dispatcher", "dist_config.mixed_precision", "template"),
            *("peft_config.task_type", "peft_config.bias", "dist_config.reshard_after_forward"),
        ),
    ),
)
NOT_CARRIED: Final = Reasons(
    (
        message("v1_kernels", "which kernels it picks by itself is not known here"),
        ("kernel_config",),
    ),
    (
        message("v1_saves", "checkpoints by epochs and meshes of ranks have no job key"),
        ("save_epochs", "dp_size", "mp_replicate_size", "mp_shard_size", "dist_config"),
    ),
    (message("v1_parts", "this part of the adapter has no job key"), ("peft_config",)),
)
KNOWN: Final = (
    *("model", "micro_batch_size", "global_batch_size", "num_train_epochs", "max_steps", "bf16"),
    *("max_grad_norm", "flash_attn", "cp_size", "save_steps", "save_total_limit", "pref_loss"),
    *_SIGNS,
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)


def recognise(document: ForeignDocument) -> float:
    """``model`` beside sections that only this trainer has."""
    if not isinstance(document.tree.get("model"), str):
        return 0.0
    signs = sum(name in document.tree for name in _SIGNS)
    adapter = document.tree.get("peft_config")
    signs += isinstance(adapter, Mapping) and isinstance(adapter.get("name"), str)
    return min(1.0, 0.2 * signs) if signs > 1 else 0.0


def carry(keys: Keys, companion: Companion) -> None:
    """Everything that a file says."""
    keys.carry("model", ("model", keys.text("model")))
    keys.notice(
        "model",
        message(
            "v1_trainer",
            "a file of LLaMA-Factory's new trainer (v1): what it leaves blank is taken as in the "
            "usual one",
        ),
    )
    say_remote_code(keys.carrier, "trust_remote_code")
    _method(keys)
    _training(keys)
    _batching(keys)
    _engine(keys, companion)
    _kernels(keys)
    loss = keys.word("pref_loss", ("sigmoid", "orpo", "simpo"))
    if loss is not None:
        keys.carry("pref_loss", ("objective", "dpo" if loss == "sigmoid" else loss))
    keys.not_carried(("train_dataset", "eval_dataset"), NO_DATA_HERE)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)


def _method(keys: Keys) -> None:
    adapter = keys.under("peft_config")
    if adapter.value("export_dir") is not None:
        text = message("only_exports", "it merges weights, it trains nothing")
        adapter.refuse("export_dir", text)
    name = adapter.word("name", ("lora", "freeze"))
    bits = keys.whole("quant_config.quantization_bit")
    if name is None:
        keys.carrier.say("method", "full")
    elif name == "freeze":
        adapter.carry("name", ("method", "freeze"))
        carry_count(adapter, "freeze_trainable_layers", "training.trained_layers")
        whole = message("whole_layers", "whole layers are counted")
        adapter.irrelevant(("freeze_trainable_modules", "freeze_extra_modules"), whole)
    else:
        adapter.carry("name", ("method", "qlora" if bits else "lora"))
        carry_count(adapter, "r", "adapter.r")
        for key in ("lora_alpha", "lora_dropout"):
            if adapter.number(key) is not None:
                adapter.carry(key, (f"adapter.{key}", adapter.number(key)))
        carry_targets(keys.carrier, adapter.path("target_modules"))
    if bits is not None:
        keys.carry("quant_config.quantization_bit", ("quantization.bits", bits))
        keys.word("quant_config.name", ("bnb",))
        keys.irrelevant(("quant_config.name",), message("bnb_is_usual", "bitsandbytes, as usual"))


def _training(keys: Keys) -> None:
    if carry_count(keys, "micro_batch_size", "training.per_device_train_batch_size") is None:
        keys.carrier.say("training.per_device_train_batch_size", 1)
    for name, job_key in (
        ("global_batch_size", "training.global_batch_size"),
        ("cutoff_len", "training.max_length"),
        ("max_steps", "training.max_steps"),
        ("save_steps", "training.save_steps"),
        ("save_total_limit", "training.save_total_limit"),
    ):
        carry_count(keys, name, job_key)
    epochs, norm = keys.number("num_train_epochs"), keys.number("max_grad_norm")
    if epochs is not None and keys.carrier.said("training.max_steps") is None:
        keys.carry("num_train_epochs", ("training.num_train_epochs", epochs))
    keys.irrelevant(("num_train_epochs",), message("steps_count", "max_steps counts instead"))
    if norm is not None:
        keys.carry("max_grad_norm", ("training.max_grad_norm", norm))
    half = keys.flag("bf16")
    if half is not None:
        keys.carry("bf16", ("training.precision", "bf16" if half else "fp32"))
    checkpoints = keys.flag("enable_activation_checkpointing")
    if checkpoints is not None:
        says: tuple[str, Any] = ("training.gradient_checkpointing", checkpoints)
        keys.carry("enable_activation_checkpointing", says)
    attention = keys.word("flash_attn", _ATTENTION)
    if attention is not None:
        keys.carry("flash_attn", ("training.attn_implementation", attention))
    optimizer = keys.text("optim_config.name")
    if optimizer is not None:
        names = {"adamw": "adamw_torch", "adam": "adamw_torch"}
        keys.carry("optim_config.name", ("training.optim", names.get(optimizer, optimizer)))


def _batching(keys: Keys) -> None:
    strategy = keys.word("batching_strategy", _BATCHING)
    if strategy == "padding_free":
        keys.carry("batching_strategy", ("training.padding", "none"))
    elif strategy == "dynamic_padding_free":
        keys.carry("batching_strategy", ("training.packing", True))
    elif strategy == "dynamic_batching":
        text = message("v1_dynamic", "batches that grow with short samples have no job key")
        keys.not_carried(("batching_strategy",), text)
    keys.irrelevant(("batching_strategy",), message("v1_padded", "padded batches, as usual"))


def _engine(keys: Keys, companion: Companion) -> None:
    engine = keys.under("dist_config")
    name = engine.word("name", _ENGINES)
    if name == "deepspeed":
        engine.carry("name")
        follow_engine(engine, "config_file", companion)
    elif name is not None:
        strategy = "fsdp2" if name == "fsdpturbo" else name
        engine.carry("name", ("parallelism.strategy", strategy))
    experts = engine.whole("ep_size")
    if experts is not None:
        engine.carry("ep_size", ("parallelism.expert", max(1, experts)))
    context = keys.whole("cp_size")
    if context is not None:
        keys.carry("cp_size", ("parallelism.context", max(1, context)))


def _kernels(keys: Keys) -> None:
    section = keys.value("kernel_config")
    names = section.get("name") if isinstance(section, Mapping) else None
    if isinstance(names, str) and "liger" in names:
        keys.carry("kernel_config.name", ("training.use_liger_kernel", True))
        details = message("how_fused", "how the fused kernels work")
        keys.irrelevant(
            (f"kernel_config.{name}" for name in keys.under("kernel_config").section), details
        )
