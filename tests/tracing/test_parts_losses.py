"""Loss paths: which copies of the logits exist, counted block by block."""

from collections import Counter
from dataclasses import replace

import pytest

from tracing.small_jobs import HIDDEN, TOKENS, VOCABULARY, recipe_for, small_llama, traced
from tuneplan.frameworks.losses import (
    fused_linear,
    generic_chunked,
    litgpt_loss,
    torchtune_loss,
    trl_chunked,
    trl_fused_head,
)
from tuneplan.spec.recipe import Loss, LossPath, TrainingRecipe
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.result import summarize

LOGITS = TOKENS * VOCABULARY
HALF, FULL = 2, 4


def recipe_with(loss: Loss, method: str = "lora", **changed: object) -> TrainingRecipe:
    return recipe_for(small_llama(), method=method, loss=loss, **changed)


def run(recipe: TrainingRecipe) -> Recording:
    return traced(small_llama(), recipe)


def logits_sized(recording: Recording) -> Counter[tuple[str, str]]:
    """How many blocks as large as all logits the second step makes, by phase and dtype."""
    width = {"bfloat16": HALF, "float32": FULL}
    return Counter(
        (block.phase, block.dtype)
        for block in recording.blocks
        if block.step == 1 and block.born >= 0
        if block.size == LOGITS * width.get(block.dtype, 0)
    )


def largest(recording: Recording) -> int:
    """Elements of the largest block of logits that the second step makes."""
    width = {"bfloat16": HALF, "float32": FULL}
    return max(
        block.size // width[block.dtype]
        for block in recording.blocks
        if block.step == 1 and block.dtype in width
        if block.shape[-1:] == (VOCABULARY,) and block.shape != (HIDDEN, VOCABULARY)
    )


def full(**changed: object) -> Loss:
    return Loss(path=LossPath.FULL, holds_model_logits=True, **changed)


def test_the_full_path_makes_half_logits_an_fp32_copy_and_the_log_softmax():
    """Backward: zeros for the picked labels, the logits' gradient, its cast to half."""
    assert logits_sized(run(recipe_with(full()))) == {
        ("loss", "bfloat16"): 1,
        ("loss", "float32"): 2,
        ("backward", "float32"): 2,
        ("backward", "bfloat16"): 1,
    }


def test_a_fused_cross_entropy_writes_its_gradient_over_the_logits():
    loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=True)
    recording = run(recipe_with(loss))
    assert logits_sized(recording) == {
        ("loss", "bfloat16"): 1,
        ("loss", "float32"): 1,
        ("backward", "bfloat16"): 1,
    }
    assert "unsloth" in recording.stand_ins["fused cross entropy"]


def test_a_fused_cross_entropy_over_half_logits_makes_nothing_in_the_backward():
    loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=False)
    assert logits_sized(run(recipe_with(loss))) == {("loss", "bfloat16"): 1}


def test_a_shifted_copy_is_one_more():
    loss = Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=True, shifted_copy=True)
    shifted = run(recipe_with(loss))
    rows = TOKENS - 2  # one token less in each of the two rows
    assert sum(b.step == 1 and b.size == rows * VOCABULARY * FULL for b in shifted.blocks) == 1


def test_the_fused_linear_loss_makes_logits_of_a_chunk_only_and_the_gradient_in_the_forward():
    """ceil(1024 / 256) = 4 chunks of 192 / 4 = 48 tokens, rounded up to 64."""
    recording = run(recipe_with(fused_linear()))
    assert largest(recording) == 64 * VOCABULARY
    made = [
        block
        for block in recording.blocks
        if block.step == 1 and block.phase == "loss" and block.shape == (TOKENS, HIDDEN)
    ]
    assert [block.dtype for block in made] == ["bfloat16"]
    assert "liger-kernel 0.8.5" in recording.stand_ins["fused linear cross entropy"]


def test_the_fused_linear_loss_makes_the_gradient_of_a_trained_head_in_the_forward():
    recording = run(recipe_with(fused_linear(), method="full"))
    head = [
        (block.phase, block.operation)
        for block in recording.blocks
        if block.step == 1 and block.shape == (VOCABULARY, HIDDEN) and block.kind == "gradient"
    ]
    assert ("loss", "zeros_like") in head


def test_recomputed_chunks_hold_logits_of_one_chunk_in_both_directions():
    loss = replace(generic_chunked(), chunk_tokens=48)
    recording = run(recipe_with(loss))
    assert largest(recording) == 48 * VOCABULARY
    kept = summarize(recording).by_phase["backward"]
    assert kept < summarize(run(recipe_with(full()))).by_phase["backward"] - FULL * LOGITS


