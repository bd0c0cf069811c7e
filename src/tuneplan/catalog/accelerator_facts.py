"""One chip as a list of facts, each with unit, source, date and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuneplan.catalog.accelerator_table import AcceleratorEntry
from tuneplan.frozen import dataclass

# The doubt in the table is noted by column; the fact it casts a doubt on is named here.
_DOUBT: Final = {
    "memory": ("memory_bytes", "capacity_bytes"),
    "memory_mib_smi": ("capacity_bytes",),
    "capacity_gib": ("capacity_bytes",),
    "memory_bandwidth_gb_s": ("memory_bandwidth_bytes_per_s",),
    "tf32_tflop_s": ("dense_flop_per_s.tf32",),
    "fp16_tflop_s": ("dense_flop_per_s.float16",),
    "bf16_tflop_s": ("dense_flop_per_s.bfloat16",),
    "bf16_measured_tflop_s": ("measured_flop_per_s.bfloat16",),
    "fp16_measured_tflop_s": ("measured_flop_per_s.float16",),
    "link_gb_s": ("link_bytes_per_s",),
    "bridge_gb_s": ("bridge_bytes_per_s",),
    "pcie_lanes": ("pcie_bytes_per_s",),
    "power_w": ("power_w",),
    "release_year": ("release_year",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One known value.

    Attributes:
        value: None where nothing is known.
        unit: ``B``, ``B/s``, ``FLOP/s``, ``W``; None for words, counts and truth values.
        confidence: ``sourced``, ``quoted`` (torch's own messages), ``stated`` (the user),
            ``rule``, ``assumed`` or ``uncertain``.
    """

    value: float | str | None
    unit: str | None
    source: str
    as_of: str
    confidence: str


def accelerator_facts(entry: AcceleratorEntry) -> Mapping[str, Fact]:
    """Every figure of a chip by field name; rates by dtype as ``dense_flop_per_s.bfloat16``."""
    chip = entry.accelerator
    doubtful = {name for column in chip.uncertain.split() for name in _DOUBT.get(column, ())}
    found: dict[str, Fact] = {}

    def add(
        name: str,
        value: float | str | None,
        unit: str | None = None,
        *,
        source: str = chip.source,
        confidence: str = "sourced",
    ) -> None:
        found[name] = Fact(
            value=value,
            unit=unit,
            source=source,
            as_of=chip.as_of,
            confidence="uncertain" if name in doubtful else confidence,
        )

    add("vendor", chip.vendor)
    add("architecture", chip.architecture)
    add("compute_capability", chip.compute_capability)
    add("memory_bytes", chip.memory_bytes, "B")
    add("capacity_bytes", chip.capacity_bytes, "B", **_capacity_basis(entry))
    add(
        "context_bytes",
        chip.context_bytes,
        "B",
        source="docs/reference/accelerators.md",
        confidence="sourced" if chip.name == "NVIDIA T4" else "assumed",
    )
    add("memory_bandwidth_bytes_per_s", chip.memory_bandwidth_bytes_per_s, "B/s")
    for dtype, rate in chip.dense_flop_per_s.items():
        add(f"dense_flop_per_s.{dtype}", rate, "FLOP/s")
    for dtype, rate in chip.measured_flop_per_s.items():
        add(f"measured_flop_per_s.{dtype}", rate, "FLOP/s", source=entry.measured_source)
    add("link", chip.link)
    add("link_bytes_per_s", chip.link_bytes_per_s or None, "B/s")
    add("link_size", chip.link_size)
    add("bridge_bytes_per_s", chip.bridge_bytes_per_s or None, "B/s")
    add("pcie_bytes_per_s", chip.pcie_bytes_per_s or None, "B/s")
    add("peer_access", chip.peer_access)
    add("accelerators_per_node", chip.accelerators_per_node, confidence="assumed")
    add("power_w", chip.power_w or None, "W")
    add("supports_bf16", chip.supports_bf16)
    add("supports_flash_attention_2", chip.supports_flash_attention_2)
    add("release_year", chip.release_year)
    add("remark", chip.remark or None)
    return found


def _capacity_basis(entry: AcceleratorEntry) -> dict[str, str]:
    if entry.capacity_basis == "quoted":
        return {
            "source": "total capacity in torch's out-of-memory messages in public logs",
            "confidence": "quoted",
        }
    if entry.capacity_basis == "stated":
        return {"source": entry.file, "confidence": "stated"}
    return {"source": "docs/reference/accelerators.md", "confidence": "rule"}
