"""Modules trained whole, and PEFT methods that no job names, by a configuration of PEFT's own."""

from typing import Any

import pytest

from tracing.small_jobs import (
    HIDDEN,
    INNER,
    LAYERS,
    VOCABULARY,
    of_kind,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.errors import InvalidRequest
from tuneplan.tracing.session import prepare_process

TARGETS = ["q_proj", "v_proj"]
KEYS = ["k_proj", "v_proj"]


def test_a_saved_module_is_a_trained_copy_beside_the_frozen_original():
    model = small_llama()
    plain, saved = (
        traced(model, recipe_for(model, method="lora", adapter=adapter))
        for adapter in ({}, {"modules_to_save": ["lm_head", "embed_tokens"]})
    )
    copies = 2 * VOCABULARY * HIDDEN * 2  # two matrices, two bytes an element
    assert of_kind(saved, "trained_weight") - of_kind(plain, "trained_weight") == copies
    assert of_kind(saved, "frozen_weight") == of_kind(plain, "frozen_weight")
    assert of_kind(saved, "optimizer_state") - of_kind(plain, "optimizer_state") == 2 * copies


def config_of(name: str, **settings: Any) -> Any:
    prepare_process()
    import peft

    return getattr(peft, name)(task_type="CAUSAL_LM", **settings)


@pytest.mark.parametrize(
    ("name", "settings", "trained"),
    [
        # A number for each key and value, and for each input of the downward projection.
        (
            "IA3Config",
            {"target_modules": [*KEYS, "down_proj"], "feedforward_modules": ["down_proj"]},
            LAYERS * (2 * HIDDEN + INNER),
        ),
        # A number for each rank and each output of both targets.
        ("VeraConfig", {"target_modules": TARGETS, "r": 16}, LAYERS * 2 * (16 + HIDDEN)),
        # Skew-symmetric blocks of 32: 32 * 31 / 2 numbers each, 8 blocks a matrix.
        ("OFTConfig", {"target_modules": TARGETS, "oft_block_size": 32}, LAYERS * 2 * 8 * 496),
        # Two matrices and a diagonal of 12, PEFT's initial rank, and the rank itself.
        (
            "AdaLoraConfig",
            {"target_modules": TARGETS, "total_step": 10},
            LAYERS * 2 * (12 * (2 * HIDDEN + 1) + 1),
        ),
        # Two products of two matrices each: rows and columns of both, for each of the 8 ranks.
        ("LoHaConfig", {"target_modules": TARGETS, "r": 8}, LAYERS * 2 * 2 * 2 * 8 * HIDDEN),
        # HIDDEN is 16 x 16: two squares of 16, since a rank of 8 is no smaller than half of that.
        ("LoKrConfig", {"target_modules": TARGETS, "r": 8}, LAYERS * 2 * 2 * 16 * 16),
        # A square of 8 for each of the blocks, and a scale for each output.
        (
            "BOFTConfig",
            {"target_modules": TARGETS, "boft_block_size": 8},
            LAYERS * 2 * (HIDDEN // 8 * 8 * 8 + HIDDEN),
        ),
        # 64 vectors of 64, shared; logits of each for all pieces of both matrices, 4 ranks.
        (
            "VBLoRAConfig",
            {"target_modules": TARGETS, "num_vectors": 64, "vector_length": 64},
            64 * 64 + LAYERS * 2 * 2 * 4 * (HIDDEN // 64) * 64,
        ),
        ("WaveFTConfig", {"target_modules": TARGETS, "n_frequency": 100}, LAYERS * 2 * 100),
        ("LNTuningConfig", {"target_modules": ["input_layernorm"]}, LAYERS * HIDDEN),
        ("PromptTuningConfig", {"num_virtual_tokens": 8}, 8 * HIDDEN),
        # Keys and values of every layer.
        ("PrefixTuningConfig", {"num_virtual_tokens": 8}, 8 * LAYERS * 2 * HIDDEN),
    ],
)
def test_other_methods_train_what_their_papers_count(name, settings, trained):
    model = small_llama()
    recipe = recipe_for(model, method="lora")
    recording = traced(model, recipe, peft_config=config_of(name, **settings))
    found = sum(
        block.size // {"float32": 4, "bfloat16": 2}[block.dtype]
        for block in recording.blocks
        if block.kind == "trained_weight"
    )
    assert found == trained
    assert of_kind(recording, "optimizer_state") == 2 * of_kind(recording, "trained_weight")


@pytest.mark.parametrize("name", ["ShiraConfig", "FrodConfig"])
def test_a_method_that_multiplies_by_sparse_matrices_is_refused_by_name(name):
    model = small_llama()
    with pytest.raises(InvalidRequest, match=name.removesuffix("Config").upper()):
        traced(
            model,
            recipe_for(model, method="lora"),
            peft_config=config_of(name, target_modules=TARGETS),
        )
