"""Seconds of collectives per optimizer step of one rank.

Collectives cost their isolated time times ``exposed_share``: under FSDP in an NVLink node they
were paid about in full although they overlap with compute (NCCL and products slow each other
about as much as overlap saves), so the share is 1 there; see each constant for its source.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.estimation.sharded_units import Unit
from tuneplan.frozen import dataclass
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Term
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.kernels import ChipCurves, CollectiveCurve
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import DType, TrainingRecipe

# Share of a collective's isolated time that the step grows by. NVLink: 0.92-0.96 at four and
# 0.89-1.23 at two A100 under FSDP1 (pairs of published runs that differ only in cards). PCIe:
# 0.75-0.85 (FSDP against DDP on two RTX 3090).
EXPOSED_SHARE: Final = {"nvlink": 1.0, "pcie": 0.8}
# Added per collective and rank beyond the node: 5 us over RoCE (A100), 2.2 us over InfiniBand
# (H100), read off published multi-node FSDP runs.
HOP_S: Final = {"infiniband": 2.2e-6, "other": 5e-6}
# FSDP1 handles each wrapped unit in Python (pre-forward, pre-backward and post-backward hooks, two
# to three collectives): 0.6 ms a unit. PEFT's wrap policy makes every adapter matrix a unit.
_FSDP_UNIT_HOST_S: Final = 0.6e-3
# A reduction in fp32 casts the 16-bit gradient, divides it and writes it back: 14 B a parameter.
_CAST_BYTES_PER_PARAMETER: Final = 14.0
_DEEPSPEED: Final = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One kind of collective: ``count`` times ``size_bytes`` (full tensor) over ``ranks``."""

    name: str
    kind: str  # all_gather | reduce_scatter | all_reduce
    size_bytes: float
    count: float
    ranks: int
    nodes: int


def collectives(
    units: tuple[Unit, ...], recipe: TrainingRecipe, parallelism: Parallelism, cluster: Cluster
) -> tuple[Collective, ...]:
    """Every collective of one optimizer step.

    DDP: gradients all-reduced once a step in buckets. ZeRO-1: reduced and updated parameters
    gathered once a step. ZeRO-2: reduced every micro-batch (DeepSpeed has no ``no_sync`` there).
    ZeRO-3, FSDP: every unit gathered in forward and in backward, once more where checkpointing
    stands outside the sharded unit, once alone where it stays gathered (SHARD_GRAD_OP), and its
    gradients scattered. HSDP: that within the shard
    group, then the scattered gradients all-reduced between the groups.
    """
    if parallelism.data <= 1 or parallelism.strategy in (Strategy.SINGLE, Strategy.DEVICE_MAP):
        return ()
    accumulation = recipe.gradient_accumulation_steps
    if parallelism.shards_parameters:
        return tuple(_sharded(units, recipe, parallelism, cluster))
    trained = sum(unit.count * unit.trained_parameters for unit in units)
    gradient_bytes = trained * _gradient_bytes(recipe, parallelism)
    ranks, nodes = parallelism.data, _nodes(parallelism.data, cluster)
    if parallelism.strategy is Strategy.DDP:
        bucket = float(parallelism.ddp_bucket_bytes)
        return (_bucketed("gradients", "all_reduce", gradient_bytes, bucket, 1, ranks, nodes),)
    bucket = float(parallelism.reduce_bucket_elements * _gradient_bytes(recipe, parallelism))
    times = accumulation if parallelism.strategy is Strategy.ZERO2 else 1
    updated = trained * float(recipe.compute_dtype.num_bytes)
    gather = float(parallelism.allgather_bucket_elements * recipe.compute_dtype.num_bytes)
    return (
        _bucketed("gradients", "reduce_scatter", gradient_bytes, bucket, times, ranks, nodes),
        _bucketed("updated parameters", "all_gather", updated, gather, 1, ranks, nodes),
    )


