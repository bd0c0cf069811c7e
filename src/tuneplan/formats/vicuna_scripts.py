"""What the training scripts have in common that began with FastChat's: Qwen's ``finetune.py`` too.

They take ``TrainingArguments``, ``--data_path``, ``--model_max_length``, ``--lazy_preprocess`` and
``--lora_*``, and pad every row to ``model_max_length``. They hand ``tokenizer=`` to the Trainer,
which transformers 5 no longer takes, so the last of 4 is assumed.
Sources: lm-sys/FastChat ``fastchat/train/*.py`` at 0e6d3e4b; QwenLM/Qwen ``finetune.py`` at
2df8e8ac; transformers 5.0 ``trainer.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tuneplan.formats.foreign import Companion, ForeignDocument
from tuneplan.formats.hugging_face import carry_data, carry_model, carry_peft
from tuneplan.formats.hugging_face_keys import IRRELEVANT, KNOWN, NOT_CARRIED
from tuneplan.formats.keys import Keys
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.trainer_arguments import carry_trainer_arguments
from tuneplan.formats.trainer_keys import KNOWN as TRAINER_KNOWN
from tuneplan.language import message

LAST_OF_4: Final = "4.57.0"
KEYS: Final = (
    *("use_lora", "q_lora", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"),
    *("model_max_length", "data_path", "eval_data_path", "lazy_preprocess", "flash_attn"),
    *("lora_weight_path", "lora_bias"),
    *KNOWN,
    *TRAINER_KNOWN,
)


def program(tree: Mapping[str, Any]) -> PurePosixPath:
    """The script of a launch line; ``fastchat.train.train`` counts as its path."""
    shell = tree.get("shell")
    text = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    if "/" not in text and not text.endswith(".py"):
        text = text.replace(".", "/") + ".py"
    return PurePosixPath(text)


def carry_script(keys: Keys, document: ForeignDocument, companion: Companion) -> None:
    """Everything that the scripts share; what they differ in is said afterwards."""
    carry_model(keys)
    carry_peft(keys, needs_switch=False)
    length = keys.whole("model_max_length")
    if length is not None and length > 0:
        keys.carry("model_max_length", ("training.max_length", length))
    carry_data(keys, document)
    carry_trainer_arguments(keys, companion)
    says_first(keys, "training.padding", "max_length")
    prepares = message("key_prepares", "it prepares or renders the samples before training")
    keys.irrelevant(("lazy_preprocess", "padding_side", "preprocessed_path"), prepares)
    keys.not_carried(("num_data",), message("samples_cut", "it cuts the data set to so many rows"))
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    carry_launch(keys.carrier, companion)


def says_first(keys: Keys, job_key: str, value: Any) -> None:
    """Say the script's own default, unless the line says something else."""
    if keys.carrier.said(job_key) is None:
        keys.carrier.say(job_key, value)


def say_defaults(keys: Keys, says: Mapping[str, Any]) -> None:
    """The script's own defaults, and a notice of those that the line leaves blank."""
    blank = {key: value for key, value in says.items() if keys.carrier.said(key) is None}
    for key, value in blank.items():
        keys.carrier.say(key, value)
    if blank:
        text = message(
            "defaults_of_script",
            "the script's own defaults count: {settings}",
            settings=", ".join(f"{key} {_shown(value)}" for key, value in blank.items()),
        )
        keys.notice("shell", text)


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
