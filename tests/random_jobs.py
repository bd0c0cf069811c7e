"""Jobs nobody prepared, for the laws of whole answers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# Dense, grouped queries, tied embeddings, window and softcap, latent attention with experts,
# experts, state space: one of each kind that has formulas.
MODELS = (
    "Qwen/Qwen2.5-0.5B-Instruct",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "meta-llama/Meta-Llama-3-8B",
    "google/gemma-2-2b",
    "gpt2",
    "deepseek-ai/DeepSeek-V2-Lite",
    "mistralai/Mixtral-8x7B-v0.1",
)
CHIPS = (
    "NVIDIA A100 SXM 80GB",
    "NVIDIA H100 SXM",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA T4",
    "NVIDIA V100 SXM2 32GB",
    "NVIDIA L40S",
    "AMD Instinct MI300X",
    "Intel Gaudi 3",
)
_STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2")


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    """A data section of numbers."""
    mean = draw(st.sampled_from([40, 300, 900, 5000]))
    data: dict[str, Any] = {
        "num_samples": draw(st.sampled_from([1, 64, 1000, 50_000])),
        "mean_tokens": mean,
    }
    if draw(st.booleans()):
        data["quantiles"] = {"p50": 0.8 * mean, "p95": 3 * mean, "max": 8 * mean}
    return data


@st.composite
def trainings(draw: st.DrawFn, method: str) -> dict[str, Any]:
    """A training section; what is left out takes the framework's default."""
    training: dict[str, Any] = {
        "max_length": draw(st.sampled_from([1, 128, 1024, 4096])),
        "per_device_train_batch_size": draw(st.sampled_from([1, 2, 7, 32])),
    }
    choices: dict[str, list[Any]] = {
        "gradient_accumulation_steps": [1, 4],
        "gradient_checkpointing": [True, False],
        "packing": [True, False],
        "num_train_epochs": [0.5, 3],
        "optim": ["adamw_torch_fused", "adamw_8bit", "adafactor", "sgd"],
        "attn_implementation": ["eager", "sdpa"],
        "precision": ["bf16", "fp16", "fp32", "none"],
        "dtype": ["float32", "bfloat16", "float16"],
        "loss": ["full", "chunked", "fused"],
        "eval_strategy": ["no", "epoch"],
    }
    for key, values in choices.items():
        if draw(st.booleans()):
            training[key] = draw(st.sampled_from(values))
    if method == "freeze":
        training["trained_layers"] = draw(st.sampled_from([1, 4]))
    return training


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """One configuration: anything that ``estimate`` may be asked."""
    method = draw(st.sampled_from(["full", "freeze", "lora", "dora", "qlora"]))
    job: dict[str, Any] = {
        "model": draw(st.sampled_from(MODELS)),
        "method": method,
        "training": draw(trainings(method)),
        "hardware": {
            "accelerator": draw(st.sampled_from(CHIPS)),
            "accelerators_per_node": draw(st.sampled_from([1, 1, 2, 8])),
            "num_nodes": draw(st.sampled_from([1, 1, 1, 2])),
        },
    }
    hardware = job["hardware"]
    if hardware["accelerators_per_node"] * hardware["num_nodes"] > 1:
        job["parallelism"] = draw(st.sampled_from(_STRATEGIES))
    if method in ("lora", "dora", "qlora"):
        job["adapter"] = {"r": draw(st.sampled_from([1, 16, 256]))}
        targets = draw(st.sampled_from([None, None, "all-linear", ["lm_head"]]))
        if targets is not None:
            job["adapter"]["target_modules"] = targets
    if draw(st.booleans()):
        job["objective"] = draw(st.sampled_from(["sft", "pretrain", "dpo", "rm"]))
    if draw(st.integers(0, 3)):
        job["data"] = draw(datasets())
    return job
