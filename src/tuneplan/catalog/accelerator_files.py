"""The user's own chips: YAML as documented in ``docs/reference/accelerators.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tuneplan.catalog import values
from tuneplan.catalog.accelerator_names import parse_name
from tuneplan.catalog.accelerator_table import (
    CONTEXT_BYTES,
    AcceleratorEntry,
    capacity_rule_bytes,
)
from tuneplan.catalog.documents import (
    Located,
    Mistakes,
    Section,
    check_top_level,
    read_yaml,
    sections,
)
from tuneplan.catalog.own_kernels import read_kernels
from tuneplan.errors import InputError
from tuneplan.language import message
from tuneplan.spec.hardware import Accelerator

if TYPE_CHECKING:
    from tuneplan.catalog.accelerators import AcceleratorCatalog

_NO_RATES: Final[Mapping[str, float]] = MappingProxyType({})


def read_accelerators(path: Path, known: AcceleratorCatalog) -> list[AcceleratorEntry]:
    """Every chip of a user's file.

    Args:
        path: A YAML file with a list under ``accelerators``.
        known: The chips that ``like`` may name.

    Raises:
        InvalidRequest: Everything that is wrong with the file, each with its line.
        UnreadableFile: The file is absent, empty or not YAML.
    """
    mistakes = Mistakes(str(path))
    document = read_yaml(path)
    check_top_level(document, ("accelerators",), mistakes)
    found: dict[str, AcceleratorEntry] = {}
    for section in sections(document, "accelerators", mistakes):
        entry = _read(section, known)
        section.finish()
        if entry.accelerator.name in found:
            mistakes.add(
                message("name_twice", "{name} stands twice", name=entry.accelerator.name),
                section.at,
            )
        found[entry.accelerator.name] = entry
    mistakes.raise_if_any()
    return list(found.values())


def _read(section: Section, known: AcceleratorCatalog) -> AcceleratorEntry:
    base = _base(section, known)
    chip = base.accelerator if base else _from_nothing(section)
    file = section.mistakes.file
    stated_capacity = section.read("capacity", values.size, default=0)
    if section.get("memory") and base:
        memory = section.read("memory", values.size, default=chip.memory_bytes)
        chip = replace(chip, memory_bytes=memory, capacity_bytes=capacity_rule_bytes(memory))
    if stated_capacity:
        chip = replace(chip, capacity_bytes=stated_capacity)
    _check_capacity(section, chip)
    chip = _with_links(section, chip)
    chip = replace(
        chip,
        name=section.require("name", values.text, default="unnamed"),
        aliases=section.read("aliases", values.texts, default=()),
        context_bytes=section.read("context", values.size, default=chip.context_bytes),
        measured_flop_per_s=MappingProxyType(
            dict(section.read("measured_rate", values.rates, default=chip.measured_flop_per_s))
        ),
        source=section.read("source", values.text, default=file),
        as_of=section.read("as_of", values.day_text, default=""),
        uncertain="",
        remark=section.read("remark", values.text, default=""),
        kernels=read_kernels(section, file, chip.dense_flop_per_s) or chip.kernels,
    )
    return AcceleratorEntry(
        accelerator=chip,
        form=base.form if base else parse_name(chip.name).form,
        capacity_basis="stated" if stated_capacity else base.capacity_basis if base else "rule",
        measured_source=file if section.at.value.get("measured_rate") else "",
        file=file,
    )


def _base(section: Section, known: AcceleratorCatalog) -> AcceleratorEntry | None:
    found = section.get("like")
    if found is None:
        return None
    try:
        name = known.resolve(values.text(found.value)).accelerator.name
    except InputError as error:
        for mistake in error.mistakes:
            section.mistakes.add(mistake.message, found, near=mistake.near)
        return None
    entry = known.entry(name)
    chip = entry.accelerator
    chip = replace(
        chip,
        vendor=section.read("vendor", values.text, default=chip.vendor),
        architecture=section.read("architecture", values.text, default=chip.architecture),
        memory_bandwidth_bytes_per_s=section.read(
            "memory_bandwidth", values.bandwidth, default=chip.memory_bandwidth_bytes_per_s
        ),
        dense_flop_per_s=MappingProxyType(
            dict(section.read("dense_rate", values.rates, default=chip.dense_flop_per_s))
        ),
        power_w=section.read("power", values.watts, default=chip.power_w),
        supports_bf16=section.read("supports_bf16", values.yes_or_no, default=chip.supports_bf16),
        supports_flash_attention_2=section.read(
            "supports_flash_attention_2", values.yes_or_no, default=chip.supports_flash_attention_2
        ),
        compute_capability=section.read(
            "compute_capability", values.real, default=chip.compute_capability
        ),
        release_year=section.read("release_year", values.whole, default=chip.release_year),
    )
    return replace(entry, accelerator=chip)


def _from_nothing(section: Section) -> Accelerator:
    memory = section.require("memory", values.size, default=1)
    return Accelerator(
        name="unnamed",
        vendor=section.read("vendor", values.text, default="unknown"),
        architecture=section.read("architecture", values.text, default="unknown"),
        memory_bytes=memory,
        capacity_bytes=max(1, capacity_rule_bytes(memory)),
        memory_bandwidth_bytes_per_s=section.require(
            "memory_bandwidth", values.bandwidth, default=1.0
        ),
        dense_flop_per_s=MappingProxyType(
            dict(section.require("dense_rate", values.rates, default=_NO_RATES))
        ),
        power_w=section.read("power", values.watts, default=0.0),
        supports_bf16=section.require("supports_bf16", values.yes_or_no, default=False),
        supports_flash_attention_2=section.read(
            "supports_flash_attention_2", values.yes_or_no, default=False
        ),
        compute_capability=section.read("compute_capability", values.real, default=None),
        context_bytes=CONTEXT_BYTES,
        release_year=section.read("release_year", values.whole, default=None),
    )


def _with_links(section: Section, chip: Accelerator) -> Accelerator:
    chip = replace(
        chip,
        pcie_bytes_per_s=section.read(
            "pcie_bandwidth", values.bandwidth, default=chip.pcie_bytes_per_s
        ),
        bridge_bytes_per_s=section.read(
            "bridge_bandwidth", values.bandwidth, default=chip.bridge_bytes_per_s
        ),
        peer_access=section.read("peer_access", values.yes_or_no, default=chip.peer_access),
        link=section.read("link", values.text, default=chip.link).lower(),
        link_size=section.read("link_size", values.whole, default=chip.link_size),
        accelerators_per_node=section.read(
            "accelerators_per_node", values.whole, default=chip.accelerators_per_node
        ),
    )
    rate = section.read("link_bandwidth", values.bandwidth, default=chip.link_bytes_per_s)
    stated = section.get("link")
    if stated is not None and chip.link not in ("pcie", "none") and not rate:
        section.mistakes.add(
            message("link_without_bandwidth", "a link needs link_bandwidth, in one direction"),
            stated,
        )
    return replace(chip, link_bytes_per_s=chip.pcie_bytes_per_s if chip.link == "pcie" else rate)


def _check_capacity(section: Section, chip: Accelerator) -> None:
    if chip.capacity_bytes > chip.memory_bytes:
        section.mistakes.add(
            message("capacity_above_memory", "capacity is above memory"),
            section.get("capacity") or Located(None, section.at.path, section.at.line),
        )
