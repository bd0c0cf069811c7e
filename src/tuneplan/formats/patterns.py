"""Regular expressions over module names, as PEFT takes them, to the leaf names that a job names.

PEFT matches a ``target_modules`` that is one text against the whole dotted name of every module
(``peft tuners/tuners_utils.py check_target_module_exists``, ``re.fullmatch``). A job names leaves,
so a pattern stands for the leaves that it matches somewhere in a transformer's layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tuneplan.frozen import dataclass

_LEAVES: Final[dict[str, tuple[str, ...]]] = {
    "self_attn": (
        *("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "out_proj", "dense", "c_attn"),
        *("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "query_key_value"),
    ),
    "attention": ("query_key_value", "dense", "wq", "wk", "wv", "wo", "wqkv"),
    "attn": ("c_attn", "c_proj", "q_proj", "k_proj", "v_proj", "o_proj", "Wqkv", "out_proj"),
    "cross_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "linear_attn": ("in_proj_qkv", "in_proj_qkvz", "in_proj_z", "in_proj_ba", "out_proj"),
    "mamba": ("in_proj", "out_proj", "x_proj", "dt_proj"),
    "mlp": (
        *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "c_fc", "c_proj"),
        *("w1", "w2", "w3", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    "feed_forward": ("w1", "w2", "w3", "gate_proj", "up_proj", "down_proj"),
}
_STEMS: Final = (
    *("model.layers", "model.language_model.layers", "language_model.model.layers"),
    *("model.text_model.layers", "transformer.h", "gpt_neox.layers", "model.model.layers"),
    *("model.layers.layers", "thinker.model.layers", "llm.model.layers"),
)
_OUTER: Final = (("lm_head", "lm_head"), ("model.embed_tokens", "embed_tokens"))
_NUM_LAYERS: Final = 128  # more than the deepest published model has
_LONGEST: Final = 2000
_NESTED: Final = re.compile(r"\([^()]*[+*}][^()]*\)\s*[+*{]")  # may take for ever to match
_SPECIAL: Final = re.compile(r"[\\\[\](){}|^$*+?]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What a pattern stands for.

    Attributes:
        leaves: Leaf names in the order of a layer; empty where nothing known matches.
        some_layers: Whether it leaves out layers, which a job cannot say.
    """

    leaves: tuple[str, ...]
    some_layers: bool


def is_pattern(text: str) -> bool:
    """Whether a text is a regular expression and not a plain module name."""
    return _SPECIAL.search(text) is not None


def match_pattern(pattern: str) -> Matched | None:
    """The leaves that a pattern matches; None where it is no pattern that can be tried."""
    if len(pattern) > _LONGEST or _NESTED.search(pattern):
        return None
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    found: dict[str, set[int]] = {}
    for layer, name, leaf in _modules():
        if compiled.fullmatch(name):
            found.setdefault(leaf, set()).add(layer)
    leaves = tuple(found)
    outer = tuple(leaf for name, leaf in _OUTER if compiled.fullmatch(name))
    return Matched(
        leaves=(*leaves, *outer),
        some_layers=any(len(layers) < _NUM_LAYERS for layers in found.values()),
    )


def covers_language_model(patterns: tuple[str, ...]) -> bool:
    """Whether patterns, matched from the start as ``unfrozen_parameters`` are, take every layer."""
    if any(len(one) > _LONGEST or _NESTED.search(one) for one in patterns):
        return False
    try:
        compiled = [re.compile(one) for one in patterns]
    except (re.error, OverflowError, RecursionError):
        return False
    return any(
        all(
            any(one.match(f"{stem}.{layer}.{part}.{leaf}.weight") for one in compiled)
            for layer in (0, 1, 30)
            for part, leaf in (("self_attn", "q_proj"), ("mlp", "down_proj"))
        )
        for stem in _STEMS
    )


def _modules() -> Iterator[tuple[int, str, str]]:
    """Layer, dotted name and leaf of the linears that transformers are made of."""
    for part, leaves in _LEAVES.items():
        for leaf in leaves:
            for stem in _STEMS:
                for layer in range(_NUM_LAYERS):
                    yield layer, f"{stem}.{layer}.{part}.{leaf}", leaf
