"""From a Hugging Face configuration to a ``ModelArchitecture``: one builder per ``model_type``.

A new family is a module here with a builder ``(Fields) -> ModelArchitecture``, a line in
``BUILDERS``, and an entry with its published parameter count in ``catalog/data/models.json``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import with_fp32_scales, with_joined_rotary
from tuneplan.errors import UnknownArchitecture
from tuneplan.language import message, say
from tuneplan.spec.architecture import ModelArchitecture

Builder = Callable[[Fields], ModelArchitecture]

# Types whose RMSNorm multiplies by its weight before casting back (transformers 5.24).
FP32_SCALE: Final = frozenset(
    (
        *("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n_text", "gemma4", "gemma4_text"),
        *("olmo2", "olmo3", "gpt_oss", "nemotron_h", "deepseek_v4", "qwen3_next"),
        *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
    )
)

# Types whose ``apply_rotary_pos_emb`` ends in ``torch.cat`` of a turned and another part
# (transformers 5.24, ``modeling_*.py`` of each).
JOINS_ROTARY: Final = frozenset(
    (*("phi", "phi3", "gpt_neox", "glm", "glm4", "glm4_moe"), *("stablelm", "minimax_m2"))
)

# model_type -> "module" of this package (the builder has the name of the type), or
# "module:builder". Modules are imported when their first model is built.
BUILDERS: Final[Mapping[str, str]] = {
    "baichuan": "fused",
    "bloom": "classic",
    "chatglm": "fused",
    "deepseek_v2": "latent",
    "deepseek_v3": "latent",
    "deepseek_v32": "latent",
    "deepseek_v4": "deepseek_v4",
    "falcon": "alibi",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "gemma3_text": "gemma",
    "gemma3n_text": "gemma_elastic",
    "gemma4": "gemma_elastic",
    "gemma4_text": "gemma_elastic",
    "glm": "glm",
    "glm4": "glm",
    "glm4_moe": "glm",
    "glm4_moe_lite": "latent",
    "glm_moe_dsa": "latent",
    "gpt2": "classic",
    "gpt_bigcode": "classic",
    "gpt_neox": "classic",
    "gpt_oss": "mixtures",
    "granite": "llama",
    "internlm2": "fused",
    "internlm3": "llama",
    "kimi_k2": "latent:deepseek_v3",
    "llama": "llama",
    "llama4_text": "llama4",
    "mimo": "llama:qwen2",
    "minimax": "hybrid",
    "minimax_m2": "mixtures",
    "mistral": "llama",
    "mixtral": "mixtures",
    "mpt": "alibi",
    "nemotron": "classic",
    "nemotron_h": "nemotron",
    "olmo2": "llama",
    "olmo3": "llama",
    "opt": "classic",
    "phi": "classic",
    "phi3": "fused",
    "phimoe": "mixtures",
    "qwen": "fused",
    "qwen2": "llama",
    "qwen2_5_vl": "qwen_vision",
    "qwen2_moe": "mixtures",
    "qwen3": "llama",
    "qwen3_5": "hybrid",
    "qwen3_5_moe": "hybrid",
    "qwen3_5_moe_text": "hybrid",
    "qwen3_5_text": "hybrid",
    "qwen3_moe": "mixtures",
    "qwen3_next": "hybrid",
    "qwen3_vl": "qwen_vision",
    "qwen3_vl_moe": "qwen_vision",
    "smollm3": "llama",
    "starcoder2": "classic",
    "yuan": "yuan",
}


def known_model_types() -> tuple[str, ...]:
    """Every ``model_type`` that has a builder."""
    return tuple(sorted(BUILDERS))


def build_architecture(
    config: Mapping[str, Any], *, name: str, hf_id: str | None = None, source: str = ""
) -> tuple[ModelArchitecture, Mapping[str, int]]:
    """The architecture a configuration describes, and the sizes that it did not state.

    The second value maps a field path to the value that the configuration class of
    ``transformers`` takes where the field is missing.

    Raises:
        UnknownArchitecture: there is no builder for its ``model_type``.
        InvalidRequest: fields are missing or impossible; all of them are listed.
    """
    builder = _builder(config, name)
    fields = Fields(config)
    architecture = builder(fields)
    fields.raise_mistakes()
    if config.get("model_type") in FP32_SCALE:
        architecture = with_fp32_scales(architecture)
    if config.get("model_type") in JOINS_ROTARY:
        architecture = with_joined_rotary(architecture)
    return replace(
        architecture,
        name=name,
        hf_id=hf_id,
        source=source,
        stored_dtype=stored_dtype(config),
        hf_config=config,
        assumed_fields=tuple(fields.defaults),
    ), fields.defaults


def stored_dtype(config: Mapping[str, Any]) -> str:
    """Dtype of the published weights; ``float32`` where nothing is said, as transformers saves."""
    sections = [config]
    text = config.get("text_config")
    if isinstance(text, Mapping):
        sections.append(text)
    for section in sections:
        for key in ("torch_dtype", "dtype"):
            if isinstance(section.get(key), str):
                return str(section[key]).removeprefix("torch.")
    return "float32"


def _builder(config: Mapping[str, Any], name: str) -> Builder:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in BUILDERS:
        raise _unknown(config, model_type, name)
    module_name, _, builder_name = BUILDERS[model_type].partition(":")
    module = import_module(f"{__name__}.{module_name}")
    builder: Builder = getattr(module, builder_name or model_type)
    return builder


def _unknown(config: Mapping[str, Any], model_type: Any, name: str) -> UnknownArchitecture:
    if model_type is None:
        return UnknownArchitecture(
            message(
                "model_type_missing",
                "{name} does not say its model_type, so its layers are unknown; is this the "
                "config.json of a language model? Known types: {known}",
                name=name,
                known=", ".join(known_model_types()),
            )
        )
    near = difflib.get_close_matches(str(model_type), known_model_types(), n=4, cutoff=0.5)
    return UnknownArchitecture(
        message(
            "unknown_architecture",
            "{name} is of model_type {model_type!r} ({classes}), whose layers are not described "
            "here; nearest known types: {near}. Describe it as one of those in a file of your own "
            "(docs/reference/models.md), or give a bare size such as '7B'",
            name=name,
            model_type=model_type,
            classes=", ".join(map(str, config.get("architectures") or [say("no class stated")])),
            near=", ".join(near) or ", ".join(known_model_types()),
        )
    )
