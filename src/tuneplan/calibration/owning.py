"""The user's own measurements applied: to a step's seconds, to memory; a term that says so."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tuneplan.calibration.own import Correction, Own, Place, Quantity
from tuneplan.estimation.step_time import StepTime
from tuneplan.estimation.uncertainty import MemoryRanges
from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Estimate, Term

Z80: Final = 1.2816  # of the normal distribution's 90th percentile


def deviation_of(estimate: Estimate) -> float:
    """The deviation of the logarithm that a range of P10 to P90 stands for."""
    if estimate.low <= 0 or estimate.high <= estimate.low:
        return 0.0
    return math.log(estimate.high / estimate.low) / (2 * Z80)


def corrected_step(
    own: Own | None, place: Place, step: StepTime
) -> tuple[StepTime, Correction | None]:
    """A step as the user's own measurements have it; the step itself where they say nothing."""
    found = own.correction(place, deviation_of(step.step_s)) if own is not None else None
    if found is None:
        return step, None
    likely = step.step_s.likely * found.factor
    away = math.exp(Z80 * found.deviation)
    term = Term(
        kind="own_measurements",
        value=likely - step.step_s.likely,
        formula=sentence("(factor - 1) x predicted step"),
        inputs={"factor": found.factor, "measurements": len(found.names)},
        source="calibration/own.py; tuneplan store list",
        basis=Basis.CALIBRATED,
    )
    return (
        replace(
            step,
            step_s=Estimate(
                low=likely / away, likely=likely, high=likely * away, basis=Basis.CALIBRATED
            ),
            terms=(*step.terms, term),
            forward_s=step.forward_s * found.factor,
        ),
        found,
    )


def corrected_memory(
    own: Own | None, place: Place, ranges: MemoryRanges
) -> tuple[MemoryRanges, Correction | None, Term | None]:
    """Memory as the user's own measurements have it: each kind by measurements of its own.

    What a job needs follows the allocated peak. Returns the ranges, what the measurements say (the
    kind that they say most of), and the term that joins those of the allocated peak.
    """
    if own is None:
        return ranges, None, None
    found = {
        quantity: own.correction(place, deviation_of(predicted), quantity)
        for quantity, predicted in (
            (Quantity.ALLOCATED, ranges.peak_bytes),
            (Quantity.RESERVED, ranges.peak_reserved_bytes),
            (Quantity.DEVICE, ranges.peak_device_bytes),
        )
    }
    allocated = found[Quantity.ALLOCATED]
    term = None
    if allocated is not None:
        term = Term(
            kind="own_measurements",
            value=ranges.peak_bytes.likely * (allocated.factor - 1),
            formula="(factor - 1) x predicted peak",
            inputs={"factor": allocated.factor, "measurements": len(allocated.names)},
            source="calibration/own.py; tuneplan store list",
            basis=Basis.CALIBRATED,
        )
    after = MemoryRanges(
        peak_bytes=_corrected(ranges.peak_bytes, allocated),
        peak_reserved_bytes=_corrected(ranges.peak_reserved_bytes, found[Quantity.RESERVED]),
        peak_device_bytes=_corrected(ranges.peak_device_bytes, found[Quantity.DEVICE]),
        needed_bytes=_corrected(ranges.needed_bytes, allocated),
    )
    known = [one for one in found.values() if one is not None]
    return after, max(known, key=lambda one: one.share, default=None), term


def _corrected(predicted: Estimate, found: Correction | None) -> Estimate:
    """A range moved and narrowed; one side stays as much wider than the other as it was."""
    prior = deviation_of(predicted)
    if found is None or prior <= 0:
        return predicted
    likely = predicted.likely * found.factor
    narrower = found.deviation / prior
    low, high = (math.log(edge / predicted.likely) for edge in (predicted.low, predicted.high))
    return Estimate(
        low=likely * math.exp(low * narrower),
        likely=likely,
        high=likely * math.exp(high * narrower),
        basis=Basis.CALIBRATED,
    )
