"""A pilot as a row of measured runs, in the columns of docs/reference/runs.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.pilot_request import FSDP, ZERO
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.measurement import Measurement, Status
from tuneplan.spec.recipe import LossPath, Quantization
from tuneplan.units import GIB

_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_VERSIONS: Final = ("trl", "transformers", "torch", "peft", "bitsandbytes", "accelerate")
COLUMNS: Final = (
    *("id", "framework", "framework_version", "model", "gpu", "gpu_mem_gb", "num_gpus", "nodes"),
    *("method", "lora_rank", "lora_targets", "quantization", "double_quant", "kbit_prep"),
    *("param_dtype", "compute_dtype", "amp_dtype", "optimizer", "seq_len", "length_kind"),
    *("packing", "tokens_per_sample", "micro_batch_per_gpu", "grad_accum"),
    *("activation_checkpointing", "attention", "compile", "fused_ce", "parallelism"),
    *("peak_mem_gb", "mem_unit", "mem_kind", "tokens_per_s_per_gpu", "step_time_s", "oom"),
    # What is kept beside them.
    *("case", "case_digest", "status", "stage", "num_steps", "relative_error", "host_peak_gb"),
    *("power_w", "utilization_fraction", "temperature_c", "driver", "measurement_id"),
    *("measured_at", "image_sizes"),
)


def evidence_row(
    name: str,
    now: JobEstimate,
    measurement: Measurement,
    *,
    gpu_memory_bytes: int | None,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """One row; what is not known is blank.

    Args:
        name: The row's id.
        now: What was predicted of the job.
        measurement: What came of it.
        gpu_memory_bytes: Of one card.
        extra: Columns beside those of a measured run.
    """
    found = {
        "id": name,
        **_job(now.resolved),
        **_measured(measurement),
        "gpu_mem_gb": _gib(gpu_memory_bytes),
        **extra,
    }
    return {column: found.get(column, "") for column in COLUMNS}


def _job(resolved: Resolved) -> dict[str, str]:
    recipe, layout = resolved.recipe, resolved.parallelism
    adapter, dtype = recipe.adapter, recipe.frozen_dtype
    trained = adapter is None
    strategy = layout.strategy
    if strategy in ZERO:
        parallelism = f"zero={ZERO[strategy]}"
    elif strategy in FSDP:
        parallelism = f"fsdp full_shard dp={layout.data}"
    else:
        parallelism = strategy.value
    return {
        "framework": recipe.framework,
        "model": resolved.job.model,
        "num_gpus": str(resolved.cluster.num_accelerators if resolved.cluster else 1),
        "nodes": "1",
        "method": recipe.method.value,
        "lora_rank": "" if adapter is None else str(adapter.r),
        "lora_targets": "" if adapter is None else ",".join(adapter.target_modules),
        **_quantized(recipe.quantization, kbit=recipe.outer_dtype.value == "float32"),
        "param_dtype": _short(recipe.trainable_dtype.value if trained else dtype.value),
        "compute_dtype": _short(recipe.compute_dtype.value),
        "amp_dtype": _short(recipe.compute_dtype.value) if recipe.autocast else "none",
        "optimizer": recipe.optimizer.name,
        "seq_len": str(recipe.max_length),
        **_lengths(resolved),
        "micro_batch_per_gpu": str(max(round(resolved.batch.sequences), 1)),
        "grad_accum": str(recipe.gradient_accumulation_steps),
        "activation_checkpointing": recipe.gradient_checkpointing.value,
        "attention": _attention(recipe.attention.value),
        "compile": _yes(recipe.kernels.compiled),
        "fused_ce": _yes(recipe.loss.path is LossPath.FUSED_LINEAR),
        "parallelism": parallelism,
    }


def _quantized(quantization: Quantization | None, *, kbit: bool) -> dict[str, str]:
    if quantization is None:
        return {}
    return {
        "quantization": "bnb-8bit" if quantization.bits == 8 else f"bnb {quantization.type.value}",
        "double_quant": _yes(quantization.double_quant),
        "kbit_prep": _yes(kbit),
    }


def _lengths(resolved: Resolved) -> dict[str, str]:
    recipe, statistics = resolved.recipe, resolved.dataset.statistics
    fixed = resolved.job.recipe.training.padding == "max_length" or statistics is None
    if recipe.packing:
        kind = "packed to seq_len"
    else:
        kind = "fixed at seq_len" if fixed else "longest in batch"
    mean = "" if statistics is None else f"{statistics.mean_tokens:.1f}"
    return {"length_kind": kind, "packing": _yes(recipe.packing), "tokens_per_sample": mean}


def _measured(measurement: Measurement) -> dict[str, str]:
    peak, software = measurement.peak, measurement.environment.software
    ran = measurement.status is Status.OK
    memory = peak.allocated_bytes if ran else None
    return {
        "framework_version": "; ".join(
            f"{name} {software[name]}" for name in _VERSIONS if name in software
        ),
        "gpu": measurement.environment.accelerator or "",
        "peak_mem_gb": _gib(memory),
        "mem_unit": "GiB" if memory else "",
        "mem_kind": "allocated" if memory else "",
        "tokens_per_s_per_gpu": _number(measurement.tokens_per_s_per_accelerator, ran=ran),
        "step_time_s": _number(measurement.step_s, ran=ran),
        "oom": _yes(measurement.status is Status.OOM),
        "status": measurement.status.value,
        "stage": measurement.stage or "",
        "num_steps": str(measurement.num_steps or 0),
        "relative_error": _number(measurement.relative_error, ran=ran),
        "host_peak_gb": _gib(peak.host_bytes),
        "power_w": _number(measurement.power_w, ran=ran),
        "utilization_fraction": _number(measurement.utilization_fraction, ran=ran),
        "temperature_c": _number(measurement.temperature_c, ran=ran),
        "driver": measurement.environment.driver or "",
        "measured_at": measurement.measured_at or "",
    }


def _number(value: float | None, *, ran: bool) -> str:
    return "" if value is None or not ran else f"{value:.6g}"


def _gib(value: int | None) -> str:
    return "" if value is None else f"{value / GIB:.4f}"


def _short(dtype: str) -> str:
    return _SHORT.get(dtype, dtype)


def _yes(value: bool) -> str:  # noqa: FBT001 - a word for a truth
    return "yes" if value else "no"


def _attention(kernel: str) -> str:
    if kernel.startswith("flash"):
        return "flash"
    return "sdpa" if kernel.startswith("sdpa") else kernel
