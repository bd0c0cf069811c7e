"""What autograd keeps and what stands beside it: transformers 5.24 and PEFT 0.21."""

from __future__ import annotations

from dataclasses import replace

import pytest

from settings import MISTRAL_7B, MODELS, adapter, recipe
from tuneplan.estimation.activations import activation
from tuneplan.estimation.head import profile_head
from tuneplan.estimation.layers import profile_layer
from tuneplan.estimation.meter import Meter
from tuneplan.estimation.modules import Walk
from tuneplan.estimation.norms import norm
from tuneplan.estimation.shadow import Tape
from tuneplan.estimation.walking import walk_model
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import Checkpointing, DType, Kernels, Method
from tuneplan.spec.weights import Weight, WeightKind

GEMMA_2 = MODELS.resolve("google/gemma-2-2b").architecture
GPT_2 = MODELS.resolve("openai-community/gpt2").architecture
MOONLIGHT = MODELS.resolve("moonshotai/Moonlight-16B-A3B").architecture
FULL = recipe(method=Method.FULL)
KEPT = recipe(adapter=adapter(), gradient_checkpointing=Checkpointing.NONE)


def kept_bytes(module, settings, *, elements=1000):
    """What the graph of one module keeps beside its input and its output."""
    meter = Meter()
    tape = Tape(meter, grad=True)
    walk = Walk(tape, settings, 1.0, 1.0, 1.0)
    x = tape.leaf(float(elements), DType.BFLOAT16, "input")
    out = module(walk, x)
    return (meter.current - x.size - out.size) / elements


def walked(model, settings):
    groups = walk_model(model, settings, Parallelism(), sequences=1.0, length=512.0).groups
    return [(group.count, profile.kept) for group, profile in groups]


@pytest.mark.parametrize(("fp32_scale", "kept"), [(False, 4 + 2), (True, 4 + 4)])
def test_a_trained_norm_keeps_its_input_in_fp32_and_what_its_weight_multiplies(fp32_scale, kept):
    weight = Weight(name="norm", shape=(1000,), kind=WeightKind.NORM, fp32_scale=fp32_scale)
    assert kept_bytes(lambda walk, x: norm(walk, x, weight), FULL) == kept


@pytest.mark.parametrize(("name", "kept"), [("silu", 0), ("tanh", 0), ("gelu_new", 3 * 2)])
def test_an_activation_keeps_its_input_or_its_output(name, kept):
    # GPT-2's GELU: half of the input, the tangent, one plus it; the power keeps the input itself
    assert kept_bytes(lambda walk, x: activation(walk, x, name), FULL) == kept


def test_autocast_runs_the_power_of_gpt2s_gelu_in_fp32():
    # half of the input 2; a copy of it, the tangent and one plus it 4 each
    autocast = replace(FULL, autocast=True)
    assert kept_bytes(lambda walk, x: activation(walk, x, "gelu_new"), autocast) == 2 + 3 * 4


def test_other_model_code_runs_gpt2s_gelu_as_one_kernel():
    litgpt = replace(FULL, kernels=Kernels(model_code="litgpt"))
    assert kept_bytes(lambda walk, x: activation(walk, x, "gelu_new"), litgpt) == 0


def test_the_tangent_of_soft_capped_logits_stays_beside_the_loss():
    """512 x 256,000 logits of 2 bytes: the tangent is kept, the loss reads the product."""
    plain = replace(GEMMA_2, logit_softcap=False)
    logits = 2 * 512 * GEMMA_2.vocab_size
    peaks = [
        profile_head(model, FULL, sequences=1.0, length=512.0).forward_peak
        for model in (GEMMA_2, plain)
    ]
    assert peaks[0] - peaks[1] == pytest.approx(logits)


def test_beside_a_frozen_embedding_the_first_layer_keeps_less():
    (one, first), (others, rest) = walked(MISTRAL_7B, KEPT)
    assert (one, others) == (1, 31)
    assert first < rest


@pytest.mark.parametrize(
    "changes",
    [
        {"adapter": adapter(modules_to_save=("embed_tokens",))},
        {"adapter": adapter(target_modules=("q_proj", "embed_tokens"))},
        {"gradient_checkpointing": Checkpointing.FULL},
    ],
    ids=["trained embeddings", "adapted embeddings", "checkpointing"],
)
def test_an_input_that_wants_a_gradient_makes_all_layers_equal(changes):
    assert [count for count, _ in walked(MISTRAL_7B, replace(KEPT, **changes))] == [32]


def test_layers_before_the_first_adapter_keep_nothing():
    """Moonlight's first layer is dense; adapters on shared experts alone begin in the second."""
    dense, *_ = MOONLIGHT.groups
    only_experts = adapter(target_modules=("shared_experts.gate_proj",), expert_targets=())
    reached = walked(MOONLIGHT, replace(KEPT, adapter=only_experts))
    assert dense.count == 1
    assert reached[0] == (1, 0.0)


def test_a_layer_whose_input_wants_no_gradient_has_none_to_give():
    layer = MISTRAL_7B.groups[0].layer
    sizes = {"hidden_size": MISTRAL_7B.hidden_size, "sequences": 1.0, "length": 512.0}
    inner = profile_layer(layer, KEPT, **sizes)
    first = profile_layer(layer, KEPT, input_wants_gradient=False, **sizes)
    assert first.backward_peak < inner.backward_peak
    assert first.gradients == inner.gradients
