"""Memory against worked values and measured runs: the arithmetic stands beside each."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from settings import FP32_ADAMW, LLAMA_3_8B, MISTRAL_7B, MIXTRAL, PURE_BF16_ADAMW, adapter, recipe
from tuneplan.catalog.architectures.parts import with_fp32_scales
from tuneplan.estimation.breakdown import memory_terms, peak_phase
from tuneplan.estimation.memory import Phase, count_memory
from tuneplan.estimation.parameters import resolve_target_modules
from tuneplan.estimation.persistent import persistent
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import (
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    Quantization,
)
from tuneplan.units import GIB

ONE_CARD = Parallelism()


def peak_gib(model, settings, *, sequences, length, parallelism=ONE_CARD):
    count = count_memory(
        model, settings, parallelism, sequences=sequences, length=length, compute_capability=8.0
    )
    return float(count.peak_bytes) / GIB


@pytest.mark.parametrize(
    ("model", "worked_gib", "measured_gib"),
    [(MISTRAL_7B, 67.44, 67.46), (LLAMA_3_8B, 74.79, 74.80)],
    ids=["Mistral-7B", "Llama-3-8B"],
)
def test_pure_bf16_adamw_holds_ten_bytes_a_parameter_in_its_step(model, worked_gib, measured_gib):
    """2 weight + 2 gradient + 4 moments + 2 foreach temporary; activations do not appear."""
    settings = recipe(method=Method.FULL, optimizer=PURE_BF16_ADAMW)
    count = count_memory(
        model, settings, ONE_CARD, sequences=4, length=4096, compute_capability=8.0
    )
    assert peak_phase(count) is Phase.OPTIMIZER_STEP
    assert model.total_parameters * 10 / GIB == pytest.approx(worked_gib, abs=0.01)
    assert float(count.peak_bytes) / GIB == pytest.approx(measured_gib, rel=0.001)


def test_fp32_masters_double_the_step():
    settings = recipe(
        method=Method.FULL,
        optimizer=FP32_ADAMW,
        trainable_dtype=DType.FLOAT32,
        norm_dtype=DType.FLOAT32,
        autocast=True,
        hidden_dtype=DType.FLOAT32,
    )
    count = count_memory(MISTRAL_7B, settings, ONE_CARD, sequences=1, length=512)
    step = float(count.by_phase[Phase.OPTIMIZER_STEP])
    assert step == pytest.approx(20 * MISTRAL_7B.total_parameters, rel=0.001)


@pytest.mark.parametrize(
    ("name", "settings", "sequences", "length", "measured_gib"),
    [
        # foundation-model-stack/fms-acceleration benchmark rows, A100-80GB, torch 2.4.1
        (
            "fms-0033: LoRA, transformers 4.48, full logits",
            {
                "adapter": adapter(lora_dropout=0.1),
                "loss": Loss(path=LossPath.FULL, shifted_copy=True, holds_model_logits=True),
            },
            4,
            4094,
            24.871,
        ),
        (
            "fms-0262: LoRA, transformers 4.45, fused linear cross entropy, fused norm and rotary",
            {
                "adapter": adapter(lora_dropout=0.1),
                "autocast": True,
                "expand_key_value": True,
                "kernels": Kernels(fused_norm=True, fused_rope=True),
                "loss": Loss(path=LossPath.FUSED_LINEAR),
            },
            8,
            4096,
            30.169,
        ),
        (
            "fms-0077: QLoRA without k-bit preparation",
            {
                "adapter": adapter(lora_dropout=0.1),
                "method": Method.QLORA,
                "quantization": Quantization(double_quant=True),
                "autocast": True,
                "loss": Loss(path=LossPath.FULL, shifted_copy=True, holds_model_logits=True),
            },
            4,
            4096,
            15.249,
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_measured_single_gpu_runs_are_met_within_half_a_percent(
    name, settings, sequences, length, measured_gib
):
    predicted = peak_gib(MISTRAL_7B, recipe(**settings), sequences=sequences, length=length)
    assert predicted == pytest.approx(measured_gib, rel=0.005), name


def test_fully_sharded_lora_keeps_recomputed_outputs():
    """fms-0034: two cards, reentrant checkpointing around frozen FSDP1 units: 14.105 GiB."""
    settings = recipe(
        adapter=adapter(lora_dropout=0.1),
        loss=Loss(path=LossPath.FULL, shifted_copy=True, holds_model_logits=True),
    )
    sharded = Parallelism(strategy=Strategy.FSDP, data=2, activation_gather=True)
    predicted = peak_gib(MISTRAL_7B, settings, sequences=2, length=4095, parallelism=sharded)
    assert predicted == pytest.approx(14.105, rel=0.003)


def test_the_terms_add_up_to_the_peak_to_the_byte():
    settings = recipe(adapter=adapter())
    count = count_memory(MISTRAL_7B, settings, ONE_CARD, sequences=2, length=2048, record=True)
    terms = memory_terms(count, MISTRAL_7B, settings, ONE_CARD, tokens=4096)
    assert math.fsum(term.value for term in terms) == pytest.approx(
        float(count.peak_bytes), abs=1.0
    )
    working = next(term for term in terms if term.kind.endswith("working_set"))
    assert math.fsum(part.value for part in working.parts) == pytest.approx(working.value, abs=1.0)


def test_fused_loss_removes_the_logits():
    """128,256 x 4,096 logits in fp32 are 1.96 GiB, and full loss holds several of them."""
    full = recipe(adapter=adapter(), loss=Loss(path=LossPath.FULL))
    fused = recipe(adapter=adapter(), loss=Loss(path=LossPath.FUSED_LINEAR))
    saved = peak_gib(LLAMA_3_8B, full, sequences=1, length=4096) - peak_gib(
        LLAMA_3_8B, fused, sequences=1, length=4096
    )
    assert saved > 2 * 128_256 * 4096 * 4 / GIB


def test_without_checkpointing_every_layer_keeps_its_tensors():
    kept = recipe(adapter=adapter(), gradient_checkpointing=Checkpointing.NONE)
    made_again = recipe(adapter=adapter())
    assert (
        peak_gib(MISTRAL_7B, kept, sequences=1, length=2048)
        > 2 * peak_gib(MISTRAL_7B, made_again, sequences=1, length=2048)
        - MISTRAL_7B.total_parameters * 2 / GIB
    )


def test_adapters_on_stacked_experts_need_the_experts_gradient():
    """One layer of Mixtral: 8 x 3 x 4096 x 14336 = 1.409e9 weights, each 2 bytes as B A + W.

    The backward has both merged weights and the gradient of the down projection, a third more.
    """
    attention = recipe(adapter=adapter(r=8))
    everything = resolve_target_modules(MIXTRAL, "all-linear")
    experts = recipe(adapter=adapter(r=8, target_modules=everything))
    more = peak_gib(MIXTRAL, experts, sequences=1, length=512) - peak_gib(
        MIXTRAL, attention, sequences=1, length=512
    )
    states = 16 * (persistent(MIXTRAL, experts).num_trained) / GIB
    merged = 2 * 8 * 3 * 4096 * 14336 / GIB
    assert merged < more - states < 1.5 * merged


def test_peft_before_0_21_makes_the_whole_update_of_the_experts_first():
    """In fp32 without autocast gate and up have 8 x 2 x 4096 x 14336 x 4 bytes, twice while scaled.

    Against that stand, with one kernel, both merged weights and the down projection's gradient:
    8 x (3 + 1) x 4096 x 14336 x 2 bytes, half as much.
    """
    everything = resolve_target_modules(MIXTRAL, "all-linear")
    folded = recipe(adapter=adapter(r=8, target_modules=everything))
    whole = recipe(adapter=adapter(r=8, target_modules=everything, folds_update=False))
    update = 4 * 8 * 2 * 4096 * 14336 / GIB
    more = peak_gib(MIXTRAL, whole, sequences=1, length=512) - peak_gib(
        MIXTRAL, folded, sequences=1, length=512
    )
    assert more == pytest.approx(update, rel=0.05)


def test_the_outputs_copy_in_float32_stands_beside_what_the_loss_kept():
    """4 x 4,096 x 128,256 bytes = 1.96 GiB, at most; under autocast the loss itself needs more."""
    plain = recipe(
        adapter=adapter(), loss=Loss(path=LossPath.FUSED_CROSS_ENTROPY, upcast_logits=False)
    )
    copied = replace(plain, loss=replace(plain.loss, output_fp32_copies=1))
    more = peak_gib(LLAMA_3_8B, copied, sequences=1, length=4096) - peak_gib(
        LLAMA_3_8B, plain, sequences=1, length=4096
    )
    assert 0 < more <= 4 * 4096 * 128_256 / GIB


def test_accumulated_gradients_are_whole_until_the_last_micro_batch():
    """Mistral-7B on 2 cards: 2 bytes a parameter whole, one in the step."""
    settings = recipe(
        method=Method.FULL,
        optimizer=PURE_BF16_ADAMW,
        gradient_accumulation_steps=4,
        gradients_unsharded_while_accumulating=True,
    )
    layout = Parallelism(strategy=Strategy.FSDP, data=2)
    count = count_memory(MISTRAL_7B, settings, layout, sequences=1, length=512)
    whole = 2 * MISTRAL_7B.total_parameters
    assert float(count.at_phase[Phase.FORWARD]["gradients"]) == whole
    assert float(count.at_phase[Phase.OPTIMIZER_STEP]["gradients"]) == whole / 2


def kept_bytes(model, settings, *, length=1024):
    count = count_memory(model, settings, ONE_CARD, sequences=1, length=length)
    return float(count.at_phase[Phase.LOSS]["kept_activations"])


def test_a_soft_cap_keeps_one_half_copy_of_the_logits_until_their_backward():
    """tanh keeps its result: 1024 tokens x vocabulary x 2 bytes more in the loss backward."""
    capped = replace(LLAMA_3_8B, logit_softcap=True)
    settings = recipe(method=Method.LORA, adapter=adapter())
    plain, more = (
        float(
            count_memory(model, settings, ONE_CARD, sequences=1, length=1024).by_phase[
                Phase.BACKWARD
            ]
        )
        for model in (LLAMA_3_8B, capped)
    )
    assert more - plain >= 1024 * LLAMA_3_8B.vocab_size * 2


def test_beside_a_frozen_embedding_the_first_norm_keeps_nothing_without_checkpointing():
    """Two layers instead of one add more than the first alone: its fp32 norm input is not kept."""
    settings = recipe(
        method=Method.LORA,
        adapter=adapter(),
        gradient_checkpointing=Checkpointing.NONE,
    )
    one, two, three = (kept_bytes(with_layers(LLAMA_3_8B, count), settings) for count in (1, 2, 3))
    assert two - one == three - two
    assert two - one - one == pytest.approx(1024 * LLAMA_3_8B.hidden_size * 4)


def test_a_norm_that_applies_its_weight_in_fp32_keeps_its_normalised_input_in_fp32():
    """Trained: 2 more bytes for each element of each of the two norms of a layer."""
    settings = recipe(
        method=Method.FULL,
        optimizer=PURE_BF16_ADAMW,
        gradient_checkpointing=Checkpointing.NONE,
    )
    model = with_layers(LLAMA_3_8B, 1)
    wide = with_fp32_scales(model)
    extra = kept_bytes(wide, settings) - kept_bytes(model, settings)
    assert extra == 2 * 2 * 1024 * model.hidden_size


def with_layers(model, count):
    (group,) = model.groups
    return replace(model, groups=(replace(group, count=count, positions=tuple(range(count))),))


def test_paged_states_are_split_like_others() -> None:
    full = recipe(
        method=Method.FULL,
        optimizer=replace(FP32_ADAMW, name="paged_adamw_32bit", paged=True),
    )
    alone, shared = (
        count_memory(
            LLAMA_3_8B, full, Parallelism(strategy=strategy, data=ranks), sequences=1, length=512
        ).host_bytes
        for strategy, ranks in ((Strategy.DDP, 8), (Strategy.FSDP, 8))
    )
    # Two fp32 moments of nearly all 8,030,261,248 parameters; the small tensors are not paged.
    assert alone == pytest.approx(8 * 8_030_261_248, rel=0.001)
    assert shared == pytest.approx(alone / 8)
