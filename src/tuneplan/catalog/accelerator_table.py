"""The bundled table of chips, row by row, and the rules that fill its blanks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuneplan.catalog.links import load_links
from tuneplan.catalog.tables import number, read_table
from tuneplan.frozen import dataclass
from tuneplan.spec.hardware import Accelerator
from tuneplan.units import GB, GIB, MIB, TERA, parse_bytes

# torch's total_memory is below nvidia-smi's total. Differences between the two in 16 cards whose
# out-of-memory messages are public: 0.27 to 0.47 GiB below 40 GiB, 0.47 to 0.75 GiB above.
SMALL_CARD_RESERVE_BYTES: Final = round(0.45 * GIB)
LARGE_CARD_RESERVE_BYTES: Final = round(0.6 * GIB)
LARGE_CARD_BYTES: Final = 39 * GIB
UNIFIED_MEMORY_FRACTION: Final = 0.75
T4_CONTEXT_BYTES: Final = 141 * MIB
CONTEXT_BYTES: Final = round(0.45 * GIB)

_RATES: Final = {
    "float32": "fp32_tflop_s",
    "tf32": "tf32_tflop_s",
    "float16": "fp16_tflop_s",
    "bfloat16": "bf16_tflop_s",
    "float8": "fp8_tflop_s",
}
_MEASURED: Final = {
    "bfloat16": "bf16_measured_tflop_s",
    "float16": "fp16_measured_tflop_s",
    "float8": "fp8_measured_tflop_s",
}
BUNDLED: Final = "accelerators.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorEntry:
    """A chip with what the catalogue knows besides its figures.

    Attributes:
        form: ``sxm``, ``pcie``, ``nvl`` or empty (one form only).
        preference: Among chips that share a name, the lowest is taken.
        unified_memory: Shared with the CPU and sold in several sizes.
        other_memory: Sizes sold under the same name that are not in the catalogue.
        capacity_basis: ``quoted`` (torch's own messages), ``stated`` (the user) or ``rule``.
        measured_source: Where ``measured_flop_per_s`` comes from.
        file: Which file the entry stands in.
    """

    accelerator: Accelerator
    form: str = ""
    preference: int = 1
    unified_memory: bool = False
    other_memory: str = ""
    capacity_basis: str = "rule"
    measured_source: str = ""
    file: str = BUNDLED


def read_bundled() -> dict[str, AcceleratorEntry]:
    """Every bundled chip by catalogue name.

    Raises:
        CatalogError: The table is broken.
    """
    return {row["name"]: _entry(row) for row in read_table(BUNDLED)}


def capacity_rule_bytes(driver_bytes: int) -> int:
    """Torch's ``total_memory`` from the driver's total: 0.45 GiB less, 0.6 GiB from 40 GiB on."""
    large = driver_bytes >= LARGE_CARD_BYTES
    return driver_bytes - (LARGE_CARD_RESERVE_BYTES if large else SMALL_CARD_RESERVE_BYTES)


def _entry(row: Mapping[str, str]) -> AcceleratorEntry:
    unified = row["unified_memory"] == "y"
    link = load_links().get(row["link"])
    pcie = _pcie_bytes_per_s(row)
    memory_bytes = parse_bytes(row["memory"])
    accelerator = Accelerator(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        memory_bytes=memory_bytes,
        capacity_bytes=_capacity(row, memory_bytes=memory_bytes, unified=unified),
        memory_bandwidth_bytes_per_s=float(row["memory_bandwidth_gb_s"]) * GB,
        dense_flop_per_s=_rates(row, _RATES),
        measured_flop_per_s=_rates(row, _MEASURED),
        power_w=number(row["power_w"]) or 0.0,
        supports_bf16=row["supports_bf16"] == "y",
        supports_flash_attention_2=row["supports_flash_attention_2"] == "y",
        compute_capability=number(row["compute_capability"]),
        context_bytes=T4_CONTEXT_BYTES if row["name"] == "NVIDIA T4" else CONTEXT_BYTES,
        link=link.kind if link else row["link"],
        link_bytes_per_s=pcie if row["link"] == "pcie" else (number(row["link_gb_s"]) or 0.0) * GB,
        link_size=int(row["link_size"] or row["accelerators_per_node"]),
        bridge_bytes_per_s=(number(row["bridge_gb_s"]) or 0.0) * GB,
        pcie_bytes_per_s=pcie,
        peer_access=row["peer_access"] == "y",
        accelerators_per_node=int(row["accelerators_per_node"]),
        aliases=tuple(alias for alias in row["aliases"].split("|") if alias),
        release_year=int(row["release_year"]),
        source=row["source"],
        as_of=row["as_of"],
        uncertain=row["uncertain"],
        remark=row["remark"],
    )
    return AcceleratorEntry(
        accelerator=accelerator,
        form=row["form"],
        preference=int(row["preference"]),
        unified_memory=unified,
        other_memory=row["other_memory_gib"],
        capacity_basis="quoted" if row["capacity_gib"] else "rule",
        measured_source=row["measured_source"],
    )


def _capacity(row: Mapping[str, str], *, memory_bytes: int, unified: bool) -> int:
    if row["capacity_gib"]:
        return round(float(row["capacity_gib"]) * GIB)
    if unified:
        return round(memory_bytes * UNIFIED_MEMORY_FRACTION)
    driver_mib = number(row["memory_mib_smi"])
    return capacity_rule_bytes(round(driver_mib * MIB) if driver_mib else memory_bytes)


def _pcie_bytes_per_s(row: Mapping[str, str]) -> float:
    if not row["pcie_gen"]:
        return 0.0
    return load_links()[f"pcie{row['pcie_gen']}"].bytes_per_s * int(row["pcie_lanes"]) / 16


def _rates(row: Mapping[str, str], columns: Mapping[str, str]) -> Mapping[str, float]:
    return MappingProxyType(
        {dtype: float(row[column]) * TERA for dtype, column in columns.items() if row[column]}
    )
