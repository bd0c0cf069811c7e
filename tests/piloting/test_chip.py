"""A measured chip is an accelerator like any other."""

from datetime import date
from pathlib import Path

import pytest

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.own_kernels import gemm_curves
from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.estimation.kernel_time import gemm_time_s
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.measure_chip import chip_file
from tuneplan.planner.sources import sources_for
from tuneplan.spec.kernels import MeasuredKernels, MeasuredProducts

FOUND = {
    "device": "cpu",
    "name": "A chip (8 threads)",
    "torch": "2.13.0",
    "threads": 8,
    "memory_bytes": 64 * 2**30,
    "capacity_bytes": 64 * 2**30,
    "compute_capability": None,
    "context_bytes": 2**29,
    "flop_per_s": {"float32": 0.5e12, "bfloat16": 1.25e12},
    "bytes_per_s": 40e9,
    "products": {
        "float32": {
            "m": (128, 4096),
            "n": (128, 4096),
            "k": (128, 4096),
            # At 0.5 TFLOP/s, 10 us at least.
            "seconds": [
                max(10e-6, 2 * m * n * k / 0.5e12)
                for m in (128, 4096)
                for n in (128, 4096)
                for k in (128, 4096)
            ],
        }
    },
    "attention": {
        "dtype": "float32",
        "head_dims": (64, 128),
        "lengths": (128, 2048),
        "heads": (4, 16),
        "flop_per_s": [0.2e12] * 8,
    },
    "streaming_bytes_per_s": 20e9,
    "cast_bytes_per_s": 30e9,
    "strided_bytes_per_s": 5e9,
    "host_operation_s": 5e-6,
    "synchronous": True,
}


def test_what_was_measured_becomes_a_chip_that_jobs_can_name(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text(chip_file(FOUND, as_of="2026-12-01"))
    chip = load_accelerators([file]).resolve("A chip (8 threads)").accelerator
    assert chip.dense_flop_per_s == {"float32": 0.5e12, "bfloat16": 1.25e12}
    assert chip.memory_bandwidth_bytes_per_s == 40e9
    assert chip.supports_bf16
    assert chip.context_bytes == 2**29
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
    assert not [one for one in now.assumptions if one.name == "hardware.kernels"]


def test_a_product_takes_as_long_as_it_was_measured() -> None:
    """1,024 x 512 x 2,048 lies between the grid's points, where all take 2 m n k / 0.5e12 s."""
    measured = MeasuredKernels(
        products=(
            MeasuredProducts(
                dtype="float32",
                m=(512, 4096),
                n=(256, 1024),
                k=(1024, 4096),
                time_s=tuple(
                    2 * m * n * k / 0.5e12
                    for m in (512, 4096)
                    for n in (256, 1024)
                    for k in (1024, 4096)
                ),
            ),
        ),
        attention=None,
        streaming_bytes_per_s=1e9,
        cast_bytes_per_s=1e9,
        strided_bytes_per_s=1e9,
        host_operation_s=1e-6,
        synchronous=True,
        source="here",
    )
    curves = gemm_curves(measured, {"float32": 0.5e12, "bfloat16": 1e12})
    found = gemm_time_s(curves["float32"], 1024.0, 512.0, 2048.0)
    assert float(found) == pytest.approx(2 * 1024 * 512 * 2048 / 0.5e12)
    # bf16 was not timed: as much faster as its best rate is.
    half = gemm_time_s(curves["bfloat16"], 1024.0, 512.0, 2048.0)
    assert float(half) == pytest.approx(float(found) / 2)


def test_mistakes_in_measured_kernels_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    text = chip_file(FOUND, as_of="2026-12-01")
    text = text.replace("streaming: 20 GB/s", "streaming: fast")
    text = text.replace("synchronous: true", "synchronous: maybe")
    text = text.replace(
        "          m:\n            - 128\n", "          m:\n            - 129\n            - 130\n"
    )
    file.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        load_accelerators([file])
    codes = sorted(mistake.message.code for mistake in caught.value.mistakes)
    assert len(codes) == 3
    assert "grid_does_not_match" in codes
    assert all(mistake.line for mistake in caught.value.mistakes)


def test_collectives_are_the_link_and_the_disk_is_told_for_a_job_file(tmp_path: Path) -> None:
    measured = {
        **FOUND,
        "collective_bytes_per_s": 1.5e9,
        "collective_processes": 2,
        "disk_write_bytes_per_s": 0.9e9,
        "disk_read_bytes_per_s": None,
        "loader_tokens_per_s": 25e6,
    }
    file = tmp_path / "chip.yaml"
    file.write_text(chip_file(measured, as_of="2026-12-01"))
    text = file.read_text()
    assert "# Of this machine, for a job file: hardware: {disk: {bandwidth: 0.9 GB/s}}" in text
    assert "25,000,000 tokens" in text
    chip = load_accelerators([file]).resolve("A chip (8 threads)").accelerator
    assert chip.pcie_bytes_per_s == 1.5e9
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-0.5B",
            "method": "lora",
            "accelerators": [str(file)],
            "hardware": {"accelerator": "A chip (8 threads)", "accelerators_per_node": 2},
            "data": {"num_samples": 1000, "mean_tokens": 300},
        }
    )
    now = estimate_job(job, sources_for(job, today=date(2026, 12, 1)))
    assert now.time is not None
