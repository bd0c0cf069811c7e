"""What a log says about memory that ran out: figures of the message, frames, progress.

The wordings, with where they come from:

- PyTorch's allocator, 1.0 to 2.0: ``Tried to allocate A (GPU i; B total capacity; C already
  allocated; D free; E reserved in total by PyTorch)``, ``E cached`` before 1.5; from 2.1:
  ``GPU i has a total capacity of B of which D is free. Process P has O memory in use. Including
  non-PyTorch memory, this process has T memory in use. Of the allocated memory C is allocated by
  PyTorch, and U is reserved by PyTorch but unallocated``. Source: PyTorch
  ``c10/cuda/CUDACachingAllocator.cpp`` (and its HIP and XPU twins), ``c10/util/Exception``.
- The host: PyTorch ``c10/core/impl/alloc_cpu.cpp``, Linux ``mm/oom_kill.c``, the exit status 137
  (128 + SIGKILL) or -9 that launchers report, Slurm's and Kubernetes' own words.
- NCCL ``src/include/alloc.h``, bitsandbytes ``csrc/common.cuh`` (``CUDA_CHECK_RETURN``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.units import GIB, KIB, MIB, TIB

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK: Final = re.compile(
    r"^\s*(?:[\w.-]+: )?(?:\[(?:default|rank)?(\d+)\]:?|\(\S+ (?:rank=\d+ )?pid=(\d+)[^)]*\))[: ]?"
)
_SIZE: Final = r"([\d.,]+) ?(bytes|[KMGT]?i?B)\b"
_UNITS: Final = {
    "bytes": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}


class Source(StrEnum):
    """Who ran out of memory, as the message tells."""

    ALLOCATOR = "allocator"  # PyTorch's caching allocator
    DEVICE = "device"  # the card, asked outside that allocator
    LIBRARY = "library"  # a handle or workspace of cuBLAS, cuDNN, cuSOLVER, Triton
    COLLECTIVE = "collective"  # NCCL's or RCCL's buffers
    PAGED = "paged"  # bitsandbytes' managed memory
    HOST = "host"  # main memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A size as a message prints it, in bytes, and by how much rounding may hide."""

    size_bytes: int
    half_step_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One message about memory that ran out.

    Attributes:
        line: Of the log, counted from 1; ``text`` is what stands there, shortened.
        rank: What marks the lines of one process, "" where nothing does.
        requested: What could not be given; None where the message does not say.
        process_bytes: All that this process holds on the card, outside the allocator too.
        others_bytes: What other processes hold on the card; None where the message tells nothing.
    """

    source: Source
    line: int
    text: str
    rank: str = ""
    requested: Printed | None = None
    capacity: Printed | None = None
    allocated: Printed | None = None
    reserved: Printed | None = None
    free: Printed | None = None
    process_bytes: int | None = None
    others_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of a traceback."""

    file: str
    function: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a log says.

    Attributes:
        failures: In the order of the log.
        frames: Of the traceback that the first failure ends, outermost first.
        lines: The log without colours, rank marks and overwritten progress, up to the first
            failure; each with its number in the file.
        first_line: Number of the first line that was read; more than 1 where the log is long.
    """

    failures: tuple[Failure, ...]
    frames: tuple[Frame, ...]
    lines: tuple[tuple[int, str], ...]
    first_line: int = 1

    @property
    def failure(self) -> Failure | None:
        """The failure that the others follow from.

        A launcher kills the ranks that are left once one has failed, so the host's own words count
        only where the card's do not stand in the log; and words that name memory go before a bare
        exit status.
        """
        of_card = [one for one in self.failures if one.source is not Source.HOST]
        told = [one for one in self.failures if re.search(r"memory|oom", one.text, re.IGNORECASE)]
        return next(iter(of_card or told or self.failures), None)


def read_log(text: str, first_line: int = 1) -> Log:
    """Find every message about memory in a log, and what stands around the first one.

    ``first_line`` is the number of the text's first line in its file.
    """
    lines = list(_lines(text, first_line))
    found = tuple(_failures(lines))
    log = Log(failures=found, frames=(), lines=(), first_line=first_line)
    first = log.failure
    if first is None:
        return replace(log, lines=_texts(lines))
    before = [line for line in lines if line.number <= first.line]
    own = [line for line in before if line.rank in ("", first.rank)]
    return replace(log, frames=tuple(_frames(own)), lines=_texts(before))


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    rank: str
    text: str


def _texts(lines: Sequence[_Line]) -> tuple[tuple[int, str], ...]:
    return tuple((line.number, line.text) for line in lines)


def _lines(text: str, first_line: int) -> Iterator[_Line]:
    """Lines without colours and rank marks; a progress bar that overwrites itself is several."""
    for number, whole in enumerate(_ANSI.sub("", text).split("\n"), start=first_line):
        mark = _RANK.match(whole)
        rank = next((group for group in mark.groups() if group), "") if mark else ""
        plain = whole[mark.end() :] if mark else whole
        for part in plain.rstrip("\r").split("\r"):
            yield _Line(number, rank, part)


def _printed(text: str, unit: str) -> Printed:
    """``3.14 GiB``: the last digit is rounded, so half of it either way is not known."""
    digits = text.replace(",", "").rstrip(".")
    scale = _UNITS[unit]
    decimals = len(digits.partition(".")[2])
    half = 0 if scale == 1 else round(scale * 10**-decimals / 2)
    return Printed(size_bytes=round(float(digits or 0) * scale), half_step_bytes=half)


def _after(pattern: str, text: str) -> Printed | None:
    """The size that a pattern with ``SIZE`` in it finds."""
    match = re.search(pattern.replace("SIZE", _SIZE), text, flags=re.IGNORECASE)
    return _printed(match[1], _unit(match[2])) if match else None


def _unit(written: str) -> str:
    by_fold = {name.casefold(): name for name in _UNITS}
    return by_fold[written.casefold()]


# Beginnings of messages, and who ran out. A line is held against them in this order.
_HOST_WORDS: Final = (
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|"
    r"Out of memory: Kill(?:ed)? process|oom-kill:|oom_reaper: reaped|"
    r"Memory cgroup out of memory|OOMKilled|oom.?kill event|oom_kill|"
    r"(?i:exit|return) ?(?i:code|status)\W{0,8}(?:was |of )?(?:-9|137)\b|"
    r"Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL|killed by signal: Killed|"
    r"^(?:\S+: line \d+: +\d+ )?Killed\b|MemoryError\b|"
    r"Unable to allocate [\d.]+ [KMGT]iB for an array|"
    r"worker .*was killed.*running low on memory|cudaHostAlloc|"
    r"CUDA error: out of memory.*pin_memory"
)
_SIGNS: Final = (
    (Source.PAGED, r"Error out of memory at line \d+ in file .*(?:pythonInterface|managed)"),
    (Source.DEVICE, r"Error out of memory at line \d+ in file"),
    (
        Source.ALLOCATOR,
        (
            r"(?:CUDA|HIP|XPU|NPU|MUSA|MLU) out of memory\.|MPS backend out of memory|"
            r"Tried to allocate [\d.]+ [KMGT]?i?B(?:ytes)?\b"
        ),
    ),
    (
        Source.COLLECTIVE,
        (
            r"Failed to CUDA (?:host )?[cm]?alloc|NCCL.*out of memory|"
            r"Cuda failure \d* ?'out of memory'"
        ),
    ),
    (
        Source.LIBRARY,
        (
            r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|"
            r"Triton Error \[(?:CUDA|HIP)\]: out of memory"
        ),
    ),
    (Source.HOST, _HOST_WORDS),
    (
        Source.DEVICE,
        (
            r"(?:CUDA|HIP) error: (?:out of memory|hipErrorOutOfMemory)|cudaErrorMemoryAllocation|"
            r"cuda runtime error \(2\) ?: out of memory|CUDA driver error: out of memory"
        ),
    ),
)
_SIGN_PATTERNS: Final = tuple((source, re.compile(words)) for source, words in _SIGNS)
_MESSAGE_LINES: Final = 12  # a message that was pasted may be wrapped over so many
_SHOWN: Final = 160


def _failures(lines: Sequence[_Line]) -> Iterator[Failure]:
    end = 0
    for place, line in enumerate(lines):
        if place < end:
            continue
        source = _source_of(line.text)
        if source is None:
            continue
        window = _message(lines, place)
        if source is Source.ALLOCATOR:
            end = place + 1 + _continued(lines, place)
        yield _failure(source, line, window)


# A word that every sign has, so that most lines are passed over at once.
_HINT: Final = re.compile(r"memor|oom|killed|137|-9|sigkill|alloc", re.IGNORECASE)


def _source_of(text: str) -> Source | None:
    if _HINT.search(text) is None:
        return None
    for source, pattern in _SIGN_PATTERNS:
        if pattern.search(text):
            return source
    return None


def _message(lines: Sequence[_Line], place: int) -> str:
    """The message that begins on a line, with what was wrapped under it."""
    last = place + 1 + _continued(lines, place)
    return " ".join(" ".join(line.text for line in lines[place:last]).split())


def _continued(lines: Sequence[_Line], place: int) -> int:
    """How many lines after this one belong to its message."""
    count = 0
    for line in lines[place + 1 : place + _MESSAGE_LINES]:
        starts = re.match(r"\s*(?:Traceback|File \"|\S+Error\b:)", line.text)
        again = re.search(r"out of memory\. Tried to allocate", line.text)
        other = _source_of(line.text) is Source.HOST
        if starts or again or other or line.rank != lines[place].rank or not line.text.strip():
            break
        count += 1
    return count


def _failure(source: Source, line: _Line, window: str) -> Failure:
    shown = line.text.strip()[:_SHOWN]
    if source is Source.ALLOCATOR:
        return _of_allocator(line, window, shown)
    requested = _after("tried to allocate SIZE", window) or _after(
        "(?:Unable to allocate|[cm]?alloc(?: async)?) SIZE", window
    )
    return Failure(source=source, line=line.number, text=shown, rank=line.rank, requested=requested)


def _of_allocator(line: _Line, window: str, shown: str) -> Failure:
    """The figures of PyTorch's own message, whatever its generation."""
    allocated = (
        _after("SIZE already allocated", window)
        or _after("SIZE is allocated by PyTorch", window)
        or _after("MPS allocated: SIZE", window)
    )
    reserved = _after("SIZE (?:reserved in total by PyTorch|cached)", window)
    unallocated = _after("SIZE is reserved by PyTorch but unallocated", window)
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = Printed(
            size_bytes=allocated.size_bytes + unallocated.size_bytes,
            half_step_bytes=allocated.half_step_bytes + unallocated.half_step_bytes,
        )
    process = _after("this process has SIZE memory in use", window)
    return Failure(
        source=Source.ALLOCATOR,
        line=line.number,
        text=shown,
        rank=line.rank,
        requested=_after("tried to allocate SIZE", window),
        capacity=_after("SIZE total capacity", window)
        or _after("total capaci?ty of SIZE", window)
        or _after("max allowed: SIZE", window),
        allocated=allocated,
        reserved=reserved,
        free=_after("of which SIZE is free", window) or _after("SIZE free", window),
        process_bytes=process.size_bytes if process else None,
        others_bytes=_others(window, reserved, own_is_named=process is not None),
    )


