"""What the figures of a log are called by those who write it, and in which unit.

Names are compared in lower case, with ``train/``, ``eval/`` and the like in front taken off.
Sources:

- transformers 5 ``trainer.py``, ``trainer_utils.speed_metrics``: ``train_runtime`` in seconds,
  ``train_samples_per_second``, ``train_steps_per_second``, ``num_input_tokens_seen``.
- LLaMA-Factory ``train/callbacks.py``: ``lr``, ``throughput`` in tokens a second of the whole job,
  ``vram_allocated`` in GiB.
- torchtune recipes: ``tokens_per_second_per_gpu`` of the tokens whose loss counts,
  ``peak_memory_alloc`` in GiB.
- Axolotl ``utils/callbacks``, ``core/trainers``: ``memory/max_mem_allocated(gib)``,
  ``memory/max_memory_allocated``; ``tokens/train_per_sec_per_gpu`` of the tokens whose loss counts.
- TRL: ``num_tokens``, padding not counted.
- Megatron-LM and DeepSpeed write lines with words of their own, see ``lines.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tuneplan.spec.run_log import Metric
from tuneplan.units import GIB, MIB

_FRONT: Final = ("train/", "train_", "global/", "torchtune/", "perf/", "performance/", "stats/")
_EVALUATION: Final = ("eval/", "eval_", "validation/", "val/", "val_", "valid/", "test/", "test_")

_METRICS: Final[Mapping[str, tuple[Metric, float]]] = {
    "loss": (Metric.LOSS, 1),
    "lm loss": (Metric.LOSS, 1),
    "training_loss": (Metric.LOSS, 1),
    "grad_norm": (Metric.GRAD_NORM, 1),
    "grad-norm": (Metric.GRAD_NORM, 1),
    "grad norm": (Metric.GRAD_NORM, 1),
    "gradient_norm": (Metric.GRAD_NORM, 1),
    "learning_rate": (Metric.LEARNING_RATE, 1),
    "learning rate": (Metric.LEARNING_RATE, 1),
    "learning-rate": (Metric.LEARNING_RATE, 1),
    "lr": (Metric.LEARNING_RATE, 1),
    "epoch": (Metric.EPOCH, 1),
    "num_input_tokens_seen": (Metric.TOKENS_SEEN, 1),
    "num_tokens": (Metric.REAL_TOKENS_SEEN, 1),
    "total_tokens": (Metric.TOKENS_SEEN, 1),
    "tokens_seen": (Metric.TOKENS_SEEN, 1),
    "consumed samples": (Metric.SAMPLES_SEEN, 1),
    "consumed_samples": (Metric.SAMPLES_SEEN, 1),
    "throughput": (Metric.TOKENS_PER_S, 1),
    "tokens_per_second": (Metric.TOKENS_PER_S, 1),
    "tokens_per_second_per_gpu": (Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR, 1),
    "tokens/train_per_sec_per_gpu": (Metric.TRAINED_TOKENS_PER_S_PER_ACCELERATOR, 1),
    "tokens_per_second_per_device": (Metric.TOKENS_PER_S_PER_ACCELERATOR, 1),
    "tokens/s/gpu": (Metric.TOKENS_PER_S_PER_ACCELERATOR, 1),
    "throughput (token/sec/gpu)": (Metric.TOKENS_PER_S_PER_ACCELERATOR, 1),
    "tokens per gpu per second (tgs)": (Metric.TOKENS_PER_S_PER_ACCELERATOR, 1),
    "samples_per_second": (Metric.SAMPLES_PER_S, 1),
    "samples per second": (Metric.SAMPLES_PER_S, 1),
    "samples/sec": (Metric.SAMPLES_PER_S, 1),
    "currsamplespersec": (Metric.SAMPLES_PER_S, 1),
    "steps_per_second": (Metric.STEPS_PER_S, 1),
    "runtime": (Metric.TRAIN_S, 1),
    "train/train_runtime": (Metric.TRAIN_S, 1),
    "train/train_samples_per_second": (Metric.SAMPLES_PER_S, 1),
    "train/train_steps_per_second": (Metric.STEPS_PER_S, 1),
    "step_time": (Metric.STEP_S, 1),
    "iteration-time": (Metric.STEP_S, 1),
    "iteration_time": (Metric.STEP_S, 1),
    "train_step_timing in s": (Metric.STEP_S, 1),
    "elapsed time per iteration (ms)": (Metric.STEP_S, 1e-3),
    "throughput per gpu (tflop/s/gpu)": (Metric.FLOP_PER_S_PER_ACCELERATOR, 1e12),
    "flop throughput (tflop/sec/gpu)": (Metric.FLOP_PER_S_PER_ACCELERATOR, 1e12),
    "tflops": (Metric.FLOP_PER_S_PER_ACCELERATOR, 1e12),
    "global batch size": (Metric.GLOBAL_BATCH_SIZE, 1),
    "global_batch_size": (Metric.GLOBAL_BATCH_SIZE, 1),
    "peak_memory_alloc": (Metric.PEAK_ALLOCATED_BYTES, GIB),
    "peak_memory_reserved": (Metric.PEAK_RESERVED_BYTES, GIB),
    "vram_allocated": (Metric.PEAK_ALLOCATED_BYTES, GIB),
    "vram_reserved": (Metric.PEAK_RESERVED_BYTES, GIB),
    "memory/max_mem_allocated(gib)": (Metric.PEAK_ALLOCATED_BYTES, GIB),
    "memory/device_mem_reserved(gib)": (Metric.PEAK_RESERVED_BYTES, GIB),
    "memory/max_allocated (gib)": (Metric.PEAK_ALLOCATED_BYTES, GIB),
    "memory/device_reserved (gib)": (Metric.PEAK_RESERVED_BYTES, GIB),
    "memory/max_memory_allocated": (Metric.PEAK_ALLOCATED_BYTES, GIB),
    "memory/device_memory_reserved": (Metric.PEAK_RESERVED_BYTES, GIB),
    "memory(gib)": (Metric.PEAK_RESERVED_BYTES, GIB),
    "maxmemallocated": (Metric.PEAK_ALLOCATED_BYTES, GIB),
    "memory.used [mib]": (Metric.DEVICE_BYTES, MIB),
    "utilization.gpu [%]": (Metric.UTILIZATION_FRACTION, 1e-2),
    "power.draw [w]": (Metric.POWER_W, 1),
    "power.draw.average [w]": (Metric.POWER_W, 1),
    "power.draw.instant [w]": (Metric.POWER_W, 1),
    "temperature.gpu": (Metric.TEMPERATURE_C, 1),
    "total_steps": (Metric.TOTAL_STEPS, 1),
    "max_steps": (Metric.TOTAL_STEPS, 1),
}
_OF_EVALUATION: Final[Mapping[str, Metric]] = {
    "loss": Metric.EVAL_LOSS,
    "lm loss": Metric.EVAL_LOSS,
    "runtime": Metric.EVAL_S,
}


def metric_of(name: str) -> tuple[Metric, float] | None:
    """Which metric a name stands for, and what one of its units is in ours; None for others."""
    written = " ".join(name.strip().casefold().split())
    if written in _METRICS:
        return _METRICS[written]
    for front in _EVALUATION:
        if written.startswith(front):
            metric = _OF_EVALUATION.get(written.removeprefix(front))
            return None if metric is None else (metric, 1)
    for front in _FRONT:
        if written.startswith(front) and written.removeprefix(front) in _METRICS:
            return _METRICS[written.removeprefix(front)]
    return None


def metrics_of(figures: Mapping[str, Any]) -> dict[Metric, float]:
    """The figures that we know, in our units; the others are left out."""
    return dict(_known(figures))


def trainer_metrics(figures: Mapping[str, Any]) -> dict[Metric, float]:
    """The same of an entry of transformers' Trainer, whose ``train_loss`` is a mean of the run."""
    return metrics_of({name: value for name, value in figures.items() if name != "train_loss"})


def _known(figures: Mapping[str, Any]) -> Iterator[tuple[Metric, float]]:
    for name, written in figures.items():
        known = metric_of(str(name))
        value = number_of(written)
        if known is not None and value is not None:
            metric, factor = known
            yield metric, value * factor


def number_of(written: Any) -> float | None:
    """A finite or infinite number, from a number or its text; None for all else.

    ``nan`` is a number here: a loss that is none any more is what a log can show.
    """
    if isinstance(written, bool) or written is None:
        return None
    if isinstance(written, int | float):
        return _float(written)
    if isinstance(written, str) and len(written) <= 64:
        text = written.strip().rstrip("%").removesuffix("MiB").removesuffix("W").strip()
        return _float(text)
    return None


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def whole_number(written: Any) -> int | None:
    """A count, from a number or its text; None where it is none."""
    value = number_of(written)
    if value is None or not math.isfinite(value) or value < 0 or value != int(value):
        return None
    return int(value)
