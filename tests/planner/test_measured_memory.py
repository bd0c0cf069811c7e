"""Published peaks of allocated memory, met from the settings that were published with them.

Each row is one run with the settings of its source; nothing in the estimate was fitted to it.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import (
    StatedAdapter,
    StatedHardware,
    StatedJob,
    StatedParallelism,
    StatedQuantization,
    StatedRecipe,
    StatedTraining,
)
from tuneplan.units import GB, GIB

SOURCES = Sources(today=dt.date(2026, 11, 30))
# Lightning-AI/litgpt@26857050 tutorials/resource-tables.md and config_hub/finetune/README.md
RESOURCE_TABLE = {"version": "8641822", "bitsandbytes": "0.41.1", "padding": "longest"}
CONFIG_HUB = {"version": "5895df10", "padding": "longest"}
EARLIER_HUB = {"version": "134a0714", "padding": "longest"}
ALL = ("query", "key", "value", "projection", "mlp", "head")
# pytorch/torchtune@bd2a0fc7 README.md, the table of 2024-11-18 ("peak active" memory)
TORCHTUNE = {
    "version": "0.4.0",
    "length": 4096,
    "batch": 2,
    "packing": True,
    "optim": "adamw_torch",
    "attention": "sdpa",
}
# foundation-model-stack/fms-acceleration@876e2ed6 scripts/benchmarks/refs/a100_80gb.csv
FMS = {
    "version": "torch 2.4.1; transformers 4.48.1; peft 0.13.2; trl 0.13.0; accelerate 1.0.1",
    "length": 2048,
    "packing": True,
    "checkpointing": True,
    "attention": "flash_attention_2",
}
QKVO = {"targets": "q_proj k_proj v_proj o_proj c_attn", "r": 16}


def peak_bytes(framework: str, model: str, method: str, settings: dict[str, Any]) -> float:
    """The likely allocated peak of one card."""
    cards = settings.get("cards", 1)
    versions = {"bitsandbytes": settings["bitsandbytes"]} if "bitsandbytes" in settings else {}
    job = StatedJob(
        model=model,
        recipe=StatedRecipe(
            framework=framework,
            framework_version=settings["version"],
            software=versions,
            method=method,
            adapter=StatedAdapter(r=settings.get("r"), target_modules=settings.get("targets")),
            quantization=StatedQuantization(double_quant=settings.get("double_quant")),
            training=StatedTraining(
                dtype="bfloat16",
                max_length=settings["length"],
                packing=settings.get("packing", False),
                padding=settings.get("padding"),
                per_device_train_batch_size=settings["batch"],
                gradient_accumulation_steps=settings.get("accumulation", 1),
                optim=settings.get("optim"),
                loss=settings.get("loss"),
                gradient_checkpointing=settings.get("checkpointing"),
                attn_implementation=settings.get("attention"),
                torch_compile=settings.get("compile"),
            ),
            parallelism=StatedParallelism(strategy=settings.get("strategy")),
            facts=settings.get("facts", {}),
        ),
        hardware=StatedHardware(
            accelerator=("A100 80GB",), num_nodes=1, accelerators_per_node=(cards,)
        ),
    )
    return estimate_job(job, SOURCES).memory.ranges.peak_bytes.likely


@pytest.mark.parametrize(
    ("model", "method", "settings", "measured_gb", "within"),
    [
        # one card, the longest sample (1,304 tokens; 1,044 with phi's tokenizer) first
        ("Llama-2-7B", "lora", RESOURCE_TABLE | {"r": 8, "batch": 1, "length": 1304}, 21.30, 0.005),
        ("Llama-2-7B", "lora", RESOURCE_TABLE | {"r": 8, "batch": 2, "length": 1304}, 29.07, 0.005),
        (
            "Llama-2-7B",
            "qlora",
            RESOURCE_TABLE | {"r": 8, "batch": 1, "length": 1304, "double_quant": False},
            14.14,
            0.002,
        ),
        ("phi-1_5", "lora", RESOURCE_TABLE | {"r": 8, "batch": 4, "length": 1044}, 10.68, 0.012),
        # shuffled batches: logits and 4-bit inputs of the step before stand beside the new ones
        (
            "Llama-3.2-1B",
            "qlora",
            CONFIG_HUB | {"r": 32, "batch": 2, "length": 512, "accumulation": 4},
            5.53,
            0.012,  # the batch before is taken to be as long as the longest
        ),
        (
            "phi-2",
            "lora",
            CONFIG_HUB | {"r": 8, "batch": 4, "length": 512, "accumulation": 2, "targets": ALL},
            13.98,
            0.005,
        ),
        (
            "Phi-3-mini-4k-instruct",
            "lora",
            CONFIG_HUB | {"r": 8, "batch": 4, "length": 512, "accumulation": 2, "targets": ALL},
            19.75,
            0.005,
        ),
        (
            "gemma-7b",
            "lora",
            EARLIER_HUB | {"r": 16, "batch": 1, "length": 512, "accumulation": 6, "targets": ALL},
            25.30,
            0.005,
        ),
        # FSDP: flat parameters mix frozen weights and adapters, the root is reduced at the end
        (
            "Llama-2-7B",
            "lora",
            RESOURCE_TABLE
            | {"r": 8, "batch": 1, "length": 1304, "accumulation": 128, "cards": 2}
            | {"strategy": "fsdp"},
            22.18,
            0.01,
        ),
        (
            "gemma-2b",
            "full",
            EARLIER_HUB | {"batch": 1, "length": 512, "accumulation": 4, "cards": 4},
            17.43,
            0.005,
        ),
    ],
)
def test_litgpt_runs_are_met(model, method, settings, measured_gb, within):
    predicted = peak_bytes("litgpt", model, method, settings)
    assert predicted == pytest.approx(measured_gb * GB, rel=within)


@pytest.mark.parametrize(
    ("method", "settings", "measured_gib", "within"),
    [
        ("full", {"loss": "full", "checkpointing": False}, 60.0, 0.01),
        ("full", {"loss": "full", "checkpointing": False, "compile": True}, 51.0, 0.01),
        ("full", {"loss": "chunked", "checkpointing": False, "compile": True}, 42.9, 0.01),
        ("full", {"loss": "chunked", "checkpointing": True, "compile": True}, 24.9, 0.01),
        (
            "lora",
            {"loss": "chunked", "checkpointing": "offload", "compile": True}
            | {"r": 64, "targets": ("q_proj", "v_proj", "output_proj", "mlp")},
            8.5,
            0.04,
        ),
    ],
)
def test_torchtune_runs_of_llama_3_2_3b_are_met(method, settings, measured_gib, within):
    predicted = peak_bytes("torchtune", "Llama-3.2-3B", method, TORCHTUNE | settings)
    assert predicted == pytest.approx(measured_gib * GIB, rel=within)


@pytest.mark.parametrize(
    ("method", "settings", "measured_gib"),
    [
        # GPT-BigCode holds every layer's keys and values, a view of the whole projection, until
        # the loss exists: 24 layers x (2048 + 256) x 2 bytes a token
        ("full", {"batch": 8}, 14.15),
        ("full", {"batch": 8, "facts": {"kernels": "foak-fast-kernels"}}, 12.65),
        # under autocast LayerNorm returns fp32, and 4-bit linears return what they were given
        ("qlora", QKVO | {"batch": 8, "facts": {"kernels": "accelerated-peft-bnb"}}, 16.286),
        ("qlora", QKVO | {"batch": 8, "facts": {"kernels": "accelerated-peft-bnb-foak"}}, 13.285),
    ],
)
def test_fms_runs_of_santacoder_are_met(method, settings, measured_gib):
    facts = {"param_dtype": "bf16", "compute_dtype": "bf16", "fused_ce": "no"}
    facts |= settings.get("facts", {"kernels": "none"})
    if "foak" in facts["kernels"]:
        facts["fused_ce"] = "unsloth CE (foak)"
    predicted = peak_bytes(
        "fms-hf-tuning", "gpt_bigcode-santacoder", method, FMS | settings | {"facts": facts}
    )
    assert predicted == pytest.approx(measured_gib * GIB, rel=0.01)
