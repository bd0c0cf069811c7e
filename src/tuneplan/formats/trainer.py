"""Programs on Hugging Face's Trainer: their launch lines, and files of ``TrainingArguments``.

Sources: transformers 5.24 ``training_args.py``; the arguments of transformers' own examples
(``run_clm.py``), of peft's ``examples/sft``, qlora ``qlora.py`` and of ChatGLM3
``finetune_demo/configs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
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
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.trainer_arguments import carry_trainer_arguments, say_old_names
from tuneplan.formats.trainer_keys import KNOWN as TRAINER_KNOWN
from tuneplan.language import message

NAME: Final = "transformers"
_SIGNS: Final = (
    *("per_device_train_batch_size", "num_train_epochs", "gradient_accumulation_steps", "bf16"),
    *("fp16", "output_dir", "learning_rate", "save_steps", "logging_steps", "warmup_ratio"),
    *("per_device_eval_batch_size", "save_total_limit", "gradient_checkpointing", "deepspeed"),
    *("lr_scheduler_type", "evaluation_strategy", "eval_strategy", "max_steps", "optim"),
)
_OTHERS: Final = (
    *("base_model", "finetuning_type", "train_type", "tuner_type", "sft_type"),
    *("tensor_model_parallel_size", "micro_batch_size", "mixed_precision_recipe"),
)
_SECTIONS: Final = ("training_args", "training_arguments", "train_args", "trainer")


def recognise(document: ForeignDocument) -> float:
    """Several of ``TrainingArguments``, at the top or in a section of their own."""
    tree = document.tree
    if any(name in tree for name in _OTHERS):
        return 0.0
    section = _section(tree)
    held = tree[section] if section else tree
    signs = sum(name in held for name in _SIGNS)
    model = any(name in tree for name in MODEL_KEYS)
    if signs < (2 if model or section else 4):
        return 0.0
    return min(0.85 if section else 0.7, 0.06 * signs + (0.3 if model or section else 0.1))


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read it with everything that it points to.

    Raises:
        InvalidRequest: Values that the Trainer would refuse, or that contradict each other.
    """
    document = with_negations(document, (*KNOWN, *TRAINER_KNOWN))
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    carry_model(keys)
    carry_peft(keys, needs_switch=False)
    carry_length(keys)
    carry_data(keys, document)
    _rows(keys)
    _own_loop(keys)
    section = _section(document.tree)
    if section:
        carry_trainer_arguments(keys.under(section), companion)
        keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
        keys.irrelevant(("data_config",), message("data_parts", "where the samples lie"))
    else:
        carry_trainer_arguments(keys, companion)
        keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    say_old_names(keys.under(section) if section else keys)
    carry_launch(carrier, companion)
    return carrier.finish(name=NAME, version=version, known=(*KNOWN, *TRAINER_KNOWN))


dump = read_only(NAME)


def _section(tree: Mapping[str, object]) -> str | None:
    """The section that holds ``TrainingArguments``, where there is one."""
    return next((name for name in _SECTIONS if isinstance(tree.get(name), Mapping)), None)


def _rows(keys: Keys) -> None:
    """Packing and padding, under the names that scripts have for them."""
    for name in ("packing", "pack", "group_texts"):
        packing = keys.flag(name)
        if packing is not None:
            keys.carry(name, ("training.packing", packing))
    if keys.flag("pad_to_max_length"):
        keys.carry("pad_to_max_length", ("training.padding", "max_length"))
    if keys.carrier.said("training.packing") is None and keys.value("block_size") is not None:
        text = message(
            "blocks_packed", "block_size: texts are joined and cut into blocks, without padding"
        )
        keys.notice("block_size", text)
        packs = True
        keys.carrier.say("training.packing", packs)


def _own_loop(keys: Keys) -> None:
    """What scripts around DeepSpeed and qlora's script say in words of their own."""
    stage = keys.whole("zero_stage")
    if stage in range(4):
        keys.carry("zero_stage", ("parallelism.strategy", f"zero{stage}" if stage else "ddp"))
    if keys.flag("offload"):
        says = ("parallelism.offload", "params" if stage == 3 else "optimizer")
        keys.carry("offload", says)
