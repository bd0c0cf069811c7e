"""Which ranks talk to each other, and over which links.

Megatron numbers ranks tensor first, then context, data, pipeline (``tp-cp-ep-dp-pp``), so tensor
ranks are neighbours and pipeline stages far apart.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tuneplan.estimation.communication import HOP_S, Collective, collective_time_s
from tuneplan.frozen import dataclass
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.parallelism import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks at a fixed distance from each other."""

    ranks: int
    distance: int

    def per_domain(self, cluster: Cluster) -> int:
        """Of them, how many the fast link joins."""
        return max(1, min(self.ranks, fast_domain(cluster) // self.distance))


def tensor_group(parallelism: Parallelism) -> Group:
    """Tensor ranks: neighbours."""
    return Group(ranks=parallelism.tensor, distance=1)


def context_group(parallelism: Parallelism) -> Group:
    """Context ranks."""
    return Group(ranks=parallelism.context, distance=parallelism.tensor)


def expert_group(parallelism: Parallelism) -> Group:
    """Expert ranks, each a tensor group of its own."""
    return Group(ranks=parallelism.expert, distance=parallelism.tensor)


def data_group(parallelism: Parallelism) -> Group:
    """Ranks that reduce the same gradients: data and context ranks."""
    return Group(ranks=parallelism.data * parallelism.context, distance=parallelism.tensor)


# Links that join more cards than any node holds leave the node: racks of GB200 and GB300 (72).
_LARGEST_NODE: Final = 16


def fast_domain(cluster: Cluster) -> int:
    """Cards that the fast link joins; a rack of GB200 or GB300 is one domain of 72.

    Every other link ends at its node: two nodes of four V100 are two domains, although NVLink
    joins eight of them in other machines.
    """
    per_node = max(cluster.accelerators_per_node, 1)
    ends_at_node = cluster.accelerator.link_size <= _LARGEST_NODE
    if cluster.interconnect in ("pcie", "none") or ends_at_node:
        return per_node
    return max(per_node, min(cluster.accelerator.link_size, cluster.num_accelerators))


def cluster_of(group: Group, cluster: Cluster) -> Cluster:
    """The cluster as a group sees it: its ranks in a domain, its share of the network."""
    inside = group.per_domain(cluster)
    share = inside / max(cluster.accelerators_per_node, 1)
    return replace(
        cluster,
        num_nodes=math.ceil(group.ranks / inside),
        accelerators_per_node=inside,
        inter_node_bytes_per_s=cluster.inter_node_bytes_per_s * share,
    )


def group_time_s(
    kind: str, size_bytes: float, group: Group, cluster: Cluster, curves: ChipCurves
) -> float:
    """Isolated seconds of one collective of the full tensor's size over a group."""
    own = cluster_of(group, cluster)
    collective = Collective(
        name=kind, kind=kind, size_bytes=size_bytes, count=1.0, ranks=group.ranks,
        nodes=own.num_nodes,
    )  # fmt: skip
    return collective_time_s(collective, own, curves)


def all_to_all_time_s(
    size_bytes: float, group: Group, cluster: Cluster, curves: ChipCurves
) -> float:
    """Seconds in which every rank sends each of the others its part of ``size_bytes``.

    Inside a domain as an all-gather of that size, which moves as much over each link; between
    domains each rank's own share of the network.
    """
    if group.ranks <= 1 or size_bytes <= 0:
        return 0.0
    inside_ranks = group.per_domain(cluster)
    inside = 0.0
    if inside_ranks > 1:
        alone = Group(ranks=inside_ranks, distance=group.distance)
        inside = group_time_s("all_gather", size_bytes, alone, cluster, curves)
    outside = group.ranks - inside_ranks
    if not outside:
        return inside
    return max(inside, _network_s(size_bytes * outside / group.ranks, cluster)) + _hop_s(cluster)


def transfer_time_s(size_bytes: float, parallelism: Parallelism, cluster: Cluster) -> float:
    """Seconds of one transfer between neighbouring stages."""
    distance = parallelism.world_size // parallelism.pipeline
    if distance < fast_domain(cluster) and cluster.intra_node_bytes_per_s:
        return size_bytes / cluster.intra_node_bytes_per_s + _hop_s(cluster)
    return _network_s(size_bytes, cluster) + _hop_s(cluster)


def _network_s(size_bytes: float, cluster: Cluster) -> float:
    """Over one rank's share of its node's network."""
    if not cluster.inter_node_bytes_per_s:
        return math.inf
    return size_bytes * max(cluster.accelerators_per_node, 1) / cluster.inter_node_bytes_per_s


def _hop_s(cluster: Cluster) -> float:
    infiniband = (cluster.inter_node or "").startswith("infiniband")
    return HOP_S["infiniband" if infiniband else "other"]
