"""Which names PEFT knows for a model: its default targets, and experts by the names of modules.

PEFT 0.21.2 over transformers 5.24.0. Routed experts are stacked parameters in transformers 5. For
the model types of ``_EXPERT_NAMES`` PEFT turns the names that the experts had as modules into these
parameters (``utils/transformers_weight_conversion.py``): gate and up, which share one matrix, must
be named together and get twice the rank; each expert has matrices of its own; and *dense* blocks
and shared experts of the same names are then no longer reached. For other model types experts are
not reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import MixtureOfExperts
from tuneplan.spec.weights import leaf_of

# PEFT 0.21.2, utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING. Mixtral is
# in that table, but its conversion of expert names runs first and leaves no target.
_QUERY_AND_VALUE: Final = ("q_proj", "v_proj")
_DEFAULT_TARGETS: Final = {
    "bloom": ("query_key_value",),
    "chatglm": ("query_key_value",),
    "falcon": ("query_key_value",),
    "gemma": _QUERY_AND_VALUE,
    "gemma2": _QUERY_AND_VALUE,
    "gemma3_text": _QUERY_AND_VALUE,
    "gemma4": _QUERY_AND_VALUE,
    "gpt2": ("c_attn",),
    "gpt_bigcode": ("c_attn",),
    "gpt_neox": ("query_key_value",),
    "llama": _QUERY_AND_VALUE,
    "mistral": _QUERY_AND_VALUE,
    "mpt": ("Wqkv",),
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "opt": _QUERY_AND_VALUE,
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "qwen2": _QUERY_AND_VALUE,
    "qwen3": _QUERY_AND_VALUE,
}
# name as a module of transformers 4 -> stacked parameter (or router) of transformers 5
_LIKE_MIXTRAL: Final = {
    "gate": "gate",
    "w1": "gate_up_proj",
    "w3": "gate_up_proj",
    "w2": "down_proj",
}
_LIKE_QWEN2_MOE: Final = {
    "gate": "gate",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
EXPERT_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "mixtral": _LIKE_MIXTRAL,
    "minimax": _LIKE_MIXTRAL,
    "minimax_m2": _LIKE_MIXTRAL,
    "deepseek_v2": _LIKE_QWEN2_MOE,
    "deepseek_v3": _LIKE_QWEN2_MOE,
    "deepseek_v32": _LIKE_QWEN2_MOE,
    "glm4_moe": _LIKE_QWEN2_MOE,
    "glm4_moe_lite": _LIKE_QWEN2_MOE,
    "glm_moe_dsa": _LIKE_QWEN2_MOE,
    "qwen3_moe": _LIKE_QWEN2_MOE,
    "qwen3_next": _LIKE_QWEN2_MOE,
}
# PEFT refuses these on Mamba models (tuners_utils._check_lora_target_modules_mamba).
NOT_ON_MAMBA: Final = {"nemotron_h": ("out_proj",)}


def default_target_modules(model_type: str) -> tuple[str, ...] | None:
    """The leaves PEFT 0.21.2 adapts when nothing is stated; None where it demands a statement."""
    return _DEFAULT_TARGETS.get(model_type)


def expert_module_names(architecture: ModelArchitecture) -> tuple[str, ...]:
    """Names that routed experts and their router had as modules, where PEFT still takes them."""
    if not has_experts(architecture):
        return ()
    return tuple(EXPERT_NAMES.get(architecture.model_type, ()))


def names_of_experts(architecture: ModelArchitecture, names: Sequence[str]) -> dict[str, str]:
    """Those of ``names`` that PEFT turns into stacked parameters, and into which."""
    known = EXPERT_NAMES.get(architecture.model_type, {}) if has_experts(architecture) else {}
    return {name: known[leaf_of(name)] for name in names if leaf_of(name) in known}


def has_experts(architecture: ModelArchitecture) -> bool:
    """Whether some layer has routed experts."""
    return any(
        isinstance(group.layer.feed_forward, MixtureOfExperts) for group in architecture.groups
    )
