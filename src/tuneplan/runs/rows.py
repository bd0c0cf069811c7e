"""One measured run as a typed value: what its columns say, and nothing read from free text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tuneplan.errors import InvalidQuantity
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.runs.reading import Record
from tuneplan.units import GB, GIB, parse_bytes

_UNITS: Final = MappingProxyType({"gib": GIB, "gb": GB, "mib": 2**20, "mb": 10**6})
_NUMBER: Final = re.compile(r"^[+-]?(?:\d[\d_,]*)?\.?\d+(?:[eE][+-]?\d+)?$")
# What people write behind the number of a cell, by column: the unit that the column has anyway, or
# (milliseconds, minutes) one that it is turned into.
_BEHIND: Final = MappingProxyType(
    {
        "gpu_mem_gb": (r"gi?b?", {}),
        "num_gpus": (r"x|gpus?|cards?", {}),
        "nodes": (r"x|nodes?", {}),
        "seq_len": (r"tok(?:en)?s?|t", {}),
        "tokens_per_sample": (r"tok(?:en)?s?|t", {}),
        "tokens_per_s_per_gpu": (r"(?:tok(?:en)?s?|t)/s(?:ec)?(?:/gpu)?|tps|tgs", {}),
        "samples_per_s": (r"(?:samples?|it)/s(?:ec)?", {}),
        "step_time_s": (r"s|sec|seconds?|s/it|ms|min", {"ms": 1e-3, "min": 60.0}),
        "epochs": (r"epochs?", {}),
    }
)
_BEHIND_NUMBER: Final = re.compile(r"^(?P<number>[\d.,_eE+-]*\d)\s*(?P<unit>[a-zA-Z/]+)$")
_LARGEST: Final = 1e15  # beyond this a cell is broken, not large
_LARGEST_WHOLE: Final = 1e10
_TRUE: Final = frozenset({"yes", "true", "1"})
_FALSE: Final = frozenset({"no", "false", "0"})
KNOWN_COLUMNS: Final = frozenset(
    [
        "id",
        "source_repo",
        "source_commit",
        "framework",
        "framework_version",
        "model",
        "params_b",
        "gpu",
        "gpu_mem_gb",
        "num_gpus",
        "nodes",
        "method",
        "lora_rank",
        "lora_targets",
        "quantization",
        "compute_dtype",
        "param_dtype",
        "optimizer",
        "seq_len",
        "micro_batch_per_gpu",
        "grad_accum",
        "global_batch",
        "packing",
        "activation_checkpointing",
        "attention",
        "parallelism",
        "offload",
        "compile",
        "fused_ce",
        "num_samples",
        "epochs",
        "peak_mem_gb",
        "mem_kind",
        "mem_unit",
        "tokens_per_s_per_gpu",
        "samples_per_s",
        "step_time_s",
        "oom",
        "length_kind",
        "tokens_per_sample",
        "kernels",
        "kbit_prep",
        "double_quant",
        "modules_to_save",
        "amp_dtype",
        "torch_version",
        "transformers_version",
        "peft_version",
        "bitsandbytes_version",
    ]
)


class MemoryKind(StrEnum):
    """What a memory figure counts; figures of different kinds are never compared."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "nvidia-smi"