def _others(window: str, reserved: Printed | None, *, own_is_named: bool) -> int | None:
    """What the listed processes hold.

    Where no line names this process itself, it is one of those listed (a container hides its
    number): the smallest that holds what PyTorch reserved. Where it is the only one, nothing is
    known of others.
    """
    sizes = [
        _printed(size, _unit(unit)).size_bytes
        for size, unit in re.findall(rf"Process \d+ has {_SIZE} memory in use", window)
    ]
    if own_is_named:
        return sum(sizes)
    may_be_own = [size for size in sizes if reserved is not None and size >= reserved.size_bytes]
    return sum(sizes) - min(may_be_own) if may_be_own and len(sizes) > 1 else None


_FRAME_PATTERNS: Final = (
    re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)'),
    re.compile(r"[│|]\s*(?P<file>\S+\.py):(?P<line>\d+) in (?P<function>\w+)"),
    re.compile(r"File (?P<file>\S+\.py):(?P<line>\d+), in (?P<function>[\w.<>]+)\("),
    re.compile(r"^(?P<file>\S+\.py) in (?P<function>\w+)\((?P<line>)"),
)


def _frames(lines: Sequence[_Line]) -> Iterator[Frame]:
    """Frames between the last ``Traceback`` and the end of these lines, outermost first."""
    start = 0
    for place, line in enumerate(lines):
        if re.search(r"Traceback \(most recent call last\)", line.text):
            start = place
    for line in lines[start:]:
        for pattern in _FRAME_PATTERNS:
            match = pattern.search(line.text)
            if match:
                yield Frame(
                    file=match["file"].replace("\\", "/"),
                    function=match["function"].rpartition(".")[2],
                    line=int(match["line"] or 0),
                )
                break
