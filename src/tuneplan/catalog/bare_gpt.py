"""A GPT by its dimensions, under Megatron-LM's argument names.

``gpt:num_layers=78,hidden_size=13824,num_attention_heads=96,vocab_size=250000`` is a decoder with
learned positions, biases, LayerNorm and a GELU feed-forward of four hidden sizes, its head tied:
the model that Megatron-LM's ``pretrain_gpt.py`` builds. Dimensions that are left out are assumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message

_PREFIX: Final = "gpt:"
_PART: Final = re.compile(r"^\s*([a-z_]+)\s*=\s*(\d+)\s*$")
_NEEDED: Final = ("num_layers", "hidden_size")
_KNOWN: Final = (
    *_NEEDED,
    "num_attention_heads",
    "ffn_hidden_size",
    "vocab_size",
    "max_position_embeddings",
)
_HEAD_DIM: Final = 128
_VOCAB_SIZE: Final = 50257  # GPT-2's tokenizer, Megatron-LM's examples/gpt3
_POSITIONS: Final = 2048


def is_bare_gpt(text: str) -> bool:
    """Whether a model's name gives a GPT's dimensions."""
    return text.strip().casefold().startswith(_PREFIX)


def gpt_config(text: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The configuration of such a GPT, and the names of the fields that nobody stated.

    Raises:
        InvalidRequest: A part that is no ``name=number``, an unknown name, no layers or width.
    """
    stated: dict[str, int] = {}
    for part in text.strip()[len(_PREFIX) :].split(","):
        match = _PART.match(part.casefold())
        if match is None or match[1] not in _KNOWN or int(match[2]) < 1:
            raise _wrong(part)
        stated[match[1]] = int(match[2])
    for name in _NEEDED:
        if name not in stated:
            raise _wrong(f"{name}=")
    hidden = stated["hidden_size"]
    config = {
        "model_type": "gpt2",
        "n_layer": stated["num_layers"],
        "n_embd": hidden,
        "n_head": stated.get("num_attention_heads", max(1, hidden // _HEAD_DIM)),
        "n_inner": stated.get("ffn_hidden_size", 4 * hidden),
        "vocab_size": stated.get("vocab_size", _VOCAB_SIZE),
        "n_positions": stated.get("max_position_embeddings", _POSITIONS),
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    fields = {
        "num_attention_heads": "n_head",
        "ffn_hidden_size": "n_inner",
        "vocab_size": "vocab_size",
        "max_position_embeddings": "n_positions",
    }
    return config, tuple(field for name, field in fields.items() if name not in stated)


def _wrong(part: str) -> InvalidRequest:
    return InvalidRequest(
        [
            Mistake(
                message=message(
                    "bare_gpt_part",
                    "{part!r} is no dimension of a GPT: write name=number, with {known}",
                    part=part.strip(),
                    known=", ".join(_KNOWN),
                ),
                path="model",
                value=part.strip(),
                how_to_fix=message(
                    "bare_gpt_fix",
                    "for example gpt:num_layers=24,hidden_size=2048,num_attention_heads=16",
                ),
            )
        ]
    )
