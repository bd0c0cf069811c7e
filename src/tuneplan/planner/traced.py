"""Memory of a job from a trace of its code, in the same terms as the estimate by formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.memory import Phase
from tuneplan.estimation.uncertainty import (
    NO_SPREADS,
    Fit,
    MemoryRanges,
    Reserving,
    memory_ranges,
    prior_factors,
)
from tuneplan.frozen import dataclass
from tuneplan.planner.evaluating import MemoryAnswer
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.trace_requests import request_of
from tuneplan.planner.traced_fit import context_bytes_of, played_of, verdict_within
from tuneplan.planner.traced_terms import terms_of
from tuneplan.planner.traced_timeline import Moment, phases_of, timeline_of
from tuneplan.spec.answer import Basis, Estimate, Term
from tuneplan.tracing.cache import TraceCache
from tuneplan.tracing.environment import own_interpreter
from tuneplan.tracing.plays import play, plays
from tuneplan.tracing.replay import Played, Replayed, replay
from tuneplan.tracing.result import AliveGroup, alive_at
from tuneplan.tracing.wire import Traced

# Factors on a traced peak at P10 and P90: of 53 runs on a T4, 90 % were within 0.1 %, of 153 on
# A100 within 0.4 % (docs/internals/trace_accuracy.md).
TRACED: Final = (0.995, 1.005)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedMemory:
    """What a trace says.

    Attributes:
        answer: Ranges, terms and phases as an estimate has them.
        usual: From an empty cache; ``worst`` what reserves most of all that the job leaves open
            (the lengths before the longest, weights that threads read ahead), None where nothing
            is open (or other lengths run other operations).
        least_reserved_bytes: The least of all these.
        expanding, expanding_worst: The same with ``expandable_segments``.
        timeline: From loading to the end of the second step.
        at_peak: What is alive at the peak, largest first.
    """

    answer: MemoryAnswer
    played: Played
    usual: Replayed
    worst: Replayed | None
    least_reserved_bytes: int
    expanding: Replayed
    expanding_worst: Replayed | None
    timeline: tuple[Moment, ...]
    at_peak: tuple[AliveGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrace:
    """Memory of a trace that was made before, and the libraries that it was made with."""

    memory: TracedMemory
    versions: Mapping[str, str]


def known_trace(resolved: Resolved, formula: MemoryAnswer, traces: TraceCache) -> KnownTrace | None:
    """The trace of exactly this job, where one was made before."""
    traced = traces.newest(request_of(resolved), own_interpreter().versions)
    if traced is None:
        return None
    return KnownTrace(memory=traced_memory(traced, resolved, formula), versions=traced.versions)


def traced_memory(traced: Traced, resolved: Resolved, formula: MemoryAnswer) -> TracedMemory:
    """Memory from a trace.

    Args:
        traced: The trace of ``request_of(resolved)``.
        resolved: The job.
        formula: The estimate of the same job, for what a trace of one length cannot tell: how much
            more the longest micro-batch that is possible takes.
    """
    played = played_of(traced, resolved)
    moments: list[tuple[int, int, int]] = []

    def watch(at: int, allocator: CachingAllocator) -> None:
        moments.append((at, allocator.allocated_bytes, allocator.reserved_bytes))

    usual = replay(played, watch=watch)
    expanding = replay(played, expandable=True)
    others = [play(played, one) for one in plays(played)]
    worst = max((usual, *others), key=_reserved) if others else None
    wide = [play(played, one, expandable=True) for one in plays(played)]
    expanding_worst = max((expanding, *wide), key=_reserved) if wide else None
    least = min(map(_reserved, (usual, *others)))
    recording = played.recording
    at_peak = alive_at(recording, usual.peak_at)
    phases = phases_of(recording, moments)
    terms = terms_of(at_peak, float(usual.peak_allocated_bytes), sum(played.resident_bytes))
    answer = _answer(resolved, formula, played, usual, worst, phases, terms)
    answer = replace(answer, ranges=_down_to(answer.ranges, usual.peak_reserved_bytes - least))
    return TracedMemory(
        answer=replace(answer, fit=_fit(answer, played, resolved)),
        played=played,
        usual=usual,
        worst=worst,
        least_reserved_bytes=least,
        expanding=expanding,
        expanding_worst=expanding_worst,
        timeline=timeline_of(recording, moments),
        at_peak=at_peak,
    )


def _reserved(one: Replayed) -> int:
    return one.peak_reserved_bytes


def _down_to(ranges: MemoryRanges, less: int) -> MemoryRanges:
    """Reserved and device memory from what may be reserved less than usual."""
    reserved, device = ranges.peak_reserved_bytes, ranges.peak_device_bytes
    lowest = max(reserved.low - less, ranges.peak_bytes.low)
    return replace(
        ranges,
        peak_reserved_bytes=replace(reserved, low=lowest),
        peak_device_bytes=replace(device, low=device.low - (reserved.low - lowest)),
    )


def _fit(answer: MemoryAnswer, played: Played, resolved: Resolved) -> Fit | None:
    card = resolved.accelerator
    if card is None:
        return None
    return verdict_within(played, answer.ranges, card.capacity_bytes, context_bytes_of(resolved))


def _answer(
    resolved: Resolved,
    formula: MemoryAnswer,
    played: Played,
    usual: Replayed,
    worst: Replayed | None,
    phases: dict[str, int],
    terms: tuple[Term, ...],
) -> MemoryAnswer:
    card, likely = resolved.accelerator, float(usual.peak_allocated_bytes)
    known = formula.ranges.peak_bytes
    _, prior = prior_factors(resolved.model, resolved.recipe, resolved.parallelism)
    longer = max(known.high / (known.likely * prior), 1.0)
    spread = formula.spreads.allocated
    low, high = TRACED
    if spread is not None:  # never wider than the formulas alone
        low, high = max(low, spread.low_factor), min(high, spread.high_factor)
        longer = max(known.high / (known.likely * spread.high_factor), 1.0)
    peak = Estimate(
        low=likely * low, likely=likely, high=likely * longer * high, basis=Basis.TRACED
    )
    reserving = Reserving(
        reserved_bytes=float(usual.peak_reserved_bytes),
        worst_bytes=float(max(usual.peak_reserved_bytes, worst.peak_reserved_bytes))
        if worst
        else float(usual.peak_reserved_bytes),
        fragmentation_bytes=float(usual.fragmentation_bytes),
        varies=played.varies and not played.longest_first,
    )
    ranges = memory_ranges(
        peak,
        context_bytes=context_bytes_of(resolved),
        capacity_bytes=card.capacity_bytes if card else None,
        reserving=reserving,
    )
    return replace(
        formula,
        ranges=_as_traced(ranges),
        phase=_phase_of_peak(phases),
        terms=terms,
        by_phase=tuple((Phase(name), float(size)) for name, size in phases.items()),
        reserving=reserving,
        spreads=NO_SPREADS,  # a trace has ranges of its own
        nearest=None,
    )


def _as_traced(ranges: MemoryRanges) -> MemoryRanges:
    return MemoryRanges(
        peak_bytes=ranges.peak_bytes,
        peak_reserved_bytes=replace(ranges.peak_reserved_bytes, basis=Basis.TRACED),
        peak_device_bytes=replace(ranges.peak_device_bytes, basis=Basis.TRACED),
        needed_bytes=replace(ranges.needed_bytes, basis=Basis.TRACED),
    )


def _phase_of_peak(phases: dict[str, int]) -> Phase:
    return Phase(max(phases, key=lambda name: phases[name]))
