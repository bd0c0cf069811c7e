"""A prediction held against what was measured: like with like, and nothing else.

Allocated memory is compared with predicted allocated memory, reserved with reserved, nvidia-smi
with the whole device figure. A figure without a kind or a unit is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tuneplan.calibration.applying import MemoryPhysics
from tuneplan.calibration.hierarchy import Nearest
from tuneplan.calibration.situations import Situation
from tuneplan.estimation.spread import Spread
from tuneplan.estimation.uncertainty import NO_SPREADS, MemorySpreads, probability_below
from tuneplan.frozen import dataclass
from tuneplan.runs.rows import MeasuredRun, MemoryKind
from tuneplan.spec.answer import Estimate, Term

FITS: Final = "fits"
TIGHT: Final = "tight"
DOES_NOT_FIT: Final = "does_not_fit"


class Quantity(StrEnum):
    """What is compared; bytes are per accelerator."""

    ALLOCATED = "peak_bytes"
    RESERVED = "peak_reserved_bytes"
    DEVICE = "peak_device_bytes"
    TOKENS = "tokens_per_s_per_accelerator"  # positions computed, padding included
    REAL_TOKENS = "real_tokens_per_s_per_accelerator"

    @property
    def is_memory(self) -> bool:
        """Whether it is a size in bytes."""
        return self.value.endswith("_bytes")


_KINDS: Final = MappingProxyType(
    {
        MemoryKind.ALLOCATED: Quantity.ALLOCATED,
        MemoryKind.RESERVED: Quantity.RESERVED,
        MemoryKind.DEVICE: Quantity.DEVICE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the planner says of one run before looking at its measurement.

    Attributes:
        peak_bytes, peak_reserved_bytes, peak_device_bytes: Per accelerator, of the worst rank.
        tokens_per_s_per_accelerator: Positions computed, padding included.
        real_tokens_per_s_per_accelerator: Without padding.
        step_s: Of an optimizer step.
        verdict: ``fits``, ``tight``, ``does_not_fit``, or None where no accelerator is stated.
        memory_terms: What the likely allocated peak is made of, bytes, largest first.
        time_terms: What the likely step is made of, seconds, largest first.
        model, parameters: Catalogue name, and how many it has in all.
        situation, physics: What a calibration goes by: the job in the words of the evidence, and
            memory before any measured run was looked at.
        nearest_memory, nearest_time: The measured runs closest to the job; None: none was asked.
        memory_spreads, rate_spread: The distributions that the ranges are of; without them a
            normal curve with a spread per side is taken.
    """

    peak_bytes: Estimate | None = None
    peak_reserved_bytes: Estimate | None = None
    peak_device_bytes: Estimate | None = None
    tokens_per_s_per_accelerator: Estimate | None = None
    real_tokens_per_s_per_accelerator: Estimate | None = None
    step_s: Estimate | None = None
    verdict: str | None = None
    memory_terms: tuple[Term, ...] = ()
    time_terms: tuple[Term, ...] = ()
    model: str = ""
    parameters: int = 0
    situation: Situation | None = None
    physics: MemoryPhysics | None = None
    nearest_memory: Nearest | None = None
    nearest_time: Nearest | None = None
    memory_spreads: MemorySpreads = NO_SPREADS
    rate_spread: Spread | None = None

    def of(self, quantity: Quantity) -> Estimate | None:
        """The range of one quantity."""
        estimates: Mapping[Quantity, Estimate | None] = {
            Quantity.ALLOCATED: self.peak_bytes,
            Quantity.RESERVED: self.peak_reserved_bytes,
            Quantity.DEVICE: self.peak_device_bytes,
            Quantity.TOKENS: self.tokens_per_s_per_accelerator,
            Quantity.REAL_TOKENS: self.real_tokens_per_s_per_accelerator,
        }
        return estimates[quantity]

    def probability_below(self, quantity: Quantity, value: float) -> float | None:
        """Predicted probability that the quantity lies below a value."""
        estimate = self.of(quantity)
        if estimate is None:
            return None
        spreads: Mapping[Quantity, Spread | None] = {
            Quantity.ALLOCATED: self.memory_spreads.allocated,
            Quantity.RESERVED: self.memory_spreads.reserved,
            Quantity.DEVICE: self.memory_spreads.reserved,
        }
        spread = spreads.get(quantity) if quantity.is_memory else self.rate_spread
        if spread is None:
            return probability_below(estimate, value)
        return spread.probability_below(estimate, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One predicted figure beside the measured one.

    Attributes:
        error_fraction: Predicted likely over measured, minus 1.
        inside_interval: Whether the measured value lies in [low, high].
        width_fraction: (high - low) / likely.
        probability: Predicted probability of the measured value or less: even from 0 to 1 over
            many runs where the ranges are right.
    """

    quantity: Quantity
    measured: float
    likely: float
    low: float
    high: float
    probability: float | None = None

    @property
    def error_fraction(self) -> float:
        """Above zero: predicted too high."""
        return self.likely / self.measured - 1.0

    @property
    def inside_interval(self) -> bool:
        """Whether the range covers what was measured."""
        return self.low <= self.measured <= self.high

    @property
    def width_fraction(self) -> float:
        """How wide the range is, relative to its middle."""
        return (self.high - self.low) / self.likely if self.likely else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Predicted verdicts against what happened.

    Attributes:
        num_ran, num_out_of_memory: Runs with a verdict that ran, and that ran out of memory.
        missed_oom: Ran out of memory, predicted to fit.
        false_oom: Ran, predicted not to fit.
        tight: Predicted tight, whatever happened.
    """

    num_ran: int = 0
    num_out_of_memory: int = 0
    missed_oom: int = 0
    false_oom: int = 0
    tight: int = 0

    @property
    def missed_oom_rate(self) -> float | None:
        """Share of the runs that ran out of memory; None without any."""
        return self.missed_oom / self.num_out_of_memory if self.num_out_of_memory else None

    @property
    def false_oom_rate(self) -> float | None:
        """Share of the runs that ran; None without any."""
        return self.false_oom / self.num_ran if self.num_ran else None

    @property
    def tight_rate(self) -> float | None:
        """Share of all runs with a verdict; None without any."""
        total = self.num_ran + self.num_out_of_memory
        return self.tight / total if total else None


def compare(
    run: MeasuredRun, prediction: Prediction, *, memory: bool = True, throughput: bool = True
) -> tuple[Comparison, ...]:
    """What can be compared of one run: at most one memory and one speed figure.

    Args:
        run: With its measurement.
        prediction: Of the same settings.
        memory: Whether its memory counts (everything that decides it stands in columns).
        throughput: The same for its speed.
    """
    wanted: list[tuple[Quantity, float] | None] = []
    if memory:
        wanted.append(measured_memory(run))
    if throughput:
        wanted.append(measured_throughput(run))
    found: list[Comparison] = []
    for pair in wanted:
        estimate = prediction.of(pair[0]) if pair is not None else None
        if pair is not None and estimate is not None:
            found.append(
                Comparison(
                    quantity=pair[0],
                    measured=pair[1],
                    likely=estimate.likely,
                    low=estimate.low,
                    high=estimate.high,
                    probability=prediction.probability_below(pair[0], pair[1]),
                )
            )
    return tuple(found)


def measured_memory(run: MeasuredRun) -> tuple[Quantity, float] | None:
    """The measured peak in bytes with what it counts; None without kind or unit."""
    measured = run.measured
    if measured.out_of_memory or not measured.peak_memory_bytes or measured.memory_kind is None:
        return None
    return _KINDS[measured.memory_kind], measured.peak_memory_bytes


def measured_throughput(run: MeasuredRun) -> tuple[Quantity, float] | None:
    """Tokens per second and accelerator: as published, else from the step time or the samples.

    A step time tells tokens only where every sample has a known length: then
    ``tokens = sequences x length / step_s / accelerators``. Published tokens of batches padded to
    their longest sample are real tokens.
    """
    measured = run.measured
    if measured.out_of_memory:
        return None
    kind = run.words["length_kind"].casefold()
    padded = kind.startswith("longest")
    if measured.tokens_per_s_per_accelerator:
        quantity = Quantity.REAL_TOKENS if padded else Quantity.TOKENS
        return quantity, measured.tokens_per_s_per_accelerator
    length = float(run.max_length or 0) if not padded else 0.0
    if kind and not kind.startswith(("fixed", "packed")):
        length = 0.0
    if not length:
        return None
    if measured.samples_per_s:
        return Quantity.TOKENS, measured.samples_per_s * length / run.accelerators
    sequences = sequences_per_step(run)
    if measured.step_s and sequences:
        return Quantity.TOKENS, sequences * length / measured.step_s / run.accelerators
    return None


def sequences_per_step(run: MeasuredRun) -> int | None:
    """Sequences of one optimizer step over all accelerators, where the row says or implies it."""
    if run.global_batch:
        return run.global_batch
    text = run.words["parallelism"].casefold()
    if any(word in text for word in ("tp=", "pp=", "cp=", "device_map")):
        return None
    if run.micro_batch and run.gradient_accumulation:
        return run.micro_batch * run.gradient_accumulation * run.accelerators
    return None


def judge(cases: Iterable[tuple[bool | None, str | None]]) -> Verdicts:
    """Verdicts against outcomes.

    Args:
        cases: Whether the run ran out of memory (None = nothing tells) and the predicted verdict
            (None = none was made); pairs with a None do not count.
    """
    known = [(oom, verdict) for oom, verdict in cases if oom is not None and verdict is not None]
    return Verdicts(
        num_ran=sum(not oom for oom, _ in known),
        num_out_of_memory=sum(bool(oom) for oom, _ in known),
        missed_oom=sum(bool(oom) and verdict == FITS for oom, verdict in known),
        false_oom=sum(not oom and verdict == DOES_NOT_FIT for oom, verdict in known),
        tight=sum(verdict == TIGHT for _, verdict in known),
    )