def _bucketed(
    name: str, kind: str, size: float, bucket: float, times: float, ranks: int, nodes: int
) -> Collective:
    count = max(1.0, np.ceil(size / bucket))
    return Collective(
        name=name,
        kind=kind,
        size_bytes=size / count,
        count=float(count * times),
        ranks=ranks,
        nodes=nodes,
    )


def _sharded(
    units: tuple[Unit, ...], recipe: TrainingRecipe, parallelism: Parallelism, cluster: Cluster
) -> Iterator[Collective]:
    accumulation = recipe.gradient_accumulation_steps
    no_sync = (
        recipe.gradients_unsharded_while_accumulating and parallelism.strategy not in _DEEPSPEED
    )
    scatters = 1 if no_sync else accumulation
    gathers = _gathers(parallelism)
    ranks = parallelism.shards
    nodes = _nodes(ranks, cluster)
    each = _gradient_bytes(recipe, parallelism)
    for unit in units:
        times = (1 if unit.is_root else gathers) * accumulation * unit.count
        name = "outer parameters" if unit.is_root else "layer parameters"
        yield Collective(
            name=name,
            kind="all_gather",
            size_bytes=unit.gathered_bytes,
            count=times,
            ranks=ranks,
            nodes=nodes,
        )
        if unit.trained_parameters:
            yield Collective(
                name="gradients",
                kind="reduce_scatter",
                size_bytes=unit.trained_parameters * each,
                count=scatters * unit.count,
                ranks=ranks,
                nodes=nodes,
            )
    replicas = parallelism.data // ranks
    if replicas > 1:
        trained = sum(unit.count * unit.trained_parameters for unit in units)
        yield Collective(
            name="gradients between groups",
            kind="all_reduce",
            size_bytes=trained * each / ranks,
            count=scatters,
            ranks=replicas,
            nodes=min(cluster.num_nodes, replicas),
        )


def _gathers(parallelism: Parallelism) -> int:
    """How often a micro-batch gathers a layer."""
    if parallelism.keeps_gathered:
        return 1
    return 3 if parallelism.activation_gather else 2


def _gradient_bytes(recipe: TrainingRecipe, parallelism: Parallelism) -> float:
    """Bytes a gradient element travels with.

    DDP reduces in the gradient's own dtype. FSDP with mixed precision and DeepSpeed reduce in the
    compute dtype unless the recipe says otherwise (llm-foundry reduces in fp32).
    """
    if recipe.gradient_dtype is not None:
        return float(recipe.gradient_dtype.num_bytes)
    if parallelism.strategy is Strategy.DDP:
        adapter = recipe.adapter
        return float((adapter.dtype if adapter else recipe.trainable_dtype).num_bytes)
    return float(recipe.compute_dtype.num_bytes)


