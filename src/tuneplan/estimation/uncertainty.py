"""Ranges of memory, and whether it fits, before any run was seen.

These widths are priors, stated as such: what the count leaves out for each kind of job. They are
the units in which the residuals of measured runs are counted; ``calibration`` turns those into the
ranges of an answer, which come in here as factors and as a spread.
"""

from __future__ import annotations

import math
from enum import StrEnum
from statistics import NormalDist
from typing import Final

from tuneplan.estimation.spread import Spread
from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Basis, Estimate
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import Attention as AttentionBlock
from tuneplan.spec.blocks import AttentionKind, MixtureOfExperts, Recurrence
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, Kernels, TrainingRecipe

# Factors on the allocated peak at P10 and P90.
_ONE_CARD: Final = (0.985, 1.025)  # block rounding, load order, a tensor more or less
_SHARDED: Final = (0.97, 1.05)  # prefetching, hooks that hold tensors a little longer
_ZERO: Final = (0.88, 1.20)  # DeepSpeed's buffers depend on configuration and timing
_UNCOMMON_LAYERS: Final = (0.93, 1.12)  # experts, recurrences, latent or sparse attention
_COMPILED: Final = (0.75, 1.08)  # the compiler fuses and saves less
_OTHER_MODEL_CODE: Final = (0.95, 1.07)  # code that is not transformers'
_SELECTIVE: Final = (0.80, 1.25)  # which operations are recomputed differs by framework
_FUSED_LOSS: Final = (0.97, 1.03)
# Free memory that no request can use when an allocation fails, as a share of the peak.
FRAGMENTATION: Final = Estimate(low=0.0, likely=0.01, high=0.06, basis=Basis.ASSUMED)
# Reserved over allocated: 79 measured T4 runs lie between 1.04 and 1.49 with a median of 1.12,
# one-card runs on larger cards nearer to 1.05 (docs/concepts/memory.md).
RESERVED: Final = Estimate(low=1.02, likely=1.09, high=1.25, basis=Basis.ASSUMED)
# The same factors on what a replay of the allocator reserves. A trace replayed for 55 T4 runs was
# off by -13 to +15 %, by 2 % in the median, because weights load in threads; these are the factors
# at P10 and P90 that go with it.
REPLAYED: Final = (0.96, 1.05)
CONTEXT_WIDTH: Final = (0.8, 1.6)  # driver, libraries loaded, NCCL
_P90: Final = NormalDist().inv_cdf(0.9)


