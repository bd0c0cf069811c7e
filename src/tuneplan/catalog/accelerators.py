"""Chips by any name that people or drivers give them, with what is sure and what is assumed.

The user's own files win over the bundled table; a name is matched together with memory and form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tuneplan.catalog.accelerator_names import (
    ChipName,
    memory_agrees,
    models_of,
    parse_name,
    same_text,
    written_memory_agrees,
)
from tuneplan.catalog.accelerator_table import (
    BUNDLED,
    T4_CONTEXT_BYTES,
    AcceleratorEntry,
    read_bundled,
)
from tuneplan.errors import UnknownName
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.hardware import Accelerator
from tuneplan.units import GB, GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAccelerator:
    """A chip that a name was taken to mean.

    Attributes:
        assumptions: The choice where the name left one; capacity and context where not measured.
        notes: What the reader should know: an overridden entry, doubtful facts.
    """

    accelerator: Accelerator
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceleratorCatalog:
    """Every known chip. The order of the entries does not matter.

    Attributes:
        entries: Bundled ones that are not overridden, and the user's.
        overridden: Bundled entries that a user's entry replaces.
    """

    entries: tuple[AcceleratorEntry, ...]
    overridden: tuple[AcceleratorEntry, ...] = ()

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """All chips, by name."""
        return tuple(sorted((e.accelerator for e in self.entries), key=lambda chip: chip.name))

    def get(self, name: str) -> Accelerator | None:
        """The chip of exactly this catalogue name."""
        for entry in self.entries:
            if entry.accelerator.name == name:
                return entry.accelerator
        return None

    def entry(self, name: str) -> AcceleratorEntry:
        """The entry of exactly this catalogue name (``KeyError`` where there is none)."""
        for entry in self.entries:
            if entry.accelerator.name == name:
                return entry
        raise KeyError(name)

    def resolve(self, text: str, memory_bytes: int | None = None) -> ResolvedAccelerator:
        """The chip that a name means.

        Args:
            text: As people, clouds or drivers write it.
            memory_bytes: Its memory where known, in any count (marketed, driver's, torch's).

        Returns:
            The chip, the assumptions made and notes.

        Raises:
            UnknownName: No chip has that name, or none of that name has that form or memory.
        """
        exact = self._exact(text, memory_bytes)
        if exact is not None:
            return self._resolved(exact, others=())
        wanted = parse_name(text)
        named = [e for e in self.entries if wanted.model in models_of(_names(e.accelerator))]
        if not named:
            raise self._unknown(text, wanted)
        fitting = [entry for entry in named if _agrees(entry, wanted, memory_bytes)]
        if not fitting:
            raise _no_variant(text, memory_bytes, named)
        chosen = min(fitting, key=_rank)
        others = sorted((entry for entry in fitting if entry is not chosen), key=_rank)
        stated = memory_bytes or (wanted.memory or 0) * GIB
        return self._resolved(chosen, others=others, stated_memory_bytes=stated)

    def _exact(self, text: str, memory_bytes: int | None) -> AcceleratorEntry | None:
        wanted = same_text(text)
        found = [
            entry
            for entry in self.entries
            if wanted in map(same_text, _names(entry.accelerator))
            and (memory_bytes is None or _memory_agrees(entry, memory_bytes))
        ]
        return min(found, key=_rank) if found and not found[0].unified_memory else None

    def _resolved(
        self,
        entry: AcceleratorEntry,
        *,
        others: Sequence[AcceleratorEntry],
        stated_memory_bytes: int = 0,
    ) -> ResolvedAccelerator:
        accelerator = entry.accelerator
        assumptions: list[Assumption] = []
        if entry.unified_memory and stated_memory_bytes:
            accelerator = _with_memory(accelerator, stated_memory_bytes)
        elif others or entry.other_memory or entry.unified_memory:
            assumptions.append(_choice(entry, others))
        assumptions += _figures(entry, accelerator)
        return ResolvedAccelerator(
            accelerator=accelerator,
            assumptions=tuple(assumptions),
            notes=_notes(entry, {e.accelerator.name for e in self.overridden}),
        )

    def _unknown(self, text: str, wanted: ChipName) -> UnknownName:
        by_model: dict[str, list[str]] = {}
        for entry in sorted(self.entries, key=_rank):
            for model in models_of(_names(entry.accelerator)):
                by_model.setdefault(model, []).append(entry.accelerator.name)
        close = get_close_matches(wanted.model, sorted(by_model), n=4, cutoff=0.55)
        near = dict.fromkeys(name for model in close for name in by_model[model])
        return UnknownName(
            message("unknown_accelerator", "no accelerator is called {name!r}", name=text),
            name=text,
            near=tuple(near)[:5],
        )


def load_accelerators(user_files: Iterable[str | Path] = ()) -> AcceleratorCatalog:
    """The bundled chips and the user's own, which win.

    Args:
        user_files: YAML files as documented in ``docs/reference/accelerators.md``; of two with
            one name the later file wins.

    Raises:
        InvalidRequest: Every mistake of a user's file, with its line.
        UnreadableFile: A file that is absent, empty or broken.
        CatalogError: The bundled table is wrong.
    """
    entries = read_bundled()
    overridden: list[AcceleratorEntry] = []
    files = list(user_files)
    if files:
        from tuneplan.catalog.accelerator_files import read_accelerators

        for file in files:
            known = AcceleratorCatalog(tuple(entries.values()))
            for entry in read_accelerators(Path(file), known):
                replaced = entries.get(entry.accelerator.name)
                if replaced is not None and replaced.file == BUNDLED:
                    overridden.append(replaced)
                entries[entry.accelerator.name] = entry
    return AcceleratorCatalog(tuple(entries.values()), tuple(overridden))


def _names(accelerator: Accelerator) -> tuple[str, ...]:
    return (accelerator.name, *accelerator.aliases)


def _rank(entry: AcceleratorEntry) -> tuple[Any, ...]:
    # The user's own first, then the documented preference; the name makes it independent of order.
    return (entry.file == BUNDLED, entry.preference, entry.accelerator.name)


def _memory_agrees(entry: AcceleratorEntry, stated_bytes: float) -> bool:
    chip = entry.accelerator
    if entry.unified_memory:
        return stated_bytes <= 1.07 * chip.memory_bytes
    return memory_agrees(
        stated_bytes=stated_bytes,
        memory_bytes=chip.memory_bytes,
        capacity_bytes=chip.capacity_bytes,
    )


def _agrees(entry: AcceleratorEntry, wanted: ChipName, memory_bytes: int | None) -> bool:
    chip = entry.accelerator
    if wanted.form and entry.form and wanted.form != entry.form:
        return False
    if wanted.memory is not None and not (
        written_memory_agrees(written=wanted.memory, memory_bytes=chip.memory_bytes)
        or (entry.unified_memory and wanted.memory * GB <= chip.memory_bytes)
    ):
        return False
    return memory_bytes is None or _memory_agrees(entry, memory_bytes)


def _with_memory(accelerator: Accelerator, memory_bytes: int) -> Accelerator:
    share = accelerator.capacity_bytes / accelerator.memory_bytes
    memory_bytes = min(memory_bytes, accelerator.memory_bytes)
    return replace(
        accelerator,
        name=f"{accelerator.name} {round(memory_bytes / GIB)}GB",
        memory_bytes=memory_bytes,
        capacity_bytes=round(memory_bytes * share),
    )


def _no_variant(
    text: str, memory_bytes: int | None, named: Sequence[AcceleratorEntry]
) -> UnknownName:
    names = tuple(entry.accelerator.name for entry in sorted(named, key=_rank))
    if memory_bytes is None:
        sentence = message(
            "unknown_accelerator_variant",
            "the catalogue has that chip, but not the variant {name!r}; describe it in a file "
            "under accelerators",
            name=text,
        )
    else:
        sentence = message(
            "unknown_accelerator_memory",
            "no {name!r} has {memory:.1f} GiB; describe it in a file under accelerators",
            name=text,
            memory=memory_bytes / GIB,
        )
    return UnknownName(sentence, name=text, near=names)


def _choice(entry: AcceleratorEntry, others: Sequence[AcceleratorEntry]) -> Assumption:
    chip = entry.accelerator
    if others:
        names = ", ".join(e.accelerator.name for e in others)
        reason = message("ambiguous_name", "the name also fits: {names}", names=names)
    elif entry.unified_memory:
        reason = message("largest_memory", "sold in several sizes: the largest was taken")
    else:
        reason = message(
            "other_memory", "cards of {size} GB bear the same name", size=entry.other_memory
        )
    return Assumption(
        name="hardware.accelerator",
        value=chip.name,
        reason=reason,
        source=entry.file,
        how_to_set=f"hardware.accelerator: {others[0].accelerator.name if others else chip.name}",
    )


def _figures(entry: AcceleratorEntry, accelerator: Accelerator) -> list[Assumption]:
    found = []
    if entry.capacity_basis == "rule":
        if entry.unified_memory:
            reason = message("capacity_unified", "three quarters of the memory the CPU shares")
        else:
            reason = message(
                "capacity_rule",
                "the driver's total less 0.45 GiB (0.6 GiB from 40 GiB on), as torch reports it",
            )
        found.append(_assumed("capacity", accelerator.capacity_bytes, reason, "catalogue rule"))
    if entry.file == BUNDLED and accelerator.context_bytes != T4_CONTEXT_BYTES:
        reason = message(
            "context_assumed",
            "0.3 to 0.6 GiB remembered for larger chips; measured on a T4 only (141 MiB)",
        )
        found.append(_assumed("context", accelerator.context_bytes, reason, "assumed"))
    return found


def _assumed(key: str, value: int, reason: Any, source: str) -> Assumption:
    return Assumption(
        name=f"hardware.accelerator.{key}_bytes",
        value=value,
        reason=reason,
        source=source,
        how_to_set=f"{key}: in a file under accelerators",
    )


def _notes(entry: AcceleratorEntry, overridden: set[str]) -> tuple[Notice, ...]:
    chip = entry.accelerator
    notes = []
    if chip.name in overridden:
        notes.append(
            Notice(
                message=message(
                    "overrides_bundled",
                    "{name} comes from {file} instead of the bundled catalogue",
                    name=chip.name,
                    file=entry.file,
                ),
                path=entry.file,
            )
        )
    if chip.uncertain:
        notes.append(
            Notice(
                message=message(
                    "uncertain_facts",
                    "{name}: sources differ on, or do not confirm, {facts}",
                    name=chip.name,
                    facts=", ".join(chip.uncertain.split()),
                )
            )
        )
    return tuple(notes)
