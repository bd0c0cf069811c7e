"""A bare size such as ``7B``: typical dimensions by a fixed rule, every one of them assumed.

The rule (``docs/reference/models.md``) builds a decoder of Llama 3's kind: vocabulary 128,256,
tied up to 4e9 parameters, heads of 128 (of 64 under a hidden size of 2048), at most 8 key-value
heads, a feed-forward of about 3.5 hidden sizes. The hidden size is the one of a ladder of common
widths for which the number of layers comes closest to hidden size / 128 (Llama 7B, 13B and 405B
stand near it); layers are even, and the feed-forward width then takes up the remainder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message

_SIZE: Final = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[bBmM])$")
_UNITS: Final = {"b": 1e9, "m": 1e6}
_SMALLEST: Final = 50e6
_LARGEST: Final = 2e12
_WIDTHS: Final = (
    256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144,
    7168, 8192, 10240, 12288, 16384, 20480, 24576,
)  # fmt: skip
_VOCAB_SIZE: Final = 128256
_TIED_UP_TO: Final = 4e9
_WIDTH_PER_LAYER: Final = 128
_FEED_FORWARD_RATIO: Final = 3.5
_CONTEXT: Final = 32768


def parse_bare_size(text: str) -> float | None:
    """The number of parameters that ``"7B"`` or ``"350M"`` states; None for other text."""
    match = _SIZE.match(text.strip())
    return None if match is None else float(match["number"]) * _UNITS[match["unit"].lower()]


def typical_config(num_parameters: float) -> Mapping[str, Any]:
    """A Llama configuration of about that many parameters (within 1 %).

    Raises:
        InvalidRequest: the size is outside 50M to 2000B, where no typical shape is known.
    """
    if not _SMALLEST <= num_parameters <= _LARGEST:
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "size_out_of_range",
                        "a bare size must lie between 50M and 2000B parameters",
                    ),
                    path="model",
                    value=num_parameters,
                )
            ]
        )
    tied = num_parameters <= _TIED_UP_TO
    shapes = [_shape(width, num_parameters, tied=tied) for width in _WIDTHS]
    hidden_size, num_layers = min(shapes, key=lambda shape: _distance(*shape))
    num_layers = max(2, 2 * round(num_layers / 2))
    heads, key_value_heads, head_dim = _heads(hidden_size)
    rest = (num_parameters - _embedding_size(hidden_size, tied=tied)) / num_layers
    intermediate_size = (rest - _attention_size(hidden_size)) / (3 * hidden_size)
    return {
        "model_type": "llama",
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "head_dim": head_dim,
        "intermediate_size": max(64, 64 * round(intermediate_size / 64)),
        "vocab_size": _VOCAB_SIZE,
        "max_position_embeddings": _CONTEXT,
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
    }


def _heads(hidden_size: int) -> tuple[int, int, int]:
    head_dim = 128 if hidden_size >= 2048 else 64
    heads = hidden_size // head_dim
    return heads, max(n for n in range(1, min(heads, 8) + 1) if heads % n == 0), head_dim


def _attention_size(hidden_size: int) -> int:
    _, key_value_heads, head_dim = _heads(hidden_size)
    return 2 * hidden_size * hidden_size + 2 * hidden_size * key_value_heads * head_dim


def _embedding_size(hidden_size: int, *, tied: bool) -> int:
    return _VOCAB_SIZE * hidden_size * (1 if tied else 2)


def _shape(hidden_size: int, num_parameters: float, *, tied: bool) -> tuple[int, float]:
    """The hidden size, and the layers of the typical proportions that fill up the size."""
    layer = _attention_size(hidden_size) + 3 * _FEED_FORWARD_RATIO * hidden_size * hidden_size
    return hidden_size, (num_parameters - _embedding_size(hidden_size, tied=tied)) / layer


def _distance(hidden_size: int, num_layers: float) -> float:
    if num_layers < 1:
        return math.inf
    return abs(math.log(num_layers * _WIDTH_PER_LAYER / hidden_size))
