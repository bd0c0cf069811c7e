"""Quantised bases: packed bytes, constants, what a product expands and what the graph keeps."""

from dataclasses import replace

import pytest

from tracing.small_jobs import (
    HIDDEN,
    INNER,
    LAYERS,
    TOKENS,
    VOCABULARY,
    of_kind,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.spec.recipe import DType, TrainingRecipe
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.result import summarize

MATRICES = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER)
COUNT = 7 * LAYERS
OUTER = 2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN
HALF, FULL = 2, 4


def recipe_with(method: str = "qlora", **how: object) -> TrainingRecipe:
    checkpointing = how.pop("checkpointing", False)
    reentrant = how.pop("use_reentrant", True)
    training = {"gradient_checkpointing": checkpointing, "use_reentrant": reentrant}
    return recipe_for(small_llama(), method=method, quantization=how, training=training)


def run(recipe: TrainingRecipe) -> Recording:
    return traced(small_llama(), recipe)


def forward(recording: Recording) -> int:
    return summarize(recording).by_phase["forward"]


def test_four_bits_are_half_a_byte_an_fp32_scale_for_64_and_a_table():
    recording = run(recipe_with(double_quant=False))
    assert of_kind(recording, "frozen_weight") == MATRICES // 2 + FULL * OUTER
    assert of_kind(recording, "quantization_constant") == MATRICES // 64 * 4 + COUNT * 16 * 4


def test_double_quantisation_makes_a_byte_of_each_scale_and_scales_of_256_of_them():
    recording = run(recipe_with(double_quant=True))
    scales = MATRICES // 64
    tables = COUNT * (16 * 4 + 256 * 4 + 4)
    assert of_kind(recording, "quantization_constant") == scales + scales // 256 * 4 + tables


def test_the_dtype_of_the_storage_changes_no_byte():
    recipe = recipe_with(double_quant=False)
    wide = replace(recipe, quantization=replace(recipe.quantization, storage_dtype=DType.BFLOAT16))
    assert of_kind(run(wide), "frozen_weight") == of_kind(run(recipe), "frozen_weight")


def expanded(recording: Recording, operation: str, dtype: str, phase: str) -> int:
    """How many matrices of the model's shapes an operation made in the second step."""
    shapes = {(HIDDEN, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)}
    return sum(
        block.shape in shapes and block.dtype == dtype and block.operation == operation
        for block in recording.blocks
        if (block.step, block.phase) == (1, phase)
    )


def test_every_product_expands_its_matrix_anew_in_forward_and_backward():
    """The first layer's inputs want no gradient: q, k and v of layer 0 are not expanded again."""
    recording = run(recipe_with(double_quant=False))
    assert expanded(recording, "empty", "bfloat16", "forward") == COUNT
    assert expanded(recording, "empty", "bfloat16", "backward") == COUNT - 3


def test_old_bitsandbytes_keeps_the_input_of_every_linear():
    recipe = recipe_with(double_quant=False)
    old = replace(recipe, quantization=replace(recipe.quantization, keeps_inputs=True))
    assert forward(run(old)) > forward(run(recipe))


def test_eight_bits_are_a_byte_and_an_fp32_scale_for_each_row():
    recording = run(recipe_with(bits=8))
    rows = LAYERS * (4 * HIDDEN + 2 * INNER + HIDDEN)
    assert of_kind(recording, "frozen_weight") == MATRICES + FULL * OUTER
    assert of_kind(recording, "quantization_constant") == rows * 4
    assert "MatMul8bitLt" in recording.stand_ins["quantized linears"]


def test_eight_bits_multiply_into_int32_and_expand_to_the_inputs_dtype_in_the_backward():
    recording = run(recipe_with(bits=8))
    wide = [
        block
        for block in recording.blocks
        if block.dtype == "int32" and block.step == 1 and block.shape == (TOKENS, INNER)
    ]
    assert len(wide) == 2 * LAYERS  # gate and up
    # The attention's output, o_proj's input, is half; all other inputs are fp32.
    assert expanded(recording, "_to_copy", "float32", "backward") == COUNT - 3 - LAYERS
    assert expanded(recording, "_to_copy", "bfloat16", "backward") == LAYERS


def test_eight_bits_keep_their_inputs_through_checkpointing_without_reentrance():
    """They are attributes of graph nodes, which its saved-tensor hooks do not see.

    At the peak, in the second layer's MLP: of the first layer both normalised inputs (fp32), the
    attention's output (half) and the product in front of ``down_proj``; of the second the first
    normalised input and the attention's output, which a checkpointed forward has dropped by then.
    """
    without, reentrant = (
        forward(run(recipe_with(bits=8, checkpointing=True, use_reentrant=way)))
        for way in (False, True)
    )
    first = 2 * HIDDEN * FULL + HIDDEN * HALF + INNER * FULL
    second = HIDDEN * FULL + HIDDEN * HALF
    assert without - reentrant == TOKENS * (first + second)


def test_gptq_holds_packed_integers_scales_zero_points_and_groups():
    recording = run(recipe_with("gptq-lora"))
    groups = MATRICES // 128
    inputs = LAYERS * (6 * HIDDEN + INNER)
    assert of_kind(recording, "frozen_weight") == MATRICES // 2 + HALF * OUTER
    constants = groups * 2 + groups // 2 + 4 * inputs + COUNT * 8 * 4
    assert of_kind(recording, "quantization_constant") == constants


def test_gptq_in_pytorch_keeps_every_expanded_matrix_and_in_one_kernel_none():
    recipe = recipe_with("gptq-lora")
    one = replace(recipe, quantization=replace(recipe.quantization, one_kernel=True))
    kept = forward(run(recipe)) - forward(run(one))
    # Autocast makes the product in bf16: the copy of the matrix is what is kept.
    assert MATRICES * HALF * 0.7 <= kept <= MATRICES * HALF * 1.3


@pytest.mark.parametrize("checkpointing", [False, True])
def test_k_bit_preparation_makes_everything_else_fp32(checkpointing):
    recording = run(recipe_with(double_quant=False, checkpointing=checkpointing))
    frozen = of_kind(recording, "frozen_weight") - MATRICES // 2
    assert frozen == FULL * OUTER
