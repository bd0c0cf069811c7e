"""FastChat's training scripts: ``train_mem.py`` (all parameters), ``train_lora.py``, and their kin.

Source: lm-sys/FastChat ``fastchat/train/train.py``, ``train_mem.py``, ``train_lora.py``,
``train_xformers.py`` at 0e6d3e4b.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.vicuna_scripts import KEYS, LAST_OF_4, carry_script, program, say_defaults
from tuneplan.language import message

NAME: Final = "fastchat"
__all__ = ["KEYS", "NAME", "dump", "load", "recognise"]
_SCRIPTS: Final = (
    *("train_mem.py", "train_lora.py", "train_xformers.py", "train_with_template.py"),
    *("train_baichuan.py", "train_yuan2.py", "train_flant5.py", "train_lora_t5.py"),
)
_DEFAULT_LENGTH: Final = 512
_LORA: Final[dict[str, Any]] = {
    "adapter.r": 8,
    "adapter.lora_alpha": 16,
    "adapter.lora_dropout": 0.05,
    "adapter.target_modules": ["q_proj", "v_proj"],
}


def recognise(document: ForeignDocument) -> float:
    """A launch line of one of its scripts; LLaVA's of the same names see images."""
    tree = document.tree
    if document.form != "shell" or any(
        key in tree for key in ("vision_tower", "mm_projector_type")
    ):
        return 0.0
    script = program(tree)
    if "fastchat" in script.parts and script.name.startswith("train"):
        return 1.0
    own = script.name in _SCRIPTS and "model_max_length" in tree
    return 0.8 if own and script.parent.name in ("", "train") else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a launch line of FastChat's.

    Raises:
        InvalidRequest: Values that the script would refuse, with lines and near matches.
    """
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    script = program(document.tree).name
    carrier.say("framework", f"transformers=={version or LAST_OF_4}")
    carry_script(keys, document, companion)
    if "t5" in script:
        text = message("encoder_decoder", "models with an encoder and a decoder have no formula")
        keys.refuse("shell", text)
    defaults: dict[str, Any] = _lora(keys) if "lora" in script else {}
    flash = keys.flag("flash_attn")
    if script == "train_mem.py" or flash:
        carrier.say("training.attn_implementation", "flash_attention_2")
        keys.carry("flash_attn", ("training.attn_implementation", "flash_attention_2"))
    keys.irrelevant(("flash_attn",), message("attention_flag_off", "another kernel runs"))
    defaults |= {"training.max_length": _DEFAULT_LENGTH, "training.optim": "adamw_torch"}
    if carrier.said("method") != "qlora":
        # from_pretrained without a dtype: float32 in all releases of transformers 4
        defaults |= {"training.dtype": "float32"}
    say_defaults(keys, defaults)
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _lora(keys: Keys) -> dict[str, Any]:
    """``train_lora.py`` always trains an adapter; ``--q_lora`` quantises the base to nf4."""
    if keys.flag("q_lora"):
        keys.carry(
            "q_lora",
            ("method", "qlora"),
            ("quantization.bits", 4),
            ("quantization.type", "nf4"),
            ("quantization.double_quant", True),
        )
    elif keys.carrier.said("method") in (None, "full"):
        keys.carrier.say("method", "lora")
        unasked = "adapter_not_switched_on"  # this script has no switch: it adapts always
        notices = keys.carrier.notices
        notices[:] = [one for one in notices if one.message.code != unasked]
    return dict(_LORA)
