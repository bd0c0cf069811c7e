"""Worked values that people carry in their heads, met by whole estimates: arithmetic beside each.

Values of a rule of thumb alone stand in ``economics/test_thumb.py``, of storage and money beside
those, of the optimizer's step in ``estimation/test_memory.py``.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from settings import LLAMA_3_8B, adapter, recipe
from tuneplan.contract.reading import load_job
from tuneplan.errors import NotSupported
from tuneplan.estimation.memory import Phase, count_memory
from tuneplan.estimation.parameters import resolve_target_modules
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.parallelism import Parallelism
from tuneplan.units import GB, GIB, HOUR_S

SOURCES = Sources(today=date(2026, 11, 30))
LLAMA_7B = {"model": "meta-llama/Llama-2-7b-hf", "method": "full"}
PARAMETERS = 6_738_415_616  # of LLaMA-7B and Llama-2-7B
PURE_BF16 = {"dtype": "bfloat16", "precision": "none", "optim": "adamw_torch"}
A100, H100 = "NVIDIA A100 SXM 80GB", "NVIDIA H100 SXM"
# 10,000 samples of 1,024 tokens each.
TEN_MILLION_TOKENS = {
    "num_samples": 10_000,
    "mean_tokens": 1024,
    "quantiles": {"p1": 1024, "max": 1024},
}


def estimated(**job: Any) -> JobEstimate:
    return estimate_job(load_job(job), SOURCES)


def terms_gb(estimate: JobEstimate) -> dict[str, float]:
    return {term.kind: term.value / GB for term in estimate.memory.terms}


def test_llama_7b_in_pure_bf16_needs_62_8_gib_and_its_peak_is_the_optimizer_step():
    # (2 weight + 2 gradient + 4 moments + 2 foreach temporary) x 6,738,415,616 B = 62.76 GiB.
    training = {
        **PURE_BF16, "max_length": 2048, "per_device_train_batch_size": 1,
        "gradient_checkpointing": False,
    }  # fmt: skip
    found = estimated(**LLAMA_7B, training=training, framework="transformers==4.48.1").memory
    ten_bytes_each = 10 * PARAMETERS
    assert ten_bytes_each / GIB == pytest.approx(62.8, abs=0.05)
    assert found.ranges.peak_bytes.likely / GIB == pytest.approx(62.8, abs=0.05)
    assert found.phase is Phase.OPTIMIZER_STEP


def test_llama_7b_with_fp32_masters_needs_100_gib():
    # (4 weight + 4 gradient + 8 moments) x 6,738,415,616 B = 100.4 GiB; no card of 80 GB holds it.
    training = {
        "dtype": "float32", "precision": "bf16", "optim": "adamw_torch_fused", "max_length": 1024,
        "per_device_train_batch_size": 1, "gradient_checkpointing": True,
    }  # fmt: skip
    found = estimated(**LLAMA_7B, training=training, hardware={"accelerator": A100}).memory
    sixteen_bytes_each = 16 * PARAMETERS
    assert sixteen_bytes_each / GIB == pytest.approx(100, abs=0.5)
    assert found.ranges.peak_bytes.likely == pytest.approx(sixteen_bytes_each, rel=0.001)
    assert found.fit is not None
    assert found.fit.verdict == "does_not_fit"


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_llama_7b_learns_ten_million_tokens_three_times_in_two_to_three_hours(optim):
    # 8 x 6.74e9 x 3 x 10,000 x 1,024 tokens = 1.66e18 FLOP; at 55 to 60 % of 312 TFLOP/s 2.5 h.
    training = {
        **PURE_BF16, "optim": optim, "max_length": 1024, "per_device_train_batch_size": 8,
        "num_train_epochs": 3, "gradient_checkpointing": True, "packing": True,
        "attn_implementation": "flash_attention_2",
    }  # fmt: skip
    found = estimated(
        **LLAMA_7B, training=training, hardware={"accelerator": A100}, data=TEN_MILLION_TOKENS
    )
    assert found.memory.fit is not None
    assert found.memory.fit.verdict != "does_not_fit"
    assert found.time is not None
    assert found.time.run is not None
    assert 2 < found.time.run.train_s.likely / HOUR_S < 3


@pytest.mark.parametrize(
    ("method", "before", "after"), [("full", 6, 8), ("lora", 4, 6)], ids=["full", "LoRA"]
)
def test_checkpointing_repeats_the_forward_of_the_layers(method, before, after):
    """Full: 6P to 8P, at most 25 % slower; LoRA: 4P to 6P, at most 33 %."""
    training = {
        **PURE_BF16, "max_length": 1024, "per_device_train_batch_size": 4,
        "gradient_checkpointing": True, "use_reentrant": True, "packing": True,
    }  # fmt: skip
    job = {**LLAMA_7B, "method": method, "hardware": {"accelerator": A100}}
    time = estimated(**job, training=training).time
    assert time is not None
    assert time.hfu_fraction is not None
    assert time.mfu_fraction is not None
    # Reentrant: the layers are repeated whole. (The other variant stops before the last product,
    # which nothing saved.) The head, 2 % of the products, is not repeated.
    assert 0.97 * after / before < time.hfu_fraction / time.mfu_fraction <= after / before
    plain = {**training, "gradient_checkpointing": False}
    quick = estimated(**job, training=plain).time
    assert quick is not None
    slower = 1 - quick.step.step_s.likely / time.step.step_s.likely
    assert 0 < slower <= 1 - before / after


@pytest.mark.parametrize("method", ["full", "lora"])
def test_an_h100_is_1_85_to_2_58_times_an_a100_in_bf16(method):
    training = {
        **PURE_BF16, "max_length": 4096, "per_device_train_batch_size": 4,
        "gradient_checkpointing": True, "packing": True, "attn_implementation": "flash_attention_2",
    }  # fmt: skip
    rates = []
    for chip in (A100, H100):
        job = {**LLAMA_7B, "method": method, "hardware": {"accelerator": chip}}
        time = estimated(**job, training=training).time
        assert time is not None
        rates.append(time.tokens_per_s_per_accelerator.likely)
    assert 1.85 <= rates[1] / rates[0] <= 2.58


def test_lora_on_llama_3_8b_at_length_4096_needs_22_4_gib():
    # 8.03e9 x 2 B + 42 million adapters x (4 + 4 + 8) B; on top, at the loss, 4096 x 128,256
    # logits: 1 GB in bf16, and 2.1 GB each for the fp32 copy, its log-softmax and its gradient.
    everything = resolve_target_modules(LLAMA_3_8B, "all-linear")
    lora = recipe(adapter=adapter(r=16, target_modules=everything))
    found = count_memory(LLAMA_3_8B, lora, Parallelism(), sequences=1, length=4096)
    assert float(found.peak_bytes) / GIB == pytest.approx(22.4, abs=0.05)


def test_qlora_on_llama_2_70b_is_mostly_its_four_bit_base():
    # 68.45e9 weights in layers: 0.5 B each, and 0.5 x 8 / 64 B of scales doubly quantised.
    found = estimated(
        model="meta-llama/Llama-2-70b-hf",
        method="qlora",
        adapter={"r": 16, "target_modules": "all-linear"},
        training={
            "max_length": 2048, "per_device_train_batch_size": 1, "gradient_checkpointing": True,
        },
    )  # fmt: skip
    layers = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    assert terms_gb(found)["quantized_weights"] == pytest.approx(layers / 2 / GB, rel=1e-6)
    assert 41 < found.memory.ranges.peak_bytes.likely / GIB < 73


@pytest.mark.parametrize(
    ("method", "framework", "base_gb"),
    # 235.1e9 x 2 B; experts in NF4 with fp32 scales of 64: 0.5625 B; from transformers 5 they
    # are single parameters of three dimensions, which bitsandbytes leaves in bf16. (PEFT's own
    # k-bit preparation, which TRL 1 does not call, would make them fp32.)
    [
        ("lora", "trl==1.16.0", 470),
        ("qlora", "trl==0.20.0", 134),
        ("qlora", "trl==1.16.0", 460),
    ],
    ids=["bf16", "experts quantised", "experts left"],
)
def test_the_frozen_base_of_235_billion_parameters_lives_somewhere(method, framework, base_gb):
    found = estimated(
        model="Qwen/Qwen3-235B-A22B",
        method=method,
        framework=framework,
        adapter={"target_modules": ["q_proj", "v_proj"]},
        training={"max_length": 512, "dtype": "bfloat16"},
    )
    kinds = ("frozen_weights", "quantized_weights", "quantization_constants")
    base = sum(terms_gb(found).get(kind, 0.0) for kind in kinds)
    assert base == pytest.approx(base_gb, rel=0.02)


def test_a_stated_number_of_cards_shards_also_where_the_card_is_not_stated():
    # ZeRO-3 over 8: bf16 weights, gradients and fp32 states of 16 B/param are 16 x 6.74e9 / 8
    job = {**LLAMA_7B, "parallelism": "zero3", "training": {"max_length": 512}}
    alone = estimated(**job)
    eight = estimated(**job, hardware={"accelerators_per_node": 4, "num_nodes": 2})
    assert eight.fits_on
    assert eight.resolved.parallelism.world_size == 8
    on_h100 = estimated(
        **job, hardware={"accelerators_per_node": 4, "num_nodes": 2, "accelerator": H100}
    )
    peaks = [one.memory.ranges.peak_bytes.likely for one in (alone, eight, on_h100)]
    assert peaks[1] == pytest.approx(peaks[2], rel=0.02)  # the chip decides a workspace
    assert peaks[1] < peaks[0] / 2


@pytest.mark.parametrize(
    ("model", "method", "told"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "lora", True),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "lora", True),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq-lora", False),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "qlora", False),
        ("Qwen/Qwen2.5-7B-Instruct", "lora", False),
    ],
)
def test_a_base_that_is_stored_in_few_bits_by_its_name_is_not_counted_in_full_in_silence(
    model, method, told
):
    codes = {notice.message.code for notice in estimated(model=model, method=method).notices}
    assert ("stored_in_few_bits" in codes) is told


def test_stacked_experts_that_are_quantised_on_request_are_expanded_a_layer_at_a_time():
    # Mixtral: 8 experts x 3 x 4096 x 14336 = 1.409e9 a layer; in 4 bits 0.70 GB of them, and in
    # bf16 2.82 GB while a layer is at work
    job = {"model": "mistralai/Mixtral-8x7B-v0.1", "method": "qlora", "framework": "axolotl",
           "training": {"max_length": 512, "gradient_checkpointing": True,
                        "per_device_train_batch_size": 1}}  # fmt: skip
    whole = estimated(**job)
    few = estimated(**job, quantization={"bits": 4, "quantize_experts": True})
    experts = 32 * 8 * 3 * 4096 * 14336
    quantized = terms_gb(few)["quantized_weights"] - terms_gb(whole)["quantized_weights"]
    assert quantized == pytest.approx(experts / 2 / GB, rel=0.01)
    frozen = terms_gb(whole)["frozen_weights"] - terms_gb(few)["frozen_weights"]
    assert frozen == pytest.approx(experts * 2 / GB, rel=0.01)
    working = terms_gb(few)["layer_working_set"] - terms_gb(whole)["layer_working_set"]
    assert working == pytest.approx(experts / 32 * 2 / GB, rel=0.05)
    assert "expanded_experts" in {notice.message.code for notice in few.notices}


def test_stacked_experts_that_are_quantised_are_refused_where_weights_are_split():
    with pytest.raises(NotSupported) as caught:
        estimated(
            model="mistralai/Mixtral-8x7B-v0.1",
            method="qlora",
            quantization={"bits": 4, "quantize_experts": True},
            parallelism="fsdp2",
            hardware={"accelerators_per_node": 2},
        )
    assert caught.value.mistakes[0].path == "quantization.quantize_experts"
