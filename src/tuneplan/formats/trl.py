"""TRL: the YAML of its command line and of the alignment-handbook, and its launch lines.

Sources: trl 1.10.0.dev0 ``trainer/{sft,dpo,kto,reward,grpo}_config.py``, ``scripts/utils.py`` and
``cli/`` at f2cd5771; releases 0.9 to 0.19 for what was renamed since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from tuneplan.formats import trl_writing
from tuneplan.formats.accelerate import carry_processes, follow_accelerate
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.hugging_face import (
    MODEL_KEYS,
    carry_data,
    carry_length,
    carry_model,
    carry_peft,
    with_negations,
)
from tuneplan.formats.hugging_face_keys import IRRELEVANT, KNOWN, NOT_CARRIED
from tuneplan.formats.keys import Keys
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.trainer_arguments import carry_trainer_arguments, say_old_names
from tuneplan.formats.trainer_keys import KNOWN as TRAINER_KNOWN
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "trl"
_SIGNS: Final = (
    *("dataset_num_proc", "max_prompt_length", "use_peft", "dataset_mixer", "dataset_mixture"),
    *("dataset_train_split", "dataset_test_split", "packing_strategy", "padding_free"),
    *("lora_modules_to_save", "max_completion_length", "precompute_ref_log_probs", "beta"),
    *("completion_only_loss", "assistant_only_loss", "use_bnb_nested_quant", "chat_template_path"),
    *("num_generations", "desirable_weight", "dataset_kwargs", "eval_packing", "max_seq_length"),
    *("dataset_splits", "dataset_text_field", "lora_task_type", "auto_insert_empty_system_msg"),
)
_HALF_SIGNS: Final = (
    *("torch_dtype", "dtype", "attn_implementation", "load_in_4bit", "lora_r", "max_length"),
    *("lora_target_modules", "packing", "chat_template", "dataset_name", "model_revision"),
)
_OTHERS: Final = (
    *("base_model", "finetuning_type", "train_type", "tuner_type", "sft_type", "cutoff_len"),
    *("checkpoint_dir", "tokenizer", "model_class", "training_args", "micro_batch_size"),
)
_OBJECTIVES: Final = {
    "sft": "sft",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "cpo": "simpo",
    "simpo": "simpo",
    "reward": "rm",
    "rm": "rm",
    "grpo": "grpo",
    "rloo": "grpo",
    "ppo": "ppo",
}
# trl/accelerate_configs, by the names that the command line takes.
_SHIPPED: Final = {
    "single_gpu": "single",
    "multi_gpu": "ddp",
    "fsdp1": "fsdp",
    "fsdp2": "fsdp2",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero3": "zero3",
}
_WORD: Final = re.compile(r"[a-z]+")
_SFT_LOSSES: Final = ("nll", "chunked_nll", "dft")


def recognise(document: ForeignDocument) -> float:
    """Names that only TRL's configurations have, beside a model; or its own program."""
    tree = document.tree
    shell = tree.get("shell")
    program = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    if program == "trl" or program.startswith("trl."):
        return 1.0
    if any(name in tree for name in _OTHERS):
        return 0.0
    signs = sum(name in tree for name in _SIGNS)
    signs += PurePosixPath(program).stem.removeprefix("run_") in _OBJECTIVES
    signs += document.form != "shell" and "dataset_name" in tree
    half = sum(name in tree for name in _HALF_SIGNS)
    if not any(name in tree for name in MODEL_KEYS) or not (signs or half > 1):
        return 0.0
    return min(0.95, 0.3 + 0.2 * signs + 0.08 * half)


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read it with everything that it points to.

    Raises:
        InvalidRequest: Values that TRL would refuse, or that contradict each other.
    """
    document = with_negations(document, (*KNOWN, *TRAINER_KNOWN))
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    carry_model(keys)
    _objective(keys, document)
    carry_peft(keys, needs_switch=True)
    _loss(keys, version)
    _packing(keys)
    _length(keys)
    carry_data(keys, document)
    _offloading(keys)
    carry_trainer_arguments(keys, companion)
    say_old_names(keys)
    _command_line(keys, companion)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    carry_launch(carrier, companion)
    return carrier.finish(name=NAME, version=version, known=(*KNOWN, *TRAINER_KNOWN))


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for TRL.

    Raises:
        CannotExport: TRL has no way to say a setting of the job.
    """
    return trl_writing.dump(job)


def _objective(keys: Keys, document: ForeignDocument) -> None:
    """What is trained: the subcommand, else keys of one trainer alone, else the file's name."""
    command = _of_command(keys)
    if command is not None:
        keys.carrier.say("objective", command)
        return
    found = _of_keys(keys)
    named = _of_name(document.file)
    objective = found
    if found in ("dpo", "sft") and named is not None and named != "sft":
        objective = named
    keys.carrier.say("objective", objective)
    if objective != found:
        text = message(
            "objective_by_name",
            "by the name of the file it is taken as {objective}; the configuration itself does "
            "not say which trainer reads it",
            objective=objective,
        )
        keys.notice(keys.first(*MODEL_KEYS) or "", text)


