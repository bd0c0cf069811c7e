"""The operations of a walk, priced, against published kernel timings and counted kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chips import A100, H100
from settings import MISTRAL_7B, MODELS, adapter, recipe
from tuneplan.catalog.kernels import load_curves
from tuneplan.estimation.head import profile_head
from tuneplan.estimation.heads import rotary
from tuneplan.estimation.kernel_time import operation_time_s
from tuneplan.estimation.layers import profile_layer
from tuneplan.estimation.meter import Meter
from tuneplan.estimation.modules import Walk
from tuneplan.estimation.norms import norm
from tuneplan.estimation.operations import OperationKind, Stage
from tuneplan.estimation.roles import Place
from tuneplan.estimation.shadow import Tape
from tuneplan.estimation.sharding import seen_by_layers
from tuneplan.estimation.step_time import compute_time
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import (
    Checkpointing,
    DType,
    Kernels,
    Method,
    Quantization,
    QuantizationType,
)
from tuneplan.spec.weights import Weight, WeightKind

BF16, FP32 = DType.BFLOAT16, DType.FLOAT32
LORA = recipe(adapter=adapter(lora_dropout=0.1))
FULL = recipe(method=Method.FULL)
GRANITE = MODELS.resolve("PowerLM-3b").architecture


def module_ms(run, *, rows, features, chip, dtype=BF16, settings=LORA, grad_dtype=None):
    """Milliseconds of one module forward and backward, alone on a chip."""
    tape = Tape(Meter(), grad=True)
    walk = Walk(tape, settings, float(rows), 1.0, float(rows), Place.LAYER)
    out = run(walk, tape.leaf(float(rows * features), dtype, "input"))
    curves = load_curves(chip)
    forward = sum(operation_time_s(one, curves) for one in tape.operations)
    tape.operations = []
    tape.run_backward(out, tape.tensor(out.elements, grad_dtype or out.dtype, "gradient"))
    backward = sum(operation_time_s(one, curves) for one in tape.operations)
    return forward * 1e3, backward * 1e3


# Liger-Kernel benchmark/data/all_benchmark_data.csv at ead96b6, provider "huggingface": medians.
@pytest.mark.parametrize(
    ("features", "forward_ms", "backward_ms"),
    [(16384, 0.9856, 2.5696), (32768, 1.9191, 5.0147)],
)
def test_hugging_face_rmsnorm_takes_what_liger_measured_on_an_a100(
    features, forward_ms, backward_ms
):
    # Their weight is fp32 and trained, so that the output is fp32 too; their backward also casts
    # the bf16 gradient that they hand in.
    settings = replace(FULL, trainable_dtype=FP32)
    weight = Weight(name="norm", kind=WeightKind.NORM, shape=(features,))
    forward, backward = module_ms(
        lambda walk, x: norm(walk, x, weight),
        rows=2048,
        features=features,
        chip=A100,
        settings=settings,
    )
    assert forward == pytest.approx(forward_ms, rel=0.12)
    assert backward == pytest.approx(backward_ms, rel=0.15)


@pytest.mark.parametrize(
    ("tokens", "forward_ms", "backward_ms"),
    [(4096, 0.9948, 1.1873), (8192, 1.9333, 2.3213), (16384, 3.8170, 4.5572)],
)
def test_hugging_face_rotary_takes_what_liger_measured_on_an_a100(tokens, forward_ms, backward_ms):
    # 32 query and 8 key heads of 256.
    forward, backward = module_ms(
        lambda walk, x: rotary(walk, x, "queries and keys"),
        rows=tokens,
        features=40 * 256,
        chip=A100,
    )
    assert forward == pytest.approx(forward_ms, rel=0.1)
    assert backward == pytest.approx(backward_ms, rel=0.1)


def test_layer_norm_takes_what_liger_measured_on_an_a100_and_an_h100():
    weight = Weight(name="norm", kind=WeightKind.NORM, shape=(16384,), bias=True)
    settings = replace(FULL, trainable_dtype=FP32, hidden_dtype=FP32)
    for chip, forward_ms, both_ms in ((A100, 0.5067, 1.6213), (H100, 0.3068, 0.9506)):
        forward, backward = module_ms(
            lambda walk, x: norm(walk, x, weight),
            rows=4096,
            features=16384,
            chip=chip,
            dtype=FP32,
            settings=settings,
        )
        assert forward == pytest.approx(forward_ms, rel=0.05)
        assert forward + backward == pytest.approx(both_ms, rel=0.06)


def head_of(model, settings, tokens):
    return profile_head(model, settings, sequences=1.0, length=float(tokens)).operations


def loss_bytes(operations, stage):
    return sum(
        one.bytes_moved
        for one in operations
        if one.kind is OperationKind.LOSS and one.stage is stage and one.name == "log-softmax"
    )


def test_a_row_of_logits_is_read_three_times_and_written_once():
    # Liger: PyTorch's loss over 16,384 x 131,072 fp32 logits takes 20.73 ms forward on an A100,
    # which is 16 bytes a logit at 0.81 of the bandwidth.
    logits = 1024 * MISTRAL_7B.vocab_size
    operations = head_of(MISTRAL_7B, FULL, 1024)  # upcast to fp32
    assert loss_bytes(operations, Stage.FORWARD) == pytest.approx(16 * logits)
    assert loss_bytes(operations, Stage.BACKWARD) == pytest.approx(20 * logits)


def layer_of(model, settings, tokens=1024):
    return profile_layer(
        model.groups[0].layer,
        settings,
        hidden_size=model.hidden_size,
        sequences=1.0,
        length=float(tokens),
    ).operations


def launches(operations, stage):
    return sum(one.launches for one in operations if one.stage is stage)


def test_a_llama_layer_launches_what_its_code_dispatches():
    """Counted with a dispatch mode over the real code (torch 2.13, transformers 5.24, full).

    Forward: 9 mul, 7 mm, 6 add, 4 casts, 2 each of cat, pow, mean, rsqrt and neg, SiLU, attention.
    Backward: 80, of which 9 add into existing gradients; ours counts three kernels of the
    attention backward and zeros beside each slice.
    """
    settings = replace(FULL, gradient_checkpointing=Checkpointing.NONE)
    operations = layer_of(MISTRAL_7B, settings)
    assert launches(operations, Stage.FORWARD) == 38
    assert launches(operations, Stage.BACKWARD) == pytest.approx(80 - 9, abs=5)


def bytes_of(operations, name):
    return sum(one.bytes_moved for one in operations if one.name == name)


def test_granite_scales_two_block_outputs_of_a_layer_and_its_logits():
    tokens = 1024
    size = 2 * tokens * GRANITE.hidden_size
    # Forward, recomputation and backward: each of the two read and written.
    assert bytes_of(layer_of(GRANITE, FULL), "scale") == 3 * 2 * 2 * size
    assert bytes_of(layer_of(MISTRAL_7B, FULL), "scale") == 0
    logits = 2 * tokens * GRANITE.vocab_size
    assert bytes_of(head_of(GRANITE, FULL, tokens), "scale") == 2 * 2 * logits


def test_compiling_leaves_out_casts_and_fuses_norms_rotary_and_gate():
    eager = layer_of(MISTRAL_7B, seen_by_layers(FULL, Parallelism()))
    compiled_recipe = replace(FULL, kernels=Kernels(compiled=True))
    compiled = layer_of(MISTRAL_7B, seen_by_layers(compiled_recipe, Parallelism()))

    def moved(operations):
        return sum(one.bytes_moved for one in operations if one.kind is OperationKind.ELEMENTWISE)

    assert moved(compiled) < moved(eager) / 3
    assert launches(compiled, Stage.FORWARD) < launches(eager, Stage.FORWARD) / 2


def test_a_gptq_matrix_without_triton_is_unpacked_step_by_step_and_kept():
    one = Quantization(type=QuantizationType.GPTQ, block_size=128, dequantized_dtype=BF16)
    qlora = recipe(method=Method.GPTQ_LORA, adapter=adapter(), quantization=one, autocast=True)
    steps = replace(qlora, quantization=replace(one, one_kernel=False))
    elements = sum(w.num_weight_elements for w in MISTRAL_7B.groups[0].layer.weights())
    elements -= 2 * MISTRAL_7B.hidden_size

    def expanded(settings):
        return [
            operation
            for operation in layer_of(MISTRAL_7B, settings)
            if operation.kind is OperationKind.DEQUANTIZE
        ]

    # A kernel runs in the forward, in the recomputation and in the backward: 2.5 B each time.
    assert sum(o.bytes_moved for o in expanded(qlora)) == pytest.approx(3 * 2.5 * elements)
    # Shift 4.5 B, cast 5 B, mask 2 B, and two broadcasts of three accesses priced at 2 B each:
    # 23.5 B. The steps run twice: autograd keeps their result for the backward.
    each = 4.5 + 5 + 2 + 2 * 3 * 2
    assert sum(o.bytes_moved for o in expanded(steps)) == pytest.approx(2 * each * elements)


def test_peft_casts_an_adapters_input_to_fp32_under_fsdp_although_its_weights_come_in_bf16():
    sharded = Parallelism(strategy=Strategy.FSDP, data=2)
    settings = replace(LORA, autocast=True, upcast_under_fsdp=True)
    seen = seen_by_layers(settings, sharded)
    assert seen.adapter is not None
    assert seen.adapter.dtype is BF16
    assert seen.adapter.fp32_input
    casts = [one for one in layer_of(MISTRAL_7B, seen) if one.name == "cast"]
    # Four adapted linears, each: to fp32 and back to bf16, in forward and in recomputation.
    width = 3 * 4096 + 4096
    forward = sum(one.bytes_moved for one in casts if one.stage is Stage.FORWARD)
    assert forward == 2 * 6 * 1024 * width


def test_offloaded_layer_inputs_cost_what_the_kernels_cannot_hide():
    settings = replace(FULL, gradient_checkpointing=Checkpointing.OFFLOAD)
    operations = layer_of(MISTRAL_7B, settings, tokens=8192)
    copies = [one for one in operations if one.kind is OperationKind.HOST_COPY]
    assert [one.bytes_moved for one in copies] == [2.0 * 8192 * 4096] * 2
    curves = load_curves(A100)
    hidden = compute_time(operations, (), settings, curves)
    assert "activation_offload" not in hidden.by_kind
    slow = replace(curves, host_bytes_per_s=1e9)
    # 67 MB each way at 1 GB/s: 134 ms, less the kernels of the layer.
    exposed = compute_time(operations, (), settings, slow).by_kind["activation_offload"]
    assert exposed == pytest.approx(0.134 - (hidden.total_s), rel=0.01)