class Verdict(StrEnum):
    """Does it fit?"""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does_not_fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a job fits on a card.

    Attributes:
        needed_bytes: Allocated peak + unusable fragmentation + context.
        headroom_bytes: Capacity less the likely need.
    """

    verdict: Verdict
    probability_fits: float
    capacity_bytes: int
    headroom_bytes: float
    needed_bytes: Estimate

    def keeps(self, headroom_fraction: float) -> bool:
        """Whether the job surely fits and leaves this share of the card free."""
        room = self.headroom_bytes >= headroom_fraction * self.capacity_bytes
        return self.verdict is Verdict.FITS and room


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserving:
    """What a replay of the allocator says, in bytes.

    Attributes:
        reserved_bytes: With the usual history of lengths; ``worst_bytes`` with a bad one.
        fragmentation_bytes: Free at the allocated peak, but of no use.
        varies: Whether lengths vary at all.
    """

    reserved_bytes: float
    worst_bytes: float
    fragmentation_bytes: float
    varies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRanges:
    """Allocated, reserved and device memory of the worst rank, in bytes."""

    peak_bytes: Estimate
    peak_reserved_bytes: Estimate
    peak_device_bytes: Estimate
    needed_bytes: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpreads:
    """What measured runs say of the distance between measured and likely memory.

    Attributes:
        allocated, reserved: None where no run tells; then the priors stand.
        reserved_is_near: Whether runs of the same program in this situation tell of the latter.
    """

    allocated: Spread | None = None
    reserved: Spread | None = None
    reserved_is_near: bool = False


NO_SPREADS: Final = MemorySpreads()


def peak_range(
    likely_bytes: float,
    limit_bytes: float,
    factors: tuple[float, float],
    *,
    basis: Basis = Basis.ANALYTIC,
) -> Estimate:
    """The allocated peak.

    Args:
        likely_bytes: Of the longest micro-batch to expect.
        limit_bytes: Of the longest that can occur.
        factors: At P10 and P90.
        basis: Where the factors come from.
    """
    low, high = factors
    return Estimate(
        low=likely_bytes * low,
        likely=likely_bytes,
        high=max(likely_bytes, limit_bytes) * high,
        basis=basis,
    )


def prior_distances(factors: tuple[float, float]) -> tuple[float, float]:
    """Factors at P10 and P90 as distances from likely, in logarithms."""
    return -math.log(factors[0]), math.log(factors[1])


def reserved_prior(
    factors: tuple[float, float], reserving: Reserving | None
) -> tuple[float, float]:
    """Distances of reserved memory's P10 and P90 from likely, in logarithms.

    Args:
        factors: The prior of the allocated peak.
        reserving: What a replay said; None where reserved memory is a ratio.
    """
    less, more = prior_distances(factors)
    if reserving is not None:
        low, high = prior_distances(REPLAYED)
        return math.hypot(low, less), math.hypot(high, more)
    return (
        less + math.log(RESERVED.likely / RESERVED.low),
        more + math.log(RESERVED.high / RESERVED.likely),
    )


def prior_factors(
    model: ModelArchitecture, recipe: TrainingRecipe, parallelism: Parallelism
) -> tuple[float, float]:
    """Factors at P10 and P90; independent causes add in squares of logarithms."""
    causes = [_ONE_CARD]
    if parallelism.strategy in (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3):
        causes.append(_ZERO)
    elif parallelism.world_size > 1 or parallelism.offload is not Offload.NONE:
        causes.append(_SHARDED)
    if any(_uncommon(group.layer.mixer, group.layer.feed_forward) for group in model.groups):
        causes.append(_UNCOMMON_LAYERS)
    if recipe.kernels.compiled:
        causes.append(_COMPILED)
    if recipe.kernels.model_code != Kernels().model_code:
        causes.append(_OTHER_MODEL_CODE)
    if recipe.gradient_checkpointing is Checkpointing.SELECTIVE:
        causes.append(_SELECTIVE)
    if recipe.loss.path.value in ("chunked", "fused_linear"):
        causes.append(_FUSED_LOSS)
    return (
        math.exp(-math.sqrt(sum(math.log(low) ** 2 for low, _ in causes))),
        math.exp(math.sqrt(sum(math.log(high) ** 2 for _, high in causes))),
    )


def _uncommon(mixer: object, feed_forward: object) -> bool:
    if isinstance(feed_forward, MixtureOfExperts) or isinstance(mixer, Recurrence):
        return True
    if not isinstance(mixer, AttentionBlock):
        return False
    return mixer.latent is not None or mixer.kind is AttentionKind.SPARSE


def memory_ranges(
    peak: Estimate,
    *,
    context_bytes: float,
    capacity_bytes: float | None,
    reserving: Reserving | None = None,
    spreads: MemorySpreads = NO_SPREADS,
) -> MemoryRanges:
    """Reserved and device memory beside the allocated peak.

    Reserved memory comes from the replay where there is one, else from a ratio. Under pressure the
    allocator gives cached blocks back, so it ends at the card's capacity (or at the allocated peak,
    where that is larger). What is added to a peak errs on its own: distances add in squares.
    """

    def capped(value: float, floor: float) -> float:
        room = value if capacity_bytes is None else capacity_bytes - context_bytes
        return max(min(value, room), floor)

    free = _reserved(peak, reserving, spreads)
    reserved = Estimate(
        low=capped(free.low, peak.low),
        likely=capped(free.likely, peak.likely),
        high=capped(free.high, peak.high),
        basis=free.basis,
    )
    return MemoryRanges(
        peak_bytes=peak,
        peak_reserved_bytes=reserved,
        peak_device_bytes=_with_context(reserved, context_bytes, basis=Basis.ASSUMED),
        needed_bytes=_with_context(
            _with_fragmentation(peak, reserving), context_bytes, basis=peak.basis
        ),
    )


def _with_fragmentation(peak: Estimate, reserving: Reserving | None) -> Estimate:
    """The peak and what is free beside it, but of no use to a request that fails."""
    lost = FRAGMENTATION.likely
    if reserving is not None:
        lost = reserving.fragmentation_bytes / peak.likely
    likely = peak.likely * (1 + lost)
    more = peak.likely * (max(FRAGMENTATION.high, lost) - lost)
    return Estimate(
        low=likely - math.hypot(peak.likely - peak.low, peak.likely * lost),
        likely=likely,
        high=likely + math.hypot(peak.high - peak.likely, more),
        basis=peak.basis,
    )


def _with_context(held: Estimate, context_bytes: float, *, basis: Basis) -> Estimate:
    """What a process holds in all: the context's range adds in squares."""
    low, high = CONTEXT_WIDTH
    likely = held.likely + context_bytes
    return Estimate(
        low=likely - math.hypot(held.likely - held.low, context_bytes * (1 - low)),
        likely=likely,
        high=likely + math.hypot(held.high - held.likely, context_bytes * (high - 1)),
        basis=basis,
    )


