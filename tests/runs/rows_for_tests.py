"""Rows written for the tests, and a few published ones with where they stand."""

from tuneplan.runs.reading import Record
from tuneplan.runs.rows import MeasuredRun, measured_run

# Lightning-AI/litgpt@26857050 tutorials/resource-tables.md: Llama 2 7B, bnb.nf4, 14.14 GB
LITGPT = {
    "id": "litgpt-rt-012",
    "framework": "litgpt",
    "framework_version": "lit-gpt 8641822; torch 2.1.0+cu121; bitsandbytes 0.41.1",
    "model": "meta-llama/Llama-2-7b-hf",
    "gpu": "A100-SXM4-40GB",
    "gpu_mem_gb": "40",
    "num_gpus": "1",
    "method": "qlora",
    "lora_rank": "8",
    "lora_targets": "query,value",
    "quantization": "bnb.nf4",
    "compute_dtype": "bf16",
    "param_dtype": "bf16",
    "optimizer": "bnb.PagedAdamW",
    "seq_len": "1304",
    "micro_batch_per_gpu": "1",
    "grad_accum": "128",
    "packing": "no",
    "activation_checkpointing": "none",
    "attention": "sdpa",
    "parallelism": "single",
    "peak_mem_gb": "14.14",
    "mem_kind": "allocated",
    "mem_unit": "GB",
    "oom": "no",
    "length_kind": "longest in batch; seq_len is the cap or the longest sample",
}
# AnswerDotAI/fsdp_qlora@05ed9f2a benchmarks_03_2024.md: "QLoRA | 2048 | 5.21 | 1,564", two 3090s
FSDP_QLORA = {
    "id": "fsdpq-002",
    "framework": "AnswerDotAI fsdp_qlora train.py",
    "framework_version": "Feb-Mar 2024",
    "model": "meta-llama/Llama-2-7b-hf",
    "gpu": "RTX 3090",
    "gpu_mem_gb": "24",
    "num_gpus": "2",
    "method": "qlora",
    "lora_rank": "64",
    "lora_targets": "k_proj,q_proj,v_proj,up_proj,down_proj,gate_proj",
    "quantization": "bnb-nf4",
    "double_quant": "no",
    "optimizer": "adamw",
    "seq_len": "2048",
    "micro_batch_per_gpu": "1",
    "grad_accum": "1",
    "global_batch": "2",
    "activation_checkpointing": "full",
    "attention": "sdpa",
    "parallelism": "fsdp full_shard",
    "peak_mem_gb": "5.21",
    "mem_kind": "reserved",
    "mem_unit": "GiB",
    "step_time_s": "3.05469",
    "length_kind": "fixed at seq_len",
}


def run_of(base: dict[str, str] | None = None, /, **cells: str) -> MeasuredRun:
    """A run from a published row with some cells changed."""
    return measured_run(Record(2, {**(base or LITGPT), **cells}))
