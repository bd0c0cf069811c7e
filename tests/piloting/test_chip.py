"""A measured chip is an accelerator like any other."""

from datetime import date
from pathlib import Path

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.measure_chip import chip_file
from tuneplan.planner.sources import sources_for

FOUND = {
    "device": "cpu",
    "name": "A chip (8 threads)",
    "torch": "2.13.0",
    "threads": 8,
    "memory_bytes": 64 * 2**30,
    "capacity_bytes": 64 * 2**30,
    "compute_capability": None,
    "flop_per_s": {"float32": 0.5e12, "bfloat16": 1.25e12, "float16": None},
    "bytes_per_s": 40e9,
}


def test_what_was_measured_becomes_a_chip_that_jobs_can_name(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text(chip_file(FOUND, as_of="2026-12-01"))
    chip = load_accelerators([file]).resolve("A chip (8 threads)").accelerator
    assert chip.dense_flop_per_s == {"float32": 0.5e12, "bfloat16": 1.25e12}
    assert chip.memory_bandwidth_bytes_per_s == 40e9
    assert chip.supports_bf16
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-0.5B",
            "method": "lora",
            "accelerators": [str(file)],
            "hardware": {"accelerator": "A chip (8 threads)"},
            "data": {"num_samples": 1000, "mean_tokens": 300},
        }
    )
    now = estimate_job(job, sources_for(job, today=date(2026, 12, 1)))
    assert now.time is not None
    assert now.time.step.step_s.likely > 0
