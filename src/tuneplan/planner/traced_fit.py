"""Does a traced job run on a card: its recordings replayed with the card's limit."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.estimation.replay import warm_up_bytes
from tuneplan.estimation.replayed_job import bucket_sizes
from tuneplan.estimation.tensors import loaded_tensors, trained_tensors
from tuneplan.estimation.uncertainty import Fit, MemoryRanges, Verdict, fit_on
from tuneplan.frameworks.loading import loading_of
from tuneplan.planner.evaluating import DEFAULT_CONTEXT_BYTES
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Strategy
from tuneplan.tracing.plays import play, plays
from tuneplan.tracing.replay import Played, Replayed, aligned, replay
from tuneplan.tracing.wire import Traced


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
