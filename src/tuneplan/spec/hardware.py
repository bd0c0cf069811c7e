"""Chips, links, nodes, clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from tuneplan.frozen import dataclass
from tuneplan.spec.kernels import MeasuredKernels
from tuneplan.spec.recipe import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator as torch sees it.

    Attributes:
        name: Catalogue name, unique: model *and* memory.
        memory_bytes: Marketed.
        capacity_bytes: What torch reports as ``total_memory``.
        memory_bandwidth_bytes_per_s: Datasheet.
        dense_flop_per_s: By dtype name (``bfloat16``, ``float16``, ``float32``, ``tf32``,
            ``float8``): dense, never the sparse marketing figure.
        measured_flop_per_s: Best sustained large matrix product by dtype, where measured.
        context_bytes: What a process holds outside the allocator (CUDA context).
        link_bytes_per_s: One direction, per accelerator, inside a node.
        link: ``nvlink``, ``pcie``, ``xgmi``, ...
        peer_access: Whether cards on PCIe can read each other without the host.
        link_size: Cards that the fast link joins; traffic among more of them takes PCIe.
        bridge_bytes_per_s: One direction, of an optional bridge between two cards; 0 = none.
        accelerators_per_node: Cards in the usual server.
        power_w: Board power; 0 where unknown.
        uncertain: Names of the facts to doubt, separated by spaces.
        kernels: Of the user's own measurement; None takes the bundled tables.
    """

    name: str
    vendor: str
    architecture: str
    memory_bytes: int
    capacity_bytes: int
    memory_bandwidth_bytes_per_s: float
    dense_flop_per_s: Mapping[str, float]
    power_w: float
    supports_bf16: bool
    supports_flash_attention_2: bool
    compute_capability: float | None = None
    measured_flop_per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    context_bytes: int = 0
    link: str = "pcie"
    link_bytes_per_s: float = 0.0
    pcie_bytes_per_s: float = 0.0
    peer_access: bool = True
    link_size: int = 8
    bridge_bytes_per_s: float = 0.0
    accelerators_per_node: int = 8
    aliases: tuple[str, ...] = ()
    release_year: int | None = None
    source: str = ""
    as_of: str = ""
    uncertain: str = ""
    remark: str = ""
    kernels: MeasuredKernels | None = None

    def peak_flop_per_s(self, dtype: DType | str) -> float | None:
        """Dense datasheet rate for a dtype, None where the chip has none."""
        return self.dense_flop_per_s.get(str(dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The accelerators a job runs on.

    Attributes:
        interconnect: ``nvlink``, ``pcie`` or ``none`` inside a node.
        intra_node_bytes_per_s: One direction per accelerator.
        inter_node_bytes_per_s: One direction per *node*; 0 for one node.
        host_memory_bytes: Per node; None where unknown.
        disk_bytes_per_s, disk_bytes: Of the disk that holds checkpoints; None where unknown.
    """

    accelerator: Accelerator
    num_nodes: int = 1
    accelerators_per_node: int = 1
    interconnect: str = "none"
    intra_node_bytes_per_s: float = 0.0
    inter_node: str | None = None
    inter_node_bytes_per_s: float = 0.0
    host_memory_bytes: int | None = None
    disk_bytes_per_s: float | None = None
    disk_bytes: int | None = None

    @property
    def num_accelerators(self) -> int:
        """Cards in all."""
        return self.num_nodes * self.accelerators_per_node
