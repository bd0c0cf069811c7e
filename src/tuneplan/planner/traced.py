"""Memory of a job from a trace of its code, in the same terms as the estimate by formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.memory import Phase
from tuneplan.estimation.replay import warm_up_bytes
from tuneplan.estimation.replayed_job import bucket_sizes
from tuneplan.estimation.tensors import loaded_tensors, trained_tensors
from tuneplan.estimation.uncertainty import (
    Fit,
    MemoryRanges,
    Reserving,
    Verdict,
    fit_on,
    memory_ranges,
    prior_factors,
)
from tuneplan.frameworks.loading import loading_of
from tuneplan.frozen import dataclass
from tuneplan.planner.evaluating import DEFAULT_CONTEXT_BYTES, MemoryAnswer
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.answer import Basis, Estimate, Term
from tuneplan.spec.parallelism import Strategy
from tuneplan.tracing.cache import TraceCache
from tuneplan.tracing.environment import own_interpreter
from tuneplan.tracing.plays import play, plays
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.replay import Played, Replayed, aligned, replay
from tuneplan.tracing.result import AliveGroup, alive_at
from tuneplan.tracing.wire import Traced, TraceRequest

# Factors on a traced peak at P10 and P90: of 53 runs on a T4, 90 % were within 0.1 %, of 153 on
# A100 within 0.4 % (docs/internals/trace_accuracy.md).
TRACED: Final = (0.995, 1.005)
_MOST_POINTS: Final = 600
_STEP_TOKENS: Final = (64, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point of the timeline; ``at`` counts births and deaths of blocks."""

    at: int
    phase: str
    allocated_bytes: int
    reserved_bytes: int


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


def request_of(resolved: Resolved) -> TraceRequest:
    """What is to be traced for the longest micro-batch to expect."""
    batch, accelerator = resolved.batch, resolved.accelerator
    length = max(round(batch.worst_length), 1)
    recipe = resolved.recipe
    varies = batch.varies and (not recipe.longest_first or recipe.empties_cache_steps > 0)
    return TraceRequest(
        architecture=resolved.model,
        recipe=resolved.recipe,
        parallelism=resolved.parallelism,
        sequences=max(round(batch.sequences), 1),
        length=length,
        shorter=shorter_length(length) if varies else None,
        compute_capability=accelerator.compute_capability if accelerator else None,
        evaluation_sequences=_evaluation_sequences(resolved),
    )


def _evaluation_sequences(resolved: Resolved) -> int:
    schedule, statistics = resolved.schedule, resolved.dataset.statistics
    evaluates = statistics is not None and statistics.num_eval_samples > 0
    if not evaluates or not schedule.evaluates:
        return 0
    return schedule.per_device_eval_batch_size * resolved.recipe.sequences_per_sample


def shorter_length(length: int) -> int | None:
    """A second length, about 0.6 of the first.

    The two differ by a multiple of 64 (or 16) tokens, so that both are padded alike: attention with
    a mask pads it to a multiple of 16.
    """
    for step in _STEP_TOKENS:
        less = round(0.4 * length / step) * step
        if less and less < length:
            return length - less
    return None


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
    phases = _phases(recording, moments)
    terms = _terms(at_peak, float(usual.peak_allocated_bytes), sum(played.resident_bytes))
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
        timeline=_timeline(recording, moments),
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


def played_of(traced: Traced, resolved: Resolved) -> Played:
    """The recordings, with what comes before and after loading on the card."""
    model, recipe, layout = resolved.model, resolved.recipe, resolved.parallelism
    recording, *others = traced.recordings
    shorter = others[0] if others and aligned(recording, others[0]) else None
    loading = loading_of(recipe, resolved.software)
    buckets: list[int] = []
    if layout.strategy is Strategy.DDP:
        buckets = bucket_sizes(recipe, layout.ddp_bucket_bytes, trained_tensors(model, recipe))
    return Played(
        recording=recording,
        shorter=shorter,
        empties_cache=loading.empties_cache,
        # A sharded model comes from the host, unit by unit.
        warm_up_bytes=0
        if layout.shards_parameters
        else warm_up_bytes(loaded_tensors(model, recipe), loading),
        resident_bytes=tuple(size for size in buckets if size),
        longest_first=recipe.longest_first,
        empties_cache_steps=recipe.empties_cache_steps,
        reads_ahead=loading.threads > 1 and not layout.shards_parameters,
    )


def runs_within(played: Played, limit_bytes: int) -> tuple[Replayed, Replayed | None]:
    """Replays on a card that gives the allocator so many bytes: the usual, and the worst."""
    usual = replay(played, limit_bytes=limit_bytes)
    if not usual.fits:
        return usual, None
    others = [play(played, one, limit_bytes=limit_bytes) for one in plays(played)]
    return usual, min(others, key=lambda one: one.fits, default=None)


