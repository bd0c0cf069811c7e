"""LoRA targets as programs spell them, to the leaf names of Hugging Face's modules."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

ALL_LINEAR: Final = "all-linear"
_ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
_GATED: Final = ("gate_proj", "up_proj", "down_proj")
_LETTERS: Final = MappingProxyType(
    {
        "q": "q_proj",
        "k": "k_proj",
        "v": "v_proj",
        "o": "o_proj",
        "gate": "gate_proj",
        "up": "up_proj",
        "down": "down_proj",
        "output_proj": "o_proj",
        "linear_qkv": "q_proj k_proj v_proj",
        "linear_proj": "o_proj",
        "linear_fc1": "gate_proj up_proj",
        "linear_fc2": "down_proj",
    }
)
# ms-swift 1.x, swift/llm/utils/model.py LoRATM: the default is the query, key and value projections
# under the name that the model's own code gives them.
_SWIFT_DEFAULTS: Final = (
    (re.compile(r"qwen[-_]?(vl|audio)?[-_]?(1[_.]8b|7b|14b|72b)", re.IGNORECASE), ("c_attn",)),
    (re.compile(r"chatglm|codefuse-codegeex|bloom", re.IGNORECASE), ("query_key_value",)),
    (re.compile(r"baichuan", re.IGNORECASE), ("W_pack",)),
    (re.compile(r"phi-?[12]", re.IGNORECASE), ("Wqkv",)),
)


def target_modules(text: str, *, framework: str | None, model: str) -> str | tuple[str, ...] | None:
    """Names of the adapted linears, ``"all-linear"``, a pattern, or None for a blank cell.

    LitGPT's words stay as they are: what they reach depends on the model.

    Args:
        text: The cell: ``query,value`` (litgpt), ``DEFAULT (qkv)`` (ms-swift), ``q,k,v,o``,
            ``q_proj,v_proj,output_proj + mlp`` (torchtune), ``c_attn,c_proj,w1,w2``.
        framework: Canonical name of the program.
        model: As the run names it; the same word means other modules in other models.
    """
    words = " ".join(text.split())
    lowered = words.casefold()
    if not words:
        return None
    if lowered.startswith("default"):
        return _swift_default(model)
    if re.fullmatch(r"all|all[- ]linear( \(attention \+ mlp\))?", lowered):
        return ALL_LINEAR
    if re.fullmatch(r"all linear \(attn \+ mlp \+ output\)", lowered):
        return (*_ATTENTION, *_GATED, "lm_head")
    if framework == "litgpt" and re.fullmatch(
        r"((query|key|value|projection|mlp|head)[, ]*)+", lowered
    ):
        return _unique(re.split(r"[,\s]+", lowered))  # words that frameworks/adapters.py knows
    if re.search(r"[\[\]\\|*^$]", words):
        return words  # a pattern over module paths, as PEFT takes it
    return _leaves(re.sub(r"\([^)]*\)", "", words))


def _leaves(words: str) -> tuple[str, ...]:
    found: list[str] = []
    plus_mlp = bool(re.search(r"\+\s*mlp\b", words))
    for word in re.split(r"[,;\s+]+", re.sub(r"\+\s*mlp\b", "", words)):
        leaf = word.rsplit(".", 1)[-1]
        found += _LETTERS.get(leaf, leaf).split()
    return _unique([*found, *(_GATED if plus_mlp else ())])


def _swift_default(model: str) -> tuple[str, ...]:
    for pattern, names in _SWIFT_DEFAULTS:
        if pattern.search(model):
            return names
    return ("q_proj", "k_proj", "v_proj")


def _unique(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))