def _nodes(ranks: int, cluster: Cluster) -> int:
    per_node = max(cluster.accelerators_per_node, 1)
    return max(1, min(cluster.num_nodes, -(-ranks // per_node)))


def collective_time_s(collective: Collective, cluster: Cluster, curves: ChipCurves) -> float:
    """Isolated seconds of one run of a collective.

    Inside a node: the measured curve at this size and number of ranks, its bandwidth part scaled
    by the link's rate. Cards without peer access copy through host memory: what leaves one card and
    what enters another cross different lanes, each in a direction of its own, so that their rate is
    that of the lanes (NCCL's shared-memory transport). Between nodes: the slower of that ring and
    the node's own network card, plus a latency per rank beyond the node.
    """
    if collective.ranks <= 1 or collective.size_bytes <= 0:
        return 0.0
    link = _link(cluster)
    local_ranks = -(-collective.ranks // collective.nodes)
    inside = 0.0
    if local_ranks > 1:
        inside = _inside_node_s(curves.collectives[link], collective, local_ranks, cluster)
    if collective.nodes <= 1:
        return inside
    n = collective.ranks
    sent = collective.size_bytes * (n - 1) / n * (2 if collective.kind == "all_reduce" else 1)
    between = sent / cluster.inter_node_bytes_per_s if cluster.inter_node_bytes_per_s else np.inf
    is_infiniband = (cluster.inter_node or "").startswith("infiniband")
    hop = HOP_S["infiniband" if is_infiniband else "other"]
    return float(max(inside, between) + hop * max(n - local_ranks, 0))


def _link(cluster: Cluster) -> str:
    return "pcie" if cluster.interconnect in ("pcie", "none") else "nvlink"


def _inside_node_s(
    curve: CollectiveCurve, collective: Collective, ranks: int, cluster: Cluster
) -> float:
    seconds, latency = _measured_s(curve, collective.kind, collective.size_bytes, ranks)
    link = cluster.intra_node_bytes_per_s or curve.link_bytes_per_s
    slower = curve.link_bytes_per_s / link
    return latency + max(seconds - latency, 0.0) * slower


@lru_cache(maxsize=4096)
def _measured_s(
    curve: CollectiveCurve, kind: str, size_bytes: float, ranks: int
) -> tuple[float, float]:
    """Seconds on the measured link, and those of its smallest size."""
    measured = curve.time_s[kind]
    rows = [_at_size(curve, row, size_bytes) for row in measured]
    seconds = float(np.interp(np.log(ranks), np.log(curve.ranks), rows))
    return seconds, float(np.interp(np.log(ranks), np.log(curve.ranks), measured[:, 0]))


def _at_size(curve: CollectiveCurve, row: NDArray[np.float64], size_bytes: float) -> float:
    """Seconds at a size: log-log interpolation, proportional beyond the largest measured."""
    at = float(np.log(max(size_bytes, 1.0)))
    beyond = float(np.exp(max(at - curve.log_bytes[-1], 0.0)))
    return float(np.exp(np.interp(at, curve.log_bytes, np.log(row)))) * beyond


def communication_term(
    units: tuple[Unit, ...],
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
) -> Term:
    """What collectives add to one optimizer step, with one part a kind of collective."""
    share = EXPOSED_SHARE[_link(cluster)]
    parts: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for collective in collectives(units, recipe, parallelism, cluster):
        name = f"{collective.kind}: {collective.name}"
        seconds = share * collective.count * collective_time_s(collective, cluster, curves)
        parts[name] = parts.get(name, 0.0) + seconds
        sizes[name] = sizes.get(name, 0.0) + collective.count * collective.size_bytes
    parts |= _handling(units, recipe, parallelism, curves)
    return Term(
        kind="communication",
        value=sum(parts.values()),
        formula=sentence("exposed_share x sum(count x isolated time of the collective)"),
        inputs={
            "exposed_share": share,
            "ranks": parallelism.data,
            "bytes": sizes,
            "link": _link(cluster),
        },
        source=curves.collectives[_link(cluster)].source,
        basis=Basis.ANALYTIC if parts else Basis.MEASURED,
        parts=tuple(
            Term(kind=name, value=value, formula=sentence("count x time"))
            for name, value in sorted(parts.items(), key=lambda item: -item[1])
        ),
    )


def _handling(
    units: tuple[Unit, ...], recipe: TrainingRecipe, parallelism: Parallelism, curves: ChipCurves
) -> dict[str, float]:
    """Work around the collectives: gradient casts, and hooks of many small units."""
    if parallelism.data <= 1 or not parallelism.shards_parameters:
        return {}
    found = {}
    if recipe.gradient_dtype is DType.FLOAT32 and recipe.compute_dtype is not DType.FLOAT32:
        trained = sum(unit.count * unit.trained_parameters for unit in units)
        moved = _CAST_BYTES_PER_PARAMETER * trained
        found["casts of gradients"] = moved / curves.streaming_bytes_per_s
    if parallelism.strategy is Strategy.FSDP and not recipe.kernels.fused_adapter:
        matrices = sum(unit.count * unit.adapter_matrices for unit in units)
        if matrices:
            micro_batches = recipe.gradient_accumulation_steps
            found["handling of adapter units"] = matrices * _FSDP_UNIT_HOST_S * micro_batches
    return found
