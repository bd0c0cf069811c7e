"""torchtune's model builders by their published model.

Source: torchtune 0.7.0 ``torchtune/models/*/_model_builders.py`` and the ``tune download`` lines of
``recipes/configs/`` at bd2a0fc7.
"""

from __future__ import annotations

import re
from typing import Final

_PUBLISHED: Final = {
    "llama2_7b": "meta-llama/Llama-2-7b-hf",
    "llama2_13b": "meta-llama/Llama-2-13b-hf",
    "llama2_70b": "meta-llama/Llama-2-70b-hf",
    "llama2_reward_7b": "meta-llama/Llama-2-7b-hf",
    "code_llama2_7b": "codellama/CodeLlama-7b-hf",
    "code_llama2_13b": "codellama/CodeLlama-13b-hf",
    "llama3_8b": "meta-llama/Meta-Llama-3-8B",
    "llama3_70b": "meta-llama/Meta-Llama-3-70B",
    "llama3_1_8b": "meta-llama/Llama-3.1-8B",
    "llama3_1_70b": "meta-llama/Llama-3.1-70B",
    "llama3_1_405b": "meta-llama/Llama-3.1-405B",
    "llama3_2_1b": "meta-llama/Llama-3.2-1B",
    "llama3_2_3b": "meta-llama/Llama-3.2-3B",
    "llama3_2_vision_11b": "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "llama3_2_vision_90b": "meta-llama/Llama-3.2-90B-Vision-Instruct",
    "llama3_3_70b": "meta-llama/Llama-3.3-70B-Instruct",
    "llama4_scout_17b_16e": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama4_maverick_17b_128e": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "mistral_7b": "mistralai/Mistral-7B-v0.1",
    "mistral_reward_7b": "mistralai/Mistral-7B-v0.1",
    "gemma_2b": "google/gemma-2b",
    "gemma_7b": "google/gemma-7b",
    "gemma2_2b": "google/gemma-2-2b",
    "gemma2_9b": "google/gemma-2-9b",
    "gemma2_27b": "google/gemma-2-27b",
    "phi3_mini": "microsoft/Phi-3-mini-4k-instruct",
    "phi4_14b": "microsoft/phi-4",
    "qwen2_0_5b": "Qwen/Qwen2-0.5B-Instruct",
    "qwen2_1_5b": "Qwen/Qwen2-1.5B-Instruct",
    "qwen2_7b": "Qwen/Qwen2-7B-Instruct",
    "smollm2_135m": "HuggingFaceTB/SmolLM2-135M",
    "smollm2_360m": "HuggingFaceTB/SmolLM2-360M",
    "smollm2_1_7b": "HuggingFaceTB/SmolLM2-1.7B",
}
_QWEN: Final = re.compile(r"qwen(2_5|3)_(\d+(?:_\d+)?)b(?:_(base|instruct))?")
_FAMILY: Final = re.compile(r"(?:torchtune\.(?:dev\.)?)?models\.\w+\.(\w+)|torchtune\.\S*?(\w+)")
METHODS: Final = {"qlora_": "qlora", "lora_": "lora"}


def builder_of(component: str) -> str | None:
    """The name of a builder, its method prefix included; None for one that is not torchtune's."""
    match = _FAMILY.fullmatch(component)
    return (match[1] or match[2]) if match is not None else None


def method_of(builder: str) -> str:
    """``qlora``, ``lora`` or ``full``."""
    return next((word for start, word in METHODS.items() if builder.startswith(start)), "full")


def published_model(builder: str) -> str | None:
    """Hub id of the model that a builder makes; None where the sizes are arguments."""
    base = next(
        (builder.removeprefix(start) for start in METHODS if builder.startswith(start)), builder
    )
    if base in _PUBLISHED:
        return _PUBLISHED[base]
    qwen = _QWEN.fullmatch(base)
    if qwen is None:
        return None
    family = qwen[1].replace("_", ".")
    size = qwen[2].replace("_", ".")
    instruct = "-Instruct" if qwen[3] == "instruct" and family == "2.5" else ""
    base_weights = "-Base" if qwen[3] == "base" and family == "3" else ""
    return f"Qwen/Qwen{family}-{size}B{instruct}{base_weights}"
