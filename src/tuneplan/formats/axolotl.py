"""Axolotl's YAML: one flat file with some sections of its own.

Source: axolotl 0.18.0 ``utils/schemas/config.py`` and ``utils/config/__init__.py`` (how keys that
belong together are put together) at 067b021c8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuneplan.formats import axolotl_writing
from tuneplan.formats import typed_values as typed
from tuneplan.formats.axolotl_adapter import carry_method
from tuneplan.formats.axolotl_keys import IRRELEVANT, NOT_CARRIED, UNTIL_REFUSED
from tuneplan.formats.axolotl_sharding import carry_parallelism
from tuneplan.formats.axolotl_training import EVALUATION, carry_training
from tuneplan.formats.behind_line import with_file_behind
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.remote_code import say_remote_code
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.tables import close
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "axolotl"
_OWN: Final = (
    *("sequence_len", "micro_batch_size", "num_epochs", "val_set_size", "sample_packing"),
    *("dataset_prepared_path", "datasets", "adapter", "lora_target_linear", "special_tokens"),
    *("pad_to_sequence_len", "wandb_project", "saves_per_epoch", "evals_per_epoch", "optimizer"),
    *("pretraining_dataset", "flash_attention", "lora_model_dir", "load_in_4bit", "load_in_8bit"),
)
_OBJECTIVES: Final = {
    "dpo": "dpo",
    "ipo": "dpo",  # the same two models and batches, another loss
    "kto": "kto",
    "orpo": "orpo",
    "simpo": "simpo",
    "grpo": "grpo",
}
_RL_WITHOUT_FORMULA: Final = ("gdpo", "ebft")
_CARRIED: Final = (
    *("base_model", "sequence_len", "micro_batch_size", "num_epochs", "max_steps", "adapter"),
    *("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_linear"),
    *("load_in_4bit", "load_in_8bit", "gradient_checkpointing", "gradient_accumulation_steps"),
    *("optimizer", "bf16", "fp16", "tf32", "sample_packing", "deepspeed", "fsdp", "fsdp_config"),
    *("attn_implementation", "flash_attention", "val_set_size", "datasets", "plugins", "rl"),
    *("eval_steps", "save_steps", "save_total_limit", "torch_compile", "max_grad_norm"),
    *("evals_per_epoch", "saves_per_epoch", "eval_strategy", "save_strategy", "batch_size"),
    *("eval_batch_size", "pad_to_sequence_len", "group_by_length", "batch_flattening", "gptq"),
    *("bfloat16", "float16", "fp8", "lora_modules_to_save", "lora_target_parameters"),
    *("peft_use_dora", "peft_use_rslora", "bnb_config_kwargs", "unfrozen_parameters"),
    *("activation_offloading", "gradient_checkpointing_kwargs", "selective_checkpointing"),
    *("liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_swiglu", "liger_glu_activation"),
    *("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy"),
    *("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "fsdp_version", "dp_shard_size"),
    *("dp_replicate_size", "tensor_parallel_size", "context_parallel_size", "trust_remote_code"),
    *("expert_parallel_size", "sequence_parallel_degree", "use_ray", "ray_num_workers"),
    *("pretraining_dataset", "reward_model", "process_reward_model", "model_quantization_config"),
)
KEYS: Final = (*_CARRIED, *IRRELEVANT.names, *NOT_CARRIED.names)


def recognise(document: ForeignDocument) -> float:
    """``base_model`` beside keys that only Axolotl has, or a line that starts it."""
    if document.form == "shell":
        return 1.0 if _starts(document.tree) else 0.0
    if "base_model" not in document.tree:
        return 0.0
    return min(1.0, 0.4 + 0.1 * sum(key in document.tree for key in _OWN))


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read an Axolotl file and the DeepSpeed file that it names.

    Raises:
        InvalidRequest: Values that Axolotl would refuse, with lines and near matches.
    """
    document = with_file_behind(document, companion)
    carrier = Carrier(document)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    _model(carrier)
    _objective(carrier)
    carry_method(carrier)
    carry_training(carrier)
    carry_parallelism(carrier, companion)
    _data(carrier, document)
    say_remote_code(carrier, "trust_remote_code")
    if carrier.said("objective") == "grpo":
        carrier.not_carried(("trl", "vllm"), UNTIL_REFUSED)
    close(carrier, document.tree, irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    carry_launch(carrier, companion)
    return carrier.finish(name=NAME, version=version, known=KEYS)


def _starts(tree: Mapping[str, Any]) -> bool:
    """``axolotl train x.yml``, ``accelerate launch -m axolotl.cli.train x.yml``."""
    shell = tree.get("shell")
    program = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    return program.rpartition("/")[2] == "axolotl" or program.startswith("axolotl.")


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for Axolotl.

    Raises:
        CannotExport: Axolotl has no way to say a setting of the job.
    """
    return axolotl_writing.dump(job)


def _model(carrier: Carrier) -> None:
    model = typed.text(carrier, "base_model")
    if model is not None:
        carrier.carry("base_model", ("model", model))
    config = typed.text(carrier, "base_model_config")
    same = message("config_of_model", "it is the model's own configuration")
    other = message("config_of_another", "the model is described by its own configuration")
    end = carrier.irrelevant if config in (None, model) else carrier.not_carried
    end(("base_model_config",), same if config in (None, model) else other)
    kept = typed.text(carrier, "model_quantization_config")
    if kept is not None and not _dequantizes(carrier):
        carrier.refuse(
            "model_quantization_config",
            message(
                "quantised_base_kept",
                "a base that stays in {kind} has no formula yet",
                kind=kept.removesuffix("Config"),
            ),
        )
    unpacked = message("base_unpacked", "the base is unpacked to half precision as it is loaded")
    carrier.irrelevant(("model_quantization_config", "model_quantization_config_kwargs"), unpacked)


def _dequantizes(carrier: Carrier) -> bool:
    return bool(carrier.value("model_quantization_config_kwargs.dequantize"))


def _objective(carrier: Carrier) -> None:
    rl = typed.word(carrier, "rl", (*_OBJECTIVES, *_RL_WITHOUT_FORMULA))
    if rl in _OBJECTIVES:
        carrier.carry("rl", ("objective", _OBJECTIVES[rl]))
    elif rl is not None:
        text = message("rl_without_formula", "training by {name} has no formula yet", name=rl)
        carrier.refuse("rl", text)
    if typed.flag(carrier, "reward_model"):
        carrier.carry("reward_model", ("objective", "rm"))
    if typed.flag(carrier, "process_reward_model"):
        text = message("prm_without_formula", "a reward for each token has no formula yet")
        carrier.refuse("process_reward_model", text)
    if carrier.value("pretraining_dataset"):
        carrier.say("objective", "pretrain")
    off = message("not_this_objective", "not what is trained for")
    carrier.irrelevant(("reward_model", "process_reward_model"), off)


def _data(carrier: Carrier, document: ForeignDocument) -> None:
    for path in ("datasets", "pretraining_dataset"):
        if not carrier.holds(path) or carrier.value(path) is None:
            continue
        files = local_files(_data_names(carrier.value(path)), document)
        if files:
            carrier.carry(path, ("data.path", list(files)))
        else:
            carrier.not_carried((path,), NO_DATA_HERE)
    share = typed.number(carrier, "val_set_size")
    if share is not None and 0 <= share < 1:
        says: list[tuple[str, Any]] = [("data.eval_fraction", share)]
        if share and all(carrier.value(key) is None for key in EVALUATION):
            says.append(("training.eval_strategy", "epoch"))
        carrier.carry("val_set_size", *says)
    elif share is not None:
        text = message("eval_rows", "a job says the share of held-out rows, not their number")
        carrier.not_carried(("val_set_size",), text)


def _data_names(stated: Any) -> list[str]:
    """Paths of the files that ``datasets`` names, whatever its shape."""
    rows = stated if isinstance(stated, list) else [stated]
    found: list[str] = []
    for row in rows:
        if isinstance(row, str):
            found.append(row)
        elif isinstance(row, Mapping):
            held = [row.get("path"), row.get("data_files")]
            found.extend(
                name
                for value in held
                for name in (value if isinstance(value, list) else [value])
                if isinstance(name, str)
            )
    return found
