"""Names of models in ms-swift's releases before 3: ``--model_type qwen1half-7b-chat``.

Source: ms-swift 2.6.1 ``llm/utils/model.py ModelType`` and its ``register_model`` lines. An
underscore between digits is a point; chat and instruct models are sizes of one family.
"""

from __future__ import annotations

import re
from typing import Final

_POINT: Final = re.compile(r"(?<=\d)_(?=\d)")
_GPTQ: Final = re.compile(r"-(?:gptq-)?int[48]$")
_STORED: Final = re.compile(r"[-_](awq|aqlm|hqq|fp8|mxfp4|bnb-4bit|4bits?|8bits?)(?![a-z0-9])")
# Families whose names differ from those of the published models; the rest is as it stands.
_FAMILIES: Final = (
    (re.compile(r"qwen1half-moe-a2\.7b.*"), "Qwen1.5-MoE-A2.7B"),
    (re.compile(r"qwen1half-([\d.]+)b.*"), r"Qwen1.5-\1B"),
    (re.compile(r"codeqwen1half-7b.*"), "CodeQwen1.5-7B"),
    (re.compile(r"llama([23](?:\.\d)?)-(\d+)b.*"), r"Llama-\1-\2B"),
    (re.compile(r"(?:qwen)?-?openbuddy-llama(\d(?:\.\d)?)-(\d+)b.*"), r"Llama-\1-\2B"),
    (re.compile(r"gemma2-(\d+)b.*"), r"gemma-2-\1b"),
    (re.compile(r"mistral-7b(?:-instruct)?-v([23])"), r"Mistral-7B-v0.\1"),
    (re.compile(r"mistral-7b(?:-instruct)?"), "Mistral-7B-v0.1"),
    (re.compile(r"mixtral-moe-8x22b.*"), "Mixtral-8x22B-v0.1"),
    (re.compile(r"mixtral-moe-7b.*"), "Mixtral-8x7B-v0.1"),
    (re.compile(r"phi2-3b"), "phi-2"),
    (re.compile(r"phi3-4b-(4|128)k.*"), "Phi-3-mini-4k"),
    (re.compile(r"phi3-medium-(4|128)k.*"), "Phi-3-medium-4k"),
    (re.compile(r"yi-1\.5-(\d+)b.*"), r"Yi-1.5-\1B"),
    (re.compile(r"yi-(\d+)b.*"), r"Yi-\1B"),
    (re.compile(r"baichuan2-(\d+)b.*"), r"Baichuan2-\1B"),
    (re.compile(r"internlm2(?:\.5)?-7b.*"), "internlm2-7b"),
    (re.compile(r"chatglm3-6b.*"), "chatglm3-6b"),
    (re.compile(r"glm4-9b.*"), "glm-4-9b"),
    (re.compile(r"codefuse-codellama-34b.*"), "CodeLlama-34b"),
    (re.compile(r"(?:codefuse-qwen|tongyi-finance)-14b.*"), "Qwen-14B"),
)


def published_model(model_type: str) -> str:
    """Name of the model that a type stands for; the type itself where nothing else is known."""
    name = _POINT.sub(".", model_type.strip().lower())
    plain = _GPTQ.sub("", name)
    for pattern, replacement in _FAMILIES:
        match = pattern.fullmatch(plain)
        if match is not None:
            return match.expand(replacement)
    return name


def names_gptq(model: str) -> bool:
    """Whether a model's name says that its weights are GPTQ's."""
    name = model.strip().lower()
    return bool(_GPTQ.search(name)) or "gptq" in name


def stored_as(model: str) -> str | None:
    """How a model's name says that its weights are stored, where that is in few bits."""
    match = _STORED.search(model.strip().lower())
    return match[1] if match is not None else None