def _reserved(peak: Estimate, reserving: Reserving | None, spreads: MemorySpreads) -> Estimate:
    """Reserved memory on a card without end.

    The widths of the peak's own range go in where no run tells of reserved memory itself.
    """
    likely, worst, varies = peak.likely * RESERVED.likely, 0.0, False
    if reserving is not None:
        likely, worst = reserving.reserved_bytes, reserving.worst_bytes
        varies = reserving.varies
    basis = Basis.ASSUMED if reserving is None else Basis.ANALYTIC
    if spreads.reserved is not None:
        low, high = spreads.reserved.low_factor, spreads.reserved.high_factor
        basis = Basis.CALIBRATED if spreads.reserved_is_near else basis
    else:
        less, more = reserved_prior((peak.low / peak.likely, peak.high / peak.likely), reserving)
        low, high = math.exp(-less), math.exp(more)
    least = likely * low
    return Estimate(
        low=min(peak.low * RESERVED.low, least) if varies else least,
        likely=likely,
        high=max(likely, worst) * high,
        basis=basis,
    )


def fit_on(needed: Estimate, capacity_bytes: int, spread: Spread | None = None) -> Fit:
    """Verdict and probability: ``tight`` where the 80 % range contains the card's edge.

    The probability has the tails that measured runs have (``spread``), or normal ones.
    """
    if needed.low > capacity_bytes:
        verdict = Verdict.DOES_NOT_FIT
    elif needed.high > capacity_bytes:
        verdict = Verdict.TIGHT
    else:
        verdict = Verdict.FITS
    return Fit(
        verdict=verdict,
        probability_fits=probability_below(needed, capacity_bytes)
        if spread is None
        else spread.probability_below(needed, capacity_bytes),
        capacity_bytes=capacity_bytes,
        headroom_bytes=capacity_bytes - needed.likely,
        needed_bytes=needed,
    )


def probability_below(value: Estimate, edge: float) -> float:
    """Probability that the value lies below ``edge``: a normal curve with a spread per side."""
    side = value.high - value.likely if edge >= value.likely else value.likely - value.low
    if side <= 0:
        return 1.0 if edge >= value.likely else 0.0
    return NormalDist().cdf((edge - value.likely) / side * _P90)
