"""LitGPT's own model code: whether it is taken, and what is said where it is not.

The package is no part of the tests' environment; ``docs/internals/trace_accuracy.md`` has what it
traces with it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracing.small_jobs import recipe_for, small_llama, traced
from tuneplan.spec.recipe import Checkpointing, Kernels, TrainingRecipe
from tuneplan.tracing import litgpt_code

LITGPT = Kernels(model_code="litgpt")


def _recipe(*targets: str, parts: tuple[str, ...] = ()) -> TrainingRecipe:
    recipe = recipe_for(
        small_llama(), method="lora", adapter={"target_modules": targets, "r": 4}, kernels=LITGPT
    )
    assert recipe.adapter is not None
    return replace(recipe, adapter=replace(recipe.adapter, query_key_value=parts))


def test_without_the_package_transformers_stands_in_and_the_trace_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(litgpt_code, "version", lambda: None)
    recording = traced(small_llama(), recipe_for(small_llama(), kernels=LITGPT))
    assert recording.stand_ins["model code"] == (
        "transformers' in place of litgpt's: litgpt is not installed"
    )


def test_checkpointing_is_left_to_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litgpt_code, "version", lambda: "0.5.13")
    recipe = replace(
        recipe_for(small_llama(), kernels=LITGPT), gradient_checkpointing=Checkpointing.FULL
    )
    recording = traced(small_llama(), recipe)
    assert "litgpt 0.5.13 is not traced with such a model" in recording.stand_ins["model code"]


def test_other_programs_are_not_asked_for_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litgpt_code, "version", lambda: pytest.fail("asked"))
    assert litgpt_code.build_litgpt(small_llama(), recipe_for(small_llama())) is None


@pytest.mark.parametrize(
    ("targets", "parts", "adapted"),
    [
        (("q_proj", "v_proj"), ("query", "value"), {"query", "value"}),
        (("o_proj",), (), {"projection"}),
        (("gate_proj", "up_proj", "down_proj"), (), {"mlp"}),
        (("k_proj", "lm_head"), ("key",), {"key", "head"}),
    ],
)
def test_targets_in_the_words_of_litgpt(
    targets: tuple[str, ...], parts: tuple[str, ...], adapted: set[str]
) -> None:
    words = litgpt_code._adapted(small_llama(), _recipe(*targets, parts=parts))
    assert {word.removeprefix("lora_") for word, on in words.items() if on is True} == adapted
    assert words["lora_r"] == 4
