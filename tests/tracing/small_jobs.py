"""Small jobs for the tests of the trace: two layers, so that each takes a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.architectures import build_architecture
from tuneplan.frameworks.resolve import resolve_recipe
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.stated import (
    StatedAdapter,
    StatedQuantization,
    StatedRecipe,
    StatedTraining,
)
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.session import record

LAYERS, HIDDEN, INNER, VOCABULARY = 2, 256, 512, 1024
SEQUENCES, LENGTH = 2, 96
TOKENS = SEQUENCES * LENGTH


def small_llama(**changed: Any) -> ModelArchitecture:
    """A Llama of two layers with an untied head."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        **changed,
    }
    return build_architecture(config, name="small", hf_id=None, source="test")[0]


def recipe_for(
    architecture: ModelArchitecture,
    *,
    method: str = "full",
    training: dict[str, Any] | None = None,
    adapter: dict[str, Any] | None = None,
    quantization: dict[str, Any] | None = None,
    **changed: Any,
) -> TrainingRecipe:
    """What transformers' Trainer makes of a method on an A100, with some settings changed."""
    uses_adapter = method not in ("full", "freeze")
    wanted = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": "all-linear"}
    stated = StatedRecipe(
        framework="transformers",
        method=method,
        adapter=StatedAdapter(**{**wanted, **(adapter or {})}) if uses_adapter else StatedAdapter(),
        quantization=StatedQuantization(**(quantization or {})),
        training=StatedTraining(
            **{
                "dtype": "bfloat16",
                "precision": "bf16",
                "max_length": LENGTH,
                "per_device_train_batch_size": SEQUENCES,
                "gradient_accumulation_steps": 1,
                "gradient_checkpointing": False,
                "optim": "adamw_torch",
                **(training or {}),
            }
        ),
    )
    accelerator = load_accelerators().get("A100-SXM4-80GB")
    recipe = resolve_recipe(stated, architecture, accelerator, world_size=1).recipe
    return replace(recipe, **changed)


_SEEN: dict[str, Recording] = {}


def traced(architecture: ModelArchitecture, recipe: TrainingRecipe, **how: Any) -> Recording:
    """The recording of a small job; the same one where the same job is asked for again."""
    shape = {"sequences": SEQUENCES, "length": LENGTH, "compute_capability": 8.0}
    settings = {**shape, **how}
    key = repr((architecture.hf_config, recipe, settings))
    if key not in _SEEN:
        _SEEN[key] = record(architecture, recipe, **settings)[0]
    return _SEEN[key]


def of_kind(recording: Recording, kind: str, *, step: int | None = None) -> int:
    """Bytes of all blocks of a kind: those alive at the end, or those made in one step."""
    end = recording.end
    return sum(
        block.size
        for block in recording.blocks
        if block.kind == kind
        and (block.born < end and not 0 <= block.died < end if step is None else block.step == step)
    )
