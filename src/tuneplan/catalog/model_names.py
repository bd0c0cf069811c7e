"""How people write model names: case, owners, separators, and variants of one base model."""

from __future__ import annotations

import re
from typing import Final

_SEPARATORS: Final = re.compile(r"[\s_]+")
_VARIANT: Final = re.compile(
    r"^(instruct|chat|base|hf|it|pt|sft|dpo|rl|thinking|reasoning|ms|fp16|bf16|fp8|nvfp4|gptq|awq|"
    r"gguf|bnb|unsloth|int4|int8|4bits?|8bits?|(25|26)(0[1-9]|1[0-2])|dynamic|quantized|w4a16|w8a8)$"
)
_QUANTIZED: Final = re.compile(
    r"^(fp8|nvfp4|gptq|awq|gguf|bnb|int4|int8|4bits?|8bits?|w4a16|w8a8)$"
)


def normalized(name: str) -> str:
    """Case and separators removed as a difference: ``"Llama 3.2 3B"`` -> ``llama-3.2-3b``."""
    return _SEPARATORS.sub("-", name.strip().casefold())


def without_owner(name: str) -> str:
    """The part after the owner: ``Qwen/Qwen2.5-7B`` -> ``Qwen2.5-7B``."""
    return name.rsplit("/", 1)[-1]


def base_name(name: str) -> str:
    """The normalised name without owner, ``meta-`` and words that name a variant of one model.

    ``unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit`` -> ``llama-3.1-8b``.
    """
    words = normalized(without_owner(name)).removeprefix("meta-").split("-")
    kept = [word for word in words if not _VARIANT.match(word)]
    return "-".join(kept or words)


def names_quantized_weights(name: str) -> bool:
    """Whether the name says that the published weights are quantised."""
    words = normalized(without_owner(name)).split("-")
    return any(_QUANTIZED.match(word) for word in words)
