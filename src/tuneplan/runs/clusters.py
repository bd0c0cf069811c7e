"""Machines that a source describes beside its tables: cards of a node, and the network."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.runs.rows import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What stands in one place.

    Attributes:
        inter_node: As the job file writes a network: of a node, one direction.
        interconnect: Inside a node, where it is not what the cards usually have.
        blocking_from_nodes: Jobs of so many nodes ran with ``CUDA_LAUNCH_BLOCKING=1``.
        source: Where it is described.
    """

    accelerators_per_node: int
    source: str
    inter_node: str | None = None
    interconnect: str | None = None
    blocking_from_nodes: int | None = None


# Jean Zay: four V100 a node; eight A100 a node; four Omni-Path links of 100 Gbit/s each. What NCCL
# made of them in 2021 was measured by the source itself: its all-reduce over 16 nodes of V100, all
# four links in use, runs at 44 to 57 Gbit/s ("an issue with nccl that doesn't fully utilize Intel
# OPA"), 50 on average, of which 63/64 are on the bus.
_MACHINES: Final = MappingProxyType(
    {
        ("bigscience-workshop/bigscience", "V100"): Machine(
            accelerators_per_node=4,
            inter_node="6.2 GB/s",
            source="experiments/bandwidth/README.md, 16 nodes V100 32GB; experiments/gpt2.md",
        ),
        ("bigscience-workshop/bigscience", "A100"): Machine(
            accelerators_per_node=8,
            inter_node="50 GB/s",
            blocking_from_nodes=20,
            source="train/tr11-176B-ml/README.md, hardware; chronicles-prequel.md, hanging",
        ),
        # "An older motherboard and slow PCI lanes": two cards share a desktop processor's sixteen.
        ("AnswerDotAI/fsdp_qlora", "RTX 3090"): Machine(
            accelerators_per_node=2,
            interconnect="pcie3x8",
            source="benchmarks_03_2024.md, case study: a dual 3090 basement rig",
        ),
    }
)


def machine_of(run: MeasuredRun) -> Machine | None:
    """The machine that the run's source describes; None where it describes none."""
    return _MACHINES.get((run.repository, run.accelerator))