@dataclass(frozen=True, slots=True)
class Fault:
    """A cell that does not read: the column, what stands there, and why."""

    column: str
    value: str
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured.

    Attributes:
        peak_memory_bytes: Per accelerator; None where the unit is not stated.
        memory_kind: None where it is not stated; such a figure is never compared.
        tokens_per_s_per_accelerator, samples_per_s, step_s: As published; ``samples_per_s`` is of
            the whole job, ``step_s`` of an optimizer step.
        out_of_memory: True: it ran out; False: it ran; None: nothing tells.
    """

    peak_memory_bytes: float | None = None
    memory_kind: MemoryKind | None = None
    tokens_per_s_per_accelerator: float | None = None
    samples_per_s: float | None = None
    step_s: float | None = None
    out_of_memory: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One row: settings as stated (blank or None = not stated) and what was measured.

    Attributes:
        id: Unique in its file.
        source: Who published it: the id without its number.
        line: In the file, counted from 1.
        repository, commit: Where it was published (``owner/name``) and the state it was read at.
        software: Library name to version, from the version columns.
        words: Settings that stay words, by column name (``parallelism``, ``attention``, ...).
        extra: Columns that this program does not know, kept as they are.
        faults: Cells that do not read; a run with faults is not predicted.
    """

    id: str
    source: str
    line: int
    model: str
    repository: str = ""
    commit: str = ""
    framework: str = ""
    framework_version: str = ""
    software: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    accelerator: str = ""
    accelerator_memory_gb: float | None = None
    num_accelerators: int | None = None
    num_nodes: int | None = None
    method: str = ""
    lora_rank: int | None = None
    max_length: int | None = None
    micro_batch: int | None = None
    gradient_accumulation: int | None = None
    global_batch: int | None = None
    num_samples: int | None = None
    num_epochs: float | None = None
    tokens_per_sample: float | None = None
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    measured: Measurement = Measurement()
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[Fault, ...] = ()

    @property
    def accelerators(self) -> int:
        """Cards in all; 1 where nothing is stated."""
        return self.num_accelerators or 1