def test_trl_makes_the_head_fp32_for_every_chunk_and_half_again_under_autocast():
    """Of 48 tokens: 192 / 48 = 4 chunks, each in the forward and again in the backward."""
    recording = run(recipe_with(replace(trl_chunked(), chunk_tokens=48)))
    heads = Counter(
        block.dtype
        for block in recording.blocks
        if block.step == 1 and block.shape in ((VOCABULARY, HIDDEN), (HIDDEN, VOCABULARY))
        if block.operation == "_to_copy"
    )
    assert heads == {"float32": 8, "bfloat16": 8}


@pytest.mark.parametrize("method", ["lora", "full"])
def test_tiles_use_one_buffer_and_sum_gradients_in_fp32(method):
    loss = replace(trl_fused_head(), chunk_tokens=64, chunk_vocabulary=256)
    recording = run(recipe_with(loss, method=method))
    assert all(
        block.size <= HALF * 64 * 256
        for block in recording.blocks
        if block.step == 1 and block.operation == "empty" and block.phase in ("loss", "backward")
    )
    sums = Counter(
        block.shape
        for block in recording.blocks
        if block.step == 1 and block.phase == "backward" and block.dtype == "float32"
        if block.operation == "zeros" and len(block.shape) == 2
    )
    wanted = [(TOKENS, HIDDEN)] + [(VOCABULARY, HIDDEN)] * (method == "full")
    assert sums == Counter(wanted)


def chunks_of(recording: Recording, dtype: str, phase: str = "loss") -> Counter[str]:
    """Blocks as large as half of the logits that the second step makes, by operation."""
    width = {"bfloat16": HALF, "float32": FULL}[dtype]
    return Counter(
        block.operation
        for block in recording.blocks
        if (block.step, block.phase, block.dtype) == (1, phase, dtype)
        if block.shape[-1:] == (VOCABULARY,) and block.size == width * LOGITS // 2
    )


def test_torchtune_keeps_half_logits_and_an_fp32_log_softmax_of_every_chunk():
    loss = replace(torchtune_loss("chunked_output"), num_chunks=2)
    recording = run(recipe_with(loss, autocast=False))
    assert chunks_of(recording, "bfloat16").total() == 2
    assert chunks_of(recording, "float32") == {"_log_softmax": 2, "_to_copy": 2}
    whole = summarize(run(recipe_with(full(), autocast=False))).by_phase["loss"]
    # Of the fp32 logits only one chunk's exists at a time.
    saved = whole - summarize(recording).by_phase["loss"]
    assert abs(saved - FULL * LOGITS // 2) < HALF * TOKENS * HIDDEN + 2048


def test_torchtune_with_the_head_in_the_loss_makes_one_chunk_of_logits_at_a_time():
    loss = replace(torchtune_loss("linear"), num_chunks=2)
    recording = run(recipe_with(loss, autocast=False))
    halves = [
        (block.born, block.died)
        for block in recording.blocks
        if block.step == 1 and block.operation == "mm" and block.size == HALF * LOGITS // 2
    ][:2]
    assert halves[0][1] < halves[1][0]


def test_litgpt_holds_fp32_logits_of_every_chunk():
    loss = replace(litgpt_loss(), chunk_tokens=48)
    recording = run(recipe_with(loss, autocast=False))
    assert chunks_of(recording, "float32") == {"_log_softmax": 2, "_to_copy": 2}
    at_peak = summarize(recording)
    assert at_peak.by_phase["loss"] > 2 * FULL * LOGITS


def test_a_compiled_chunked_loss_writes_its_gradients_over_the_half_logits():
    loss = replace(torchtune_loss("chunked_output"), num_chunks=2, keeps_softmax=False)
    recording = run(recipe_with(loss, autocast=False))
    assert chunks_of(recording, "bfloat16").total() == 2
    assert not chunks_of(recording, "float32")
    assert not chunks_of(recording, "float32", "backward")


def test_the_full_path_outside_the_model_upcasts_only_where_asked():
    loss = replace(full(), outside_model=True, upcast_logits=False)
    recording = run(recipe_with(loss, autocast=False))
    assert logits_sized(recording) == {
        ("loss", "bfloat16"): 2,  # logits and log-softmax
        ("backward", "bfloat16"): 2,
    }


def test_a_share_of_the_tokens_reaches_the_head():
    recording = run(recipe_with(full(trained_fraction=0.25)))
    assert largest(recording) == TOKENS // 4 * VOCABULARY
