"""Do cards, degrees of parallelism and batch sizes of a job agree?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuneplan.contract.job import JobFile
from tuneplan.contract.questions import get, mistake_at
from tuneplan.errors import Mistake
from tuneplan.language import message


def _degrees(job: JobFile) -> int | None:
    """Ranks that work on the same samples; None where a list leaves it open."""
    values = [get(job, f"parallelism.{name}") or 1 for name in ("tensor", "pipeline", "context")]
    return math.prod(values) if all(isinstance(value, int) for value in values) else None


def _devices(job: JobFile) -> int | None:
    nodes = get(job, "hardware.num_nodes") or 1
    per_node = get(job, "hardware.accelerators_per_node")
    return nodes * per_node if isinstance(nodes, int) and isinstance(per_node, int) else None


def world(job: JobFile) -> Iterator[Mistake]:
    """Whether degrees divide the cards, nodes are allowed, and the strategy can offload."""
    devices, degrees = _devices(job), _degrees(job)
    if devices and degrees and devices % degrees:
        yield mistake_at(
            "parallelism",
            message(
                "degrees_do_not_divide",
                "tensor x pipeline x context = {degrees} does not divide {devices} accelerators",
                degrees=degrees,
                devices=devices,
            ),
            message("change_degrees", "choose degrees whose product divides the accelerators"),
            job=job,
        )
    max_nodes, nodes = get(job, "limits.max_nodes"), get(job, "hardware.num_nodes")
    if max_nodes and isinstance(nodes, int) and nodes > max_nodes:
        yield mistake_at(
            "limits.max_nodes",
            message(
                "more_nodes_than_allowed",
                "hardware asks for {nodes} nodes, limits allow {limit}",
                nodes=nodes,
                limit=max_nodes,
            ),
            message("change_one", "change one of them"),
            job=job,
        )
    offload, strategy = get(job, "parallelism.offload"), get(job, "parallelism.strategy")
    if offload in ("optimizer", "params") and strategy in ("ddp", "single", "device_map"):
        yield mistake_at(
            "parallelism.offload",
            message("ddp_offload", "{strategy} does not offload", strategy=strategy),
            message("offload_strategy", "write strategy: zero2, zero3 or fsdp2"),
            job=job,
        )


_ENGINE_KEYS: Final = (
    *("reduce_bucket_elements", "allgather_bucket_elements", "overlap_communication"),
    *("max_live_parameters", "persistence_threshold"),
)


def engine_keys(job: JobFile) -> Iterator[Mistake]:
    """Keys of DeepSpeed's engine beside a strategy of another engine."""
    strategy = get(job, "parallelism.strategy")
    stated = [name for name in _ENGINE_KEYS if get(job, f"parallelism.{name}") is not None]
    if stated and isinstance(strategy, str) and not strategy.startswith(("zero", "auto")):
        yield mistake_at(
            f"parallelism.{stated[0]}",
            message(
                "deepspeed_key_elsewhere",
                "{key} belongs to DeepSpeed, the strategy is {strategy}",
                key=stated[0],
                strategy=strategy,
            ),
            message("zero_or_leave_out", "write strategy: zero1, zero2 or zero3, or leave it out"),
            job=job,
        )


def global_batch(job: JobFile) -> Iterator[Mistake]:
    """Whether the batch of all cards is what its factors give."""
    total = get(job, "training.global_batch_size")
    micro = get(job, "training.per_device_train_batch_size")
    steps = get(job, "training.gradient_accumulation_steps")
    devices, degrees = _devices(job), _degrees(job)
    replicas = devices // degrees if devices and degrees and devices % degrees == 0 else None
    known = [number for number in (micro, steps, replicas) if isinstance(number, int)]
    product = math.prod(known)
    if not total or not known:
        return
    complete = len(known) == 3
    if (complete and product != total) or total % product:
        yield mistake_at(
            "training.global_batch_size",
            message(
                "global_batch_does_not_match",
                "{total} is not {formula} = {product}"
                if complete
                else "{total} is no multiple of {formula} = {product}",
                total=total,
                formula=" x ".join(str(number) for number in known),
                product=product,
            ),
            message(
                "accumulation_auto",
                "write gradient_accumulation_steps: auto, and a multiple of what runs at once",
            ),
            job=job,
        )
