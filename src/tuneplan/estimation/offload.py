"""Seconds of what lives in host memory: traffic over PCIe and the optimizer on the processor."""

from __future__ import annotations

from typing import Final

from tuneplan.estimation.sharded_units import Unit
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Term
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import TrainingRecipe

# Pinned copies reach about four fifths of the PCIe datasheet rate.
_PCIE_EFFICIENCY: Final = 0.8
# DeepSpeed's CPU Adam streams 16 B in and 14 B out per parameter; a socket of eight DDR4-3200
# channels (205 GB/s) sustains about 130 GB/s. PyTorch's own CPU Adam is 5 to
# 7 times slower (DeepSpeed's documentation of ZeRO-Offload).
_CPU_ADAM_BYTES_PER_PARAMETER: Final = 30.0
_HOST_MEMORY_BYTES_PER_S: Final = 130e9
_TORCH_CPU_ADAM_SLOWDOWN: Final = 5.0

_DEEPSPEED: Final = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)


def offload_term(
    units: tuple[Unit, ...], recipe: TrainingRecipe, parallelism: Parallelism, cluster: Cluster
) -> Term | None:
    """Traffic over PCIe and the optimizer on the host, per step; None without offload.

    Gradients leave every micro-batch, updated parameters come back once a step; with parameters
    on the host each gather first reads this rank's shard over PCIe.
    """
    if parallelism.offload is Offload.NONE:
        return None
    shards = max(parallelism.shards, 1)
    accumulation = recipe.gradient_accumulation_steps
    trained = sum(unit.count * unit.trained_parameters for unit in units)
    element = float(recipe.compute_dtype.num_bytes)
    pcie = (cluster.accelerator.pcie_bytes_per_s or 16e9) * _PCIE_EFFICIENCY
    moved = trained * element / shards * (accumulation + 1)
    if parallelism.offload is Offload.PARAMS:
        gathers = 3 if parallelism.activation_gather else 2
        total = sum(unit.count * unit.gathered_bytes for unit in units)
        moved += total / shards * gathers * accumulation
    on_node = min(cluster.accelerators_per_node, shards)
    slowdown = 1.0 if parallelism.strategy in _DEEPSPEED else _TORCH_CPU_ADAM_SLOWDOWN
    adam = trained / shards * on_node * _CPU_ADAM_BYTES_PER_PARAMETER * slowdown
    parts = {
        "PCIe traffic": moved / pcie,
        "optimizer on the host": adam / _HOST_MEMORY_BYTES_PER_S,
    }
    return Term(
        kind="offload",
        value=sum(parts.values()),
        formula=sentence(
            "bytes / (0.8 x PCIe) + 30 B x trained parameters of the node / host bandwidth"
        ),
        inputs={"bytes": moved, "pcie_bytes_per_s": pcie, "trained_parameters": trained},
        source="ZeRO-Offload (Ren et al. 2021), sections 4 and 6",
        basis=Basis.ASSUMED,
        parts=tuple(
            Term(kind=k, value=v, formula=sentence("bytes / rate")) for k, v in parts.items()
        ),
    )
