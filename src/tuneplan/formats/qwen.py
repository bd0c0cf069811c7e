"""Qwen's ``finetune.py`` and its shell files, for Qwen 1 and the scripts made from it.

Source: QwenLM/Qwen ``finetune.py``, ``finetune/*.sh`` and ``requirements.txt`` (transformers before
4.38) at 2df8e8ac; Qwen1.5's ``examples/sft/finetune.py`` of 2024, whose linears have Llama's names.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.vicuna_scripts import (
    KEYS,
    LAST_OF_4,
    carry_script,
    program,
    say_defaults,
    says_first,
)
from tuneplan.language import message

NAME: Final = "qwen"
__all__ = ["KEYS", "NAME", "dump", "load", "recognise"]
_QWEN_1: Final = re.compile(r"(?:^|[/\\])qwen-(?:vl|audio|\d+(?:[._]\d+)?b)", re.IGNORECASE)
_DAY: Final = "2024-02-01"  # the last releases that Qwen 1's requirements allow
_SIGNS: Final = ("use_lora", "q_lora", "lazy_preprocess", "model_max_length")
_DEFAULTS: Final[dict[str, Any]] = {
    "training.max_length": 8192,
    "training.per_device_train_batch_size": 8,
    "training.per_device_eval_batch_size": 8,
    "training.gradient_accumulation_steps": 1,
    "training.gradient_checkpointing": False,
    "training.optim": "adamw_torch",
    "training.num_train_epochs": 3,
}
_LORA: Final[dict[str, Any]] = {
    "adapter.r": 64,
    "adapter.lora_alpha": 16,
    "adapter.lora_dropout": 0.05,
}
_TARGETS: Final = {
    True: ["c_attn", "c_proj", "w1", "w2"],
    False: ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj"],
}


def recognise(document: ForeignDocument) -> float:
    """A line that starts a ``finetune.py`` with arguments that Qwen's has."""
    tree = document.tree
    if document.form != "shell" or program(tree).name not in ("finetune.py", "finetune_mp.py"):
        return 0.0
    signs = sum(key in tree for key in _SIGNS)
    named = "qwen" in str(tree.get("model_name_or_path", "")).lower()
    return min(1.0, 0.3 * signs + (0.5 if named else 0.0)) if signs else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a launch line of Qwen's.

    Raises:
        InvalidRequest: Values that the script would refuse, with lines and near matches.
    """
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    model = keys.text("model_name_or_path") or "Qwen/Qwen-7B"
    first = _QWEN_1.search(model) is not None
    carrier.say("framework", "qwen" if first else f"transformers=={version or LAST_OF_4}")
    if first:
        carrier.say("date", _DAY)
    carry_script(keys, document, companion)
    says_first(keys, "model", model)
    defaults = _adapter(keys, model, first=first) | _DEFAULTS
    says_first(keys, "method", "full")
    say_defaults(keys, defaults)
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _adapter(keys: Keys, model: str, *, first: bool) -> dict[str, Any]:
    """``--use_lora`` trains an adapter; ``--q_lora`` puts it on the GPTQ weights of 4 bits."""
    carrier = keys.carrier
    if not keys.flag("use_lora"):
        carrier.drop("method", "adapter", "quantization")
        text = message("q_lora_alone", "q_lora without use_lora has no effect")
        if keys.flag("q_lora"):
            keys.carrier.notice("q_lora", text)
        keys.irrelevant(("use_lora", "q_lora"), text)
        return {}
    carrier.drop("quantization")
    quantized = bool(keys.flag("q_lora"))
    keys.carry("use_lora", ("method", "gptq-lora" if quantized else "lora"))
    if quantized:
        says = ("quantization.type", "gptq"), ("quantization.bits", 4)
        keys.carry("q_lora", ("method", "gptq-lora"), *says)
    defaults = {**_LORA, "adapter.target_modules": _TARGETS[first]}
    if first and not quantized and "chat" not in model.lower():
        defaults |= {"adapter.modules_to_save": ["wte", "lm_head"]}
    return defaults
