"""The estimate as a predictor: a job with blanks to the figures that runs are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from tuneplan.calibration.applying import calibrated_memory, calibrated_rate
from tuneplan.calibration.calibrated import Calibration
from tuneplan.calibration.situations import situation_of
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.planner.validate import Calibrate
from tuneplan.runs.comparison import Prediction
from tuneplan.spec.answer import Basis, Estimate, Term
from tuneplan.spec.stated import StatedJob


class CalibrationChoice(StrEnum):
    """What ranges and likely figures of ``validate`` come from."""

    NONE = "none"  # physics and stated priors
    SHIPPED = "shipped"  # the bundled calibration
    HELD_OUT = "leave-one-source-out"  # the same, without the runs of the row's own source


class Predictor:
    """Memory, speed and verdict of a job, by physics alone.

    Args:
        sources: Catalogues.
        replays: Whether a job is played through the model of the allocator, which takes most of
            the time; without it reserved memory and fragmentation are ratios.
    """

    def __init__(
        self, sources: Sources, *, replays: Callable[[StatedJob], bool] = lambda _: True
    ) -> None:
        self._sources = replace(sources, calibrated=False)
        self._replays = replays

    def __call__(self, job: StatedJob) -> Prediction:
        """Predict; raises ``InputError`` where the job cannot be estimated."""
        answer = estimate_job(job, self._sources, replays=self._replays(job))
        ranges, time, resolved = answer.memory.ranges, answer.time, answer.resolved
        run = time.run if time else None
        return Prediction(
            peak_bytes=ranges.peak_bytes,
            peak_reserved_bytes=ranges.peak_reserved_bytes,
            peak_device_bytes=ranges.peak_device_bytes,
            tokens_per_s_per_accelerator=time.tokens_per_s_per_accelerator if time else None,
            real_tokens_per_s_per_accelerator=(
                run.real_tokens_per_s_per_accelerator if run else None
            ),
            step_s=time.step.step_s if time else None,
            verdict=answer.memory.fit.verdict.value if answer.memory.fit else None,
            memory_terms=_bare(answer.memory.terms),
            time_terms=_bare(time.step.terms) if time else (),
            model=resolved.model.name,
            parameters=resolved.model.total_parameters,
            situation=situation_of(resolved.recipe, resolved.parallelism, resolved.accelerator),
            physics=answer.memory.physics,
        )


def _bare(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Kinds and values, largest first."""
    ordered = sorted(terms, key=lambda term: -term.value)
    return tuple(Term(kind=one.kind, value=one.value, formula=one.formula) for one in ordered)


def calibrating(calibration: Calibration | None, choice: CalibrationChoice) -> Calibrate | None:
    """How predictions by physics are calibrated; None where they stay what they are."""
    if calibration is None or choice is CalibrationChoice.NONE:
        return None
    if choice is CalibrationChoice.SHIPPED:
        return lambda prediction, _source: calibrated(prediction, calibration)
    return lambda prediction, source: calibrated(prediction, calibration.leaving_out(source))


def calibrated(prediction: Prediction, calibration: Calibration) -> Prediction:
    """A prediction by physics with calibrated ranges, and likely rates where those are moved."""
    situation, physics = prediction.situation, prediction.physics
    if situation is None or physics is None:
        return prediction
    memory = calibrated_memory(physics, situation, calibration)
    step_s = prediction.step_s
    rate = calibrated_rate(calibration, situation, step_s) if step_s else None
    changed = replace(
        prediction,
        peak_bytes=memory.ranges.peak_bytes,
        peak_reserved_bytes=memory.ranges.peak_reserved_bytes,
        peak_device_bytes=memory.ranges.peak_device_bytes,
        verdict=memory.fit.verdict.value if memory.fit else None,
        nearest_memory=memory.nearest,
        memory_spreads=memory.spreads,
    )
    if rate is None:
        return changed
    slower = rate.factor, rate.low_factor, rate.high_factor
    faster = 1.0 / rate.factor, 1.0 / rate.high_factor, 1.0 / rate.low_factor
    near = rate.nearest.is_near
    return replace(
        changed,
        step_s=_moved(step_s, slower, near=near),
        tokens_per_s_per_accelerator=_moved(
            prediction.tokens_per_s_per_accelerator, faster, near=near
        ),
        real_tokens_per_s_per_accelerator=_moved(
            prediction.real_tokens_per_s_per_accelerator, faster, near=near
        ),
        nearest_time=rate.nearest,
        rate_spread=rate.spread,
    )


def _moved(
    estimate: Estimate | None, factors: tuple[float, float, float], *, near: bool
) -> Estimate | None:
    if estimate is None:
        return None
    likely = estimate.likely * factors[0]
    return Estimate(
        low=likely * factors[1],
        likely=likely,
        high=likely * factors[2],
        basis=Basis.CALIBRATED if near else estimate.basis,
    )
