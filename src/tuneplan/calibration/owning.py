"""The user's own measurements applied to a step: its seconds, its range, a term that says so."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tuneplan.calibration.own import Correction, Own, Place
from tuneplan.estimation.step_time import StepTime
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
        formula="(factor - 1) x predicted step",
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
