"""Traces of published runs with today's libraries, at the runs' own depth and size.

The T4 runs are those of fitcheck-llm 0.3.1 (PyPI, MIT), ``data/measurements``: one step of a
hand-written loop, fp16, checkpointing, LoRA r 32 on the attention's projections. They ran
transformers 5.17, PEFT 0.20 and torch 2.14. More runs, with the libraries that ran:
docs/internals/trace_accuracy.md, made by tools/trace_against_runs.py.
"""

from __future__ import annotations

from datetime import date

import pytest

from tuneplan.planner.sources import Sources
from tuneplan.planner.trace import JobTrace, trace_job
from tuneplan.spec.stated import (
    StatedAdapter,
    StatedData,
    StatedHardware,
    StatedJob,
    StatedQuantization,
    StatedRecipe,
    StatedTraining,
)

MIB = 2**20


def t4_run(*, method: str, attention: str, sequences: int, length: int) -> JobTrace:
    """SmolLM2-135M on a Tesla T4."""
    recipe = StatedRecipe(
        framework="custom",
        method=method,
        adapter=StatedAdapter(r=32, target_modules=("q_proj", "k_proj", "v_proj", "o_proj")),
        quantization=StatedQuantization(bits=4, type="nf4", double_quant=False)
        if method == "qlora"
        else StatedQuantization(),
        training=StatedTraining(
            dtype="float16",
            precision="none",
            max_length=length,
            packing=False,
            padding="max_length",
            per_device_train_batch_size=sequences,
            gradient_accumulation_steps=1,
            optim="adamw_torch",
            gradient_checkpointing=True,
            attn_implementation=attention,
            loss="full",
        ),
        facts={"length_kind": "fixed at seq_len"},
    )
    job = StatedJob(
        model="HuggingFaceTB/SmolLM2-135M",
        recipe=recipe,
        data=StatedData(mean_tokens=float(length)),
        hardware=StatedHardware(
            num_nodes=1, accelerators_per_node=(1,), accelerator=("Tesla T4 16GB",)
        ),
    )
    return trace_job(job, Sources(today=date(2026, 11, 30)))


@pytest.mark.parametrize(
    ("method", "attention", "sequences", "length", "measured_mib"),
    [
        ("lora", "eager", 2, 512, 1027.29443359375),
        ("lora", "sdpa", 1, 4096, 3148.10693359375),
        ("qlora", "sdpa", 1, 4096, 3576.75146484375),
    ],
)
def test_allocated_peak_of_a_t4_run(
    method: str, attention: str, sequences: int, length: int, measured_mib: float
) -> None:
    """``peak_backward_mib`` of SmolLM2-135M, within 0.1 %."""
    found = t4_run(method=method, attention=attention, sequences=sequences, length=length)
    ours = found.memory.usual.peak_allocated_bytes
    assert ours == pytest.approx(measured_mib * MIB, rel=0.001)


@pytest.mark.parametrize(
    ("attention", "sequences", "length", "measured_mib"),
    [("eager", 2, 512, 1104), ("eager", 1, 4096, 4476), ("sdpa", 1, 4096, 3284)],
)
def test_reserved_memory_of_a_t4_run(
    attention: str, sequences: int, length: int, measured_mib: int
) -> None:
    """``peak_reserved_mib``; with segments from the bottom up, the second would be 6.5 % low."""
    found = t4_run(method="lora", attention=attention, sequences=sequences, length=length)
    assert found.memory.usual.peak_reserved_bytes == pytest.approx(measured_mib * MIB, rel=0.002)


def test_a_t4_run_of_a_quantised_model_reserves_what_the_answer_s_range_holds() -> None:
    """3784 MiB were measured, and 3925 of the whole card: a context of 141."""
    found = t4_run(method="qlora", attention="sdpa", sequences=1, length=4096)
    reserved = found.memory.answer.ranges.peak_reserved_bytes
    device = found.memory.answer.ranges.peak_device_bytes
    assert reserved.low < 3784 * MIB < reserved.high
    assert device.low < 3925 * MIB < device.high