class _Cells:
    """Reads the cells of one record and remembers which did not read."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.faults: list[Fault] = []

    def number(self, column: str, *, least: float = 0.0, most: float = _LARGEST) -> float | None:
        text = self.record.text(column)
        if not text:
            return None
        text, factor = _without_unit(column, text)
        if not _NUMBER.match(text):
            self._refuse(
                column, text, message("not_a_number", "{value!r} is no number", value=text)
            )
            return None
        value = float(text.replace(",", "").replace("_", "")) * factor
        if value < least or value == 0.0:
            self._refuse(
                column, text, message("not_positive", "{value!r} has to be above zero", value=text)
            )
            return None
        if value > most:
            self._refuse(
                column,
                text,
                message("too_large", "{value!r} is beyond all bounds", value=text[:40]),
            )
            return None
        return value

    def whole(self, column: str) -> int | None:
        value = self.number(column, most=_LARGEST_WHOLE)
        if value is not None and value != int(value):
            text = self.record.text(column)
            self._refuse(column, text, message("not_whole", "{value!r} is not whole", value=text))
            return None
        return None if value is None else int(value)

    def flag(self, column: str) -> bool | None:
        text = self.record.text(column).casefold()
        if text and text not in _TRUE | _FALSE:
            self._refuse(
                column, text, message("neither_yes_nor_no", "{value!r} is no yes or no", value=text)
            )
        return True if text in _TRUE else False if text in _FALSE else None

    def peak_memory_bytes(self) -> float | None:
        """Bytes of the memory cell: with its own unit, else in that of ``mem_unit``."""
        text = self.record.text("peak_mem_gb")
        if not text:
            return None
        if not _NUMBER.match(text):
            try:
                return float(parse_bytes(text))
            except InvalidQuantity as error:
                self._refuse("peak_mem_gb", text, error.message)
                return None
        value = self.number("peak_mem_gb")
        unit = _UNITS.get(self.record.text("mem_unit").casefold())
        return value * unit if value is not None and unit is not None else None

    def _refuse(self, column: str, value: str, text: Message) -> None:
        self.faults.append(Fault(column, value, text))


def _without_unit(column: str, text: str) -> tuple[str, float]:
    """A cell without the unit behind its number, and what the number is to be multiplied by."""
    found = _BEHIND_NUMBER.match(text)
    pattern, factors = _BEHIND.get(column, ("", {}))
    if found is None or not pattern:
        return text, 1.0
    unit = found["unit"].casefold()
    if re.fullmatch(pattern, unit) is None:
        return text, 1.0
    return found["number"], factors.get(unit, 1.0)


def measured_run(record: Record, *, source: str = "") -> MeasuredRun:
    """A record as a run.

    Args:
        record: One row of the file.
        source: Who published it; blank = the id without its trailing number.
    """
    cells = _Cells(record)
    name = record.text("id") or f"row-{record.line}"
    return MeasuredRun(
        id=name,
        source=source or source_of(name),
        line=record.line,
        model=record.text("model"),
        repository=record.text("source_repo"),
        commit=record.text("source_commit"),
        framework=record.text("framework"),
        framework_version=record.text("framework_version"),
        software=_software(record),
        accelerator=record.text("gpu"),
        accelerator_memory_gb=cells.number("gpu_mem_gb"),
        num_accelerators=cells.whole("num_gpus"),
        num_nodes=cells.whole("nodes"),
        method=record.text("method").casefold(),
        lora_rank=cells.whole("lora_rank"),
        max_length=cells.whole("seq_len"),
        micro_batch=cells.whole("micro_batch_per_gpu"),
        gradient_accumulation=cells.whole("grad_accum"),
        global_batch=cells.whole("global_batch"),
        num_samples=cells.whole("num_samples"),
        num_epochs=cells.number("epochs"),
        tokens_per_sample=cells.number("tokens_per_sample"),
        words=MappingProxyType({column: record.text(column) for column in _WORDS}),
        measured=_measurement(record, cells),
        extra=MappingProxyType({k: v for k, v in record.cells.items() if k not in KNOWN_COLUMNS}),
        faults=tuple(cells.faults),
    )


def source_of(run_id: str) -> str:
    """Who published a run: ``litgpt-rt-014`` is of ``litgpt-rt``, ``fitck-001a`` of ``fitck``."""
    return re.sub(r"[-_]?\d+[a-z]?$", "", run_id) or run_id


_WORDS: Final = [
    "lora_targets",
    "quantization",
    "compute_dtype",
    "param_dtype",
    "optimizer",
    "packing",
    "attention",
    "parallelism",
    "activation_checkpointing",
    "offload",
    "compile",
    "fused_ce",
    "length_kind",
    "kernels",
    "kbit_prep",
    "double_quant",
    "modules_to_save",
    "amp_dtype",
]


_KINDS: Final = MappingProxyType(
    {
        **{kind.value: kind for kind in MemoryKind},
        **dict.fromkeys(
            ("max memory allocated", "peak allocated", "torch allocated"), MemoryKind.ALLOCATED
        ),
        **dict.fromkeys(
            ("max memory reserved", "peak reserved", "torch reserved"), MemoryKind.RESERVED
        ),
        **dict.fromkeys(("nvidia smi", "smi", "device"), MemoryKind.DEVICE),
    }
)


def _software(record: Record) -> Mapping[str, str]:
    libraries = ("torch", "transformers", "peft", "bitsandbytes")
    found = {name: record.text(f"{name}_version") for name in libraries}
    return MappingProxyType({name: version for name, version in found.items() if version})


def _measurement(record: Record, cells: _Cells) -> Measurement:
    peak = cells.peak_memory_bytes()
    tokens_per_s = cells.number("tokens_per_s_per_gpu")
    samples_per_s = cells.number("samples_per_s")
    step_s = cells.number("step_time_s")
    stated = cells.flag("oom")
    ran = bool(record.text("peak_mem_gb")) or any((tokens_per_s, samples_per_s, step_s))
    return Measurement(
        peak_memory_bytes=peak,
        memory_kind=_KINDS.get(record.text("mem_kind").casefold().replace("_", " ")),
        out_of_memory=stated if stated is not None else (False if ran else None),
        tokens_per_s_per_accelerator=tokens_per_s,
        samples_per_s=samples_per_s,
        step_s=step_s,
    )