def verdict_within(
    played: Played, ranges: MemoryRanges, capacity_bytes: int, context_bytes: float
) -> Fit:
    """Whether the job runs on a card: the replay with its limit, and the range of the need.

    ``tight`` where the two disagree, or only a bad history of lengths does not fit.
    """
    fit = fit_on(ranges.needed_bytes, capacity_bytes)
    usual, worst = runs_within(played, round(capacity_bytes - context_bytes))
    if not usual.fits:
        verdict = Verdict.DOES_NOT_FIT
    elif fit.verdict is Verdict.FITS and (worst is None or worst.fits):
        verdict = Verdict.FITS
    else:
        verdict = Verdict.TIGHT
    chance = fit.probability_fits
    if verdict is Verdict.DOES_NOT_FIT:
        chance = min(chance, 0.1)
    return replace(fit, verdict=verdict, probability_fits=chance)


def context_bytes_of(resolved: Resolved) -> float:
    """The CUDA context of the card, or that of an unknown one."""
    card = resolved.accelerator
    return float(card.context_bytes) if card else DEFAULT_CONTEXT_BYTES


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
    peak = Estimate(
        low=likely * TRACED[0], likely=likely, high=likely * longer * TRACED[1], basis=Basis.TRACED
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


def _phases(recording: Recording, moments: Sequence[tuple[int, int, int]]) -> dict[str, int]:
    """Most allocated in each phase, in the order in which they begin."""
    found: dict[str, int] = {}
    known = {phase.value for phase in Phase}
    for (_, allocated, _), phase in zip(moments, _phase_at(recording, moments), strict=True):
        if phase in known:
            found[phase] = max(found.get(phase, 0), allocated)
    return found


def _phase_at(recording: Recording, moments: Sequence[tuple[int, int, int]]) -> list[str]:
    marks = recording.marks
    names, mark, phase = [], 0, "load"
    for at, _, _ in moments:
        while mark < len(marks) and marks[mark][0] <= at:
            phase = marks[mark][1]
            mark += 1
        names.append(phase)
    return names


def _timeline(recording: Recording, moments: Sequence[tuple[int, int, int]]) -> tuple[Moment, ...]:
    """The lowest and the highest moment of every stretch, and where each phase begins."""
    phases = _phase_at(recording, moments)
    width = max(-(-2 * len(moments) // _MOST_POINTS), 1)
    kept: set[int] = {0, len(moments) - 1} if moments else set()
    for start in range(0, len(moments), width):
        stretch = range(start, min(start + width, len(moments)))
        kept.add(min(stretch, key=lambda number: moments[number][1]))
        kept.add(max(stretch, key=lambda number: moments[number][1]))
    kept.update(n for n in range(1, len(moments)) if phases[n] != phases[n - 1])
    return tuple(
        Moment(
            at=moments[number][0], phase=phases[number],
            allocated_bytes=moments[number][1], reserved_bytes=moments[number][2],
        )
        for number in sorted(kept)
    )  # fmt: skip


_PACKED: Final = ("uint8", "int8", "int32")
_TERMS: Final = {
    "frozen_weight": "frozen_weights",
    "trained_weight": "trained_weights",
    "gradient": "gradients",
    "optimizer_state": "optimizer_states",
    "master_weight": "master_weights",
    "quantization_constant": "quantization_constants",
    "activation": "kept_activations",
}


def term_of(group: AliveGroup) -> str:
    """The term that blocks at the peak belong to."""
    if group.kind == "frozen_weight" and group.dtype in _PACKED:
        return "quantized_weights"
    if group.kind == "trained_weight" and "lora_" in group.module:
        return "adapters"
    return _TERMS.get(group.kind, group.kind)


def _terms(at_peak: Sequence[AliveGroup], total: float, resident: int) -> tuple[Term, ...]:
    """By kind; what blocks are larger than was asked stands apart."""
    kinds: dict[str, list[AliveGroup]] = {}
    for group in at_peak:
        kinds.setdefault(term_of(group), []).append(group)
    terms = [
        Term(
            kind=kind,
            value=float(sum(group.size_bytes for group in groups)),
            formula="sum of the blocks that are alive",
            inputs={"blocks": sum(group.count for group in groups)},
            source="tuneplan trace",
            basis=Basis.TRACED,
        )
        for kind, groups in kinds.items()
    ]
    if resident:
        terms.append(
            Term(
                kind="gradient_buckets",
                value=float(resident),
                formula="flat copies of the gradients that are exchanged",
                source="torch/csrc/distributed/c10d/reducer.cpp",
            )
        )
    rest = total - sum(term.value for term in terms)
    if rest > 0:
        terms.append(
            Term(
                kind="unsplit_blocks",
                value=rest,
                formula="blocks of the cache that were given whole, less what was asked",
                source="c10/cuda/CUDACachingAllocator.cpp should_split",
                basis=Basis.TRACED,
            )
        )
    return tuple(sorted(terms, key=lambda term: -term.value))
