"""Precision, what is trained, accumulation and evaluation: bytes that can be counted by hand."""

import pytest

from tracing.small_jobs import (
    HIDDEN,
    INNER,
    LAYERS,
    LENGTH,
    SEQUENCES,
    TOKENS,
    VOCABULARY,
    of_kind,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.errors import NotSupported
from tuneplan.spec.recipe import DType, Kernels
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.result import summarize

LINEARS = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER  # of a layer
LAYER = LINEARS + 2 * HIDDEN
PARAMETERS = 2 * VOCABULARY * HIDDEN + LAYERS * LAYER + HIDDEN
RANK = 8
ADAPTERS = LAYERS * RANK * (4 * 2 * HIDDEN + 3 * (HIDDEN + INNER))
MAGNITUDES = LAYERS * (4 * HIDDEN + 2 * INNER + HIDDEN)


def phases(recording: Recording) -> dict[str, int]:
    return dict(summarize(recording).by_phase)


def test_pure_bf16_holds_two_bytes_each_for_weight_gradient_and_both_moments():
    model = small_llama()
    recording = traced(model, recipe_for(model, autocast=False))
    assert of_kind(recording, "trained_weight") == 2 * PARAMETERS
    assert of_kind(recording, "optimizer_state") == 2 * 2 * PARAMETERS
    assert of_kind(recording, "gradient", step=1) == 2 * PARAMETERS


def test_an_fp32_model_under_autocast_holds_four_bytes_each():
    model = small_llama()
    recording = traced(model, recipe_for(model, training={"dtype": "float32"}))
    assert of_kind(recording, "trained_weight") == 4 * PARAMETERS
    assert of_kind(recording, "optimizer_state") == 2 * 4 * PARAMETERS
    assert of_kind(recording, "gradient", step=1) == 4 * PARAMETERS


def test_autocast_keeps_a_half_copy_of_every_linear_until_the_forward_ends():
    """With checkpointing nothing else would keep them: 2 bytes for each weight of a linear."""
    model = small_llama()
    training = {"dtype": "float32", "gradient_checkpointing": True}
    recording = traced(model, recipe_for(model, training=training))
    shapes = {(HIDDEN, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)}
    first, second = (
        sum(
            block.size
            for block in recording.blocks
            if block.dtype == "bfloat16" and block.shape in shapes
            if block.operation == "_to_copy" and (block.step, block.phase) == (1, phase)
        )
        for phase in ("forward", "backward")
    )
    assert first == 2 * LAYERS * LINEARS
    assert second == 2 * LAYERS * LINEARS


def test_fp16_scales_its_loss_with_the_scaler_of_pytorch():
    model = small_llama()
    recording = traced(model, recipe_for(model, training={"dtype": "float32", "precision": "fp16"}))
    assert recording.notes["gradient_scaler"] == 1
    assert recording.operations["aten._amp_foreach_non_finite_check_and_unscale_.default"][0] == 2
    assert recording.operations["aten._amp_update_scale_.default"][0] == 2


def test_fp16_weights_are_trained_without_the_scaler_and_the_result_says_so():
    model = small_llama()
    recording = traced(model, recipe_for(model, training={"dtype": "float16", "precision": "fp16"}))
    assert recording.notes["fp16_gradients_without_scaler"] == 1
    assert "gradient_scaler" not in recording.notes


def test_freeze_trains_the_last_layer_alone():
    model = small_llama()
    recipe = recipe_for(model, method="freeze", trained_layers=1)
    recording = traced(model, recipe)
    assert of_kind(recording, "trained_weight") == 2 * LAYER
    assert of_kind(recording, "frozen_weight") == 2 * (PARAMETERS - LAYER)
    assert of_kind(recording, "optimizer_state") == 2 * 2 * LAYER


def test_frozen_layers_below_the_trained_one_keep_nothing():
    """Their forward makes no graph: activations of one layer less than with both trained."""
    model = small_llama()
    one, both = (
        phases(traced(model, recipe_for(model, method="freeze", trained_layers=layers)))["forward"]
        for layers in (1, 2)
    )
    kept_of_a_layer = both - one - 2 * 2 * LAYER
    assert kept_of_a_layer > 10 * TOKENS * HIDDEN * 2


def test_rslora_holds_what_lora_holds_and_dora_one_magnitude_for_each_output():
    model = small_llama()
    trained = {}
    for method, adapter in (("lora", {}), ("lora", {"use_rslora": True}), ("dora", {})):
        recording = traced(model, recipe_for(model, method=method, adapter=adapter))
        trained[method, *adapter] = of_kind(recording, "trained_weight")
    assert trained["lora",] == 4 * ADAPTERS
    assert trained["lora", "use_rslora"] == 4 * ADAPTERS
    assert trained["dora",] == 4 * (ADAPTERS + MAGNITUDES)


def test_the_second_micro_batch_starts_with_the_gradients_of_the_first():
    model = small_llama()
    once = phases(traced(model, recipe_for(model)))
    recipe = recipe_for(model, training={"gradient_accumulation_steps": 4})
    assert phases(traced(model, recipe))["forward"] - once["forward"] == 2 * PARAMETERS


def test_clipping_takes_a_norm_of_every_gradient_and_can_be_off():
    model = small_llama()
    clipped = traced(model, recipe_for(model))
    assert clipped.operations["aten._foreach_norm.Scalar"][0] == 2
    free = traced(model, recipe_for(model, max_grad_norm=None))
    assert "aten._foreach_norm.Scalar" not in free.operations


def test_evaluation_holds_states_and_three_copies_of_its_logits_but_no_gradient():
    """At the loss: half logits, their fp32 copy and the log-softmax, 2 + 4 + 4 bytes a logit."""
    model = small_llama()
    recipe = recipe_for(model)
    assert "evaluation" not in phases(traced(model, recipe))
    few, many = (
        phases(traced(model, recipe, evaluation_sequences=rows))["evaluation"] for rows in (2, 6)
    )
    more = 4 * LENGTH
    hidden_and_tokens = more * (2 * 2 * HIDDEN + 4 * 8)
    assert few > 3 * 2 * PARAMETERS + 10 * SEQUENCES * LENGTH * VOCABULARY
    assert 0 <= (many - few) - 10 * more * VOCABULARY <= hidden_and_tokens


def test_compiled_code_and_fused_mlps_with_dropout_are_refused_by_name():
    model = small_llama()
    with pytest.raises(NotSupported, match="compiled code"):
        traced(model, recipe_for(model, kernels=Kernels(compiled=True)))
    recipe = recipe_for(
        model,
        method="lora",
        adapter={"lora_dropout": 0.1},
        kernels=Kernels(fused_mlp=True, fused_adapter=True),
    )
    with pytest.raises(NotSupported, match="dropout only where no MLP is fused"):
        traced(model, recipe)


def kept(kernels: Kernels) -> tuple[int, Recording]:
    """Activations that the second forward leaves for its backward."""
    model = small_llama()
    recording = traced(model, recipe_for(model, kernels=kernels, method="lora"))
    at = {(phase, step): at for at, phase, step in recording.marks}
    begin, end = at["forward", 1], at["loss", 1]
    return sum(b.size for b in recording.blocks if begin <= b.born < end <= b.died), recording


def test_a_fused_norm_keeps_its_half_input_where_eager_code_keeps_an_fp32_copy():
    """4 bytes an element become 2; the inverse root, 4 bytes a row, is kept by both."""
    plain, _ = kept(Kernels())
    fused, recording = kept(Kernels(fused_norm=True))
    assert recording.notes["fused_norms"] == 2 * LAYERS + 1
    assert plain - fused == 2 * LAYERS * TOKENS * HIDDEN * (4 - 2)


def test_a_fused_gate_keeps_no_activation():
    plain, _ = kept(Kernels())
    fused, recording = kept(Kernels(fused_mlp=True))
    assert recording.notes["fused_mlps"] == LAYERS
    assert plain - fused == LAYERS * TOKENS * 2 * INNER


def test_a_fused_rope_rotates_in_place():
    plain, _ = kept(Kernels())
    fused, recording = kept(Kernels(fused_rope=True))
    assert recording.notes["fused_ropes"] == 1
    assert fused <= plain
    assert recording.stand_ins["fused ropes"] == "liger-kernel 0.8.5 ops/rope.py"


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_fused_adapters_train_what_peft_trains(method):
    model = small_llama()
    how = {"autocast": False, "outer_dtype": DType.BFLOAT16, "norm_dtype": DType.BFLOAT16}
    plain, fused = (
        traced(model, recipe_for(model, method=method, kernels=kernels, **how))
        for kernels in (Kernels(), Kernels(fused_adapter=True))
    )
    assert fused.notes["fused_adapters"] == 7 * LAYERS
    for kind in ("trained_weight", "gradient"):
        assert of_kind(fused, kind, step=1) == of_kind(plain, kind, step=1)
    assert phases(fused)["forward"] < phases(plain)["forward"]


def test_a_fused_adapter_keeps_its_input_and_the_two_halves_of_an_mlp():
    """Half tensors a token: attention's and the MLP's input, and gate and up (inner wide)."""
    model = small_llama()
    recipe = recipe_for(model, method="lora", kernels=Kernels(fused_adapter=True), autocast=False)
    recording = traced(model, recipe)
    at = {(phase, step): at for at, phase, step in recording.marks}
    begin, end = at["forward", 1], at["loss", 1]
    inner = [
        block
        for block in recording.blocks
        if begin <= block.born < end <= block.died and block.shape == (TOKENS, INNER)
    ]
    assert len(inner) == 2 * LAYERS