def _command_line(keys: Keys, companion: Companion) -> None:
    """``trl sft`` starts accelerate itself, and hands its options on; ``env`` is a section."""
    carry_processes(keys)
    written = keys.text("accelerate_config")
    strategy = _SHIPPED.get(written) if written is not None else None
    if strategy == "single":
        keys.carry("accelerate_config", ("hardware.accelerators_per_node", 1))
    elif strategy is not None:
        keys.agree("accelerate_config", "parallelism.strategy", strategy)
    elif written is not None:
        follow_accelerate(keys, "accelerate_config", companion)
    cards = keys.value("env.CUDA_VISIBLE_DEVICES")
    if cards is not None and keys.carrier.said("hardware.accelerators_per_node") is None:
        count = len([card for card in str(cards).split(",") if card.strip()])
        keys.carry("env.CUDA_VISIBLE_DEVICES", ("hardware.accelerators_per_node", max(1, count)))
    keys.irrelevant(("env",), message("env_other", "variables that change nothing here"))
    keys.under("env").irrelevant(
        keys.under("env").section, message("env_other", "variables that change nothing here")
    )


def _of_command(keys: Keys) -> str | None:
    words = keys.value("shell.words")
    program = str(keys.value("shell.program") or "")
    candidates = [str(word) for word in words or ()] if program == "trl" else []
    candidates += _WORD.findall(PurePosixPath(program).stem.lower())
    return next((_OBJECTIVES[word] for word in candidates if word in _OBJECTIVES), None)


def _of_keys(keys: Keys) -> str:
    if keys.value("num_generations") is not None:
        return "grpo"
    if keys.value("desirable_weight") is not None:
        return "kto"
    if keys.value("center_rewards_coefficient") is not None:
        return "rm"
    paired = ("beta", "max_prompt_length", "precompute_ref_log_probs", "rpo_alpha", "loss_weights")
    return "dpo" if keys.first(*paired) is not None else "sft"


def _of_name(file: str) -> str | None:
    """An objective that the name of the file or the two folders above it say, the last one."""
    words = _WORD.findall("/".join(PurePosixPath(file.lower()).parts[-3:]))
    return next((_OBJECTIVES[word] for word in reversed(words) if word in _OBJECTIVES), None)


def _loss(keys: Keys, version: str | None) -> None:
    """``loss_type`` of SFT; that of the other trainers changes what is learnt alone."""
    if keys.carrier.said("objective") != "sft":
        return
    loss = keys.word("loss_type", _SFT_LOSSES)
    if loss == "chunked_nll":
        keys.carry("loss_type", ("training.loss", "chunked"))
    elif loss == "nll" and version is not None and version.startswith("0."):
        keys.carry("loss_type", ("training.loss", "full"))
    elif loss == "dft":
        text = message("dft_loss", "a loss over whole logits; the usual one is counted")
        keys.not_carried(("loss_type",), text)


def _packing(keys: Keys) -> None:
    packing = keys.flag("packing")
    if packing is not None:
        keys.carry("packing", ("training.packing", packing))
    keys.word("packing_strategy", ("bfd", "bfd_split", "bfd-requeue", "wrapped", "ffd"))
    keys.irrelevant(
        ("packing_strategy",), message("packing_way", "rows are filled to nearly the same length")
    )
    if keys.flag("padding_free") and not packing:
        keys.carry("padding_free", ("training.padding", "none"))
    keys.irrelevant(("padding_free",), message("padding_as_usual", "packed rows hold no padding"))


def _length(keys: Keys) -> None:
    """``max_length: null`` is no blank: it cuts nothing."""
    carry_length(keys)
    for name in ("max_length", "max_seq_length"):
        if keys.holds(name) and keys.value(name) is None and keys.first(
            "max_length", "max_seq_length"
        ) is None and name not in (keys.document or keys.carrier.document).unknown:  # fmt: skip
            text = message(
                "nothing_cut",
                "{key}: null cuts nothing; state training.max_length, the longest that the model "
                "takes",
                key=name,
            )
            keys.notice(name, text)
            keys.not_carried((name,), text)


def _offloading(keys: Keys) -> None:
    """``activation_offloading``: with checkpointing, what is kept of a layer goes to the host."""
    if not keys.flag("activation_offloading"):
        return
    if keys.flag("gradient_checkpointing") is False:
        text = message(
            "all_offloaded", "activations off-loaded without checkpointing have no formula yet"
        )
        keys.refuse("activation_offloading", text)
        return
    says = ("training.gradient_checkpointing", "offload")
    keys.carry("activation_offloading", says)
    if keys.value("gradient_checkpointing") is not None:
        keys.carry("gradient_checkpointing", says)
