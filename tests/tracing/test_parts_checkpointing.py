"""Activation checkpointing: what each kind keeps of a layer, and what it computes again."""

from dataclasses import replace

import pytest

from tracing.small_jobs import HIDDEN, LAYERS, TOKENS, recipe_for, small_llama, traced
from tuneplan.spec.recipe import Checkpointing, Method
from tuneplan.tracing.recording import Recording

HALF = 2


def run(kind: Checkpointing, *, reentrant: bool = False, layers: int = LAYERS) -> Recording:
    model = small_llama(num_hidden_layers=layers)
    recipe = recipe_for(model, training={"gradient_checkpointing": kind is not Checkpointing.NONE})
    recipe = replace(recipe, gradient_checkpointing=kind, use_reentrant=reentrant)
    return traced(model, recipe)


def kept(recording: Recording) -> int:
    """Bytes that the second forward's layers leave for the backward."""
    at = {(phase, step): at for at, phase, step in recording.marks}
    begin, end = at["forward", 1], at["loss", 1]
    after = at["backward", 1]
    return sum(b.size for b in recording.blocks if begin <= b.born < end and b.died > after)


def of_a_layer(kind: Checkpointing, *, reentrant: bool = False) -> int:
    """What one more layer keeps."""
    few, many = (kept(run(kind, reentrant=reentrant, layers=n)) for n in (2, 3))
    return many - few


def calls(recording: Recording, operation: str) -> int:
    found = recording.operations[f"aten.{operation}.default"]
    return found if isinstance(found, int) else found[0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_full_checkpointing_keeps_the_input_of_a_layer(reentrant):
    assert of_a_layer(Checkpointing.FULL, reentrant=reentrant) == HALF * TOKENS * HIDDEN


@pytest.mark.parametrize("reentrant", [True, False])
def test_offloaded_checkpointing_keeps_nothing_of_a_layer(reentrant):
    assert of_a_layer(Checkpointing.OFFLOAD, reentrant=reentrant) == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_offloaded_input_comes_back_for_its_backward(reentrant):
    recording = run(Checkpointing.OFFLOAD, reentrant=reentrant)
    back = [
        block
        for block in recording.blocks
        if (block.step, block.phase, block.operation) == (1, "backward", "_to_copy")
        if block.size == HALF * TOKENS * HIDDEN and block.dtype == "bfloat16"
    ]
    assert len(back) >= LAYERS


def test_selective_checkpointing_keeps_attention_and_every_second_product():
    """Products of a layer: q, k, v, o, gate, up, down; kept are q, v, gate, down (1, 3, 5, 7).

    Kept with the input: q and v (hidden wide), gate (inner wide, twice the hidden size), down,
    the attention's output and its log-sum-exp (fp32, a number a head, token).
    """
    recording = run(Checkpointing.SELECTIVE)
    assert "torchtitan" in recording.stand_ins["selective checkpointing"]
    parts = HALF * TOKENS * HIDDEN * (1 + 1 + 1 + 2 + 1 + 1)
    statistics = 4 * 4 * TOKENS
    assert abs(of_a_layer(Checkpointing.SELECTIVE) - parts - statistics) <= 512


def test_selective_checkpointing_computes_attention_once_and_full_twice():
    name = "_scaled_dot_product_efficient_attention"
    counts = [
        calls(run(kind), name)
        for kind in (Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL)
    ]
    assert counts == [2 * LAYERS, 2 * LAYERS, 4 * LAYERS]


def test_without_checkpointing_a_layer_keeps_far_more():
    assert of_a_layer(Checkpointing.NONE) > 2 * of_a_layer(Checkpointing.SELECTIVE)


@pytest.mark.parametrize("kind", [Checkpointing.OFFLOAD, Checkpointing.SELECTIVE])
@pytest.mark.parametrize("method", [Method.LORA, Method.QLORA])
def test_every_kind_runs_with_adapters(kind, method):
    model = small_llama()
    recipe = recipe_for(model, method=str(method), training={"gradient_checkpointing": True})
    for reentrant in (True, False):
        chosen = replace(recipe, gradient_checkpointing=kind, use_reentrant=reentrant)
        recording = traced(model, chosen)
        assert any(block.kind == "gradient" for block in recording.blocks)
