"""Use-case: kept measurements as observations, by predicting each of them again today.

Measurements are facts and stay; what they say of the prediction follows its formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.calibration.own import Observation, Own, Place, Quantity
from tuneplan.calibration.owning import Z80, deviation_of
from tuneplan.calibration.situations import situation_of
from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.evaluating import TimeAnswer, place_of
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Notice
from tuneplan.spec.measurement import Measurement, Origin, Status

_UNKNOWN_DEVIATION = 0.05  # of a step time whose spread was not seen
_WHATEVER_THE_LENGTH: Final = ("optimizer", "communication", "host", "launch", "offload")
_MEMORY_DEVIATION = 0.002  # of a peak: the history of the allocator differs a little


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibrated:
    """Observations, and the measurements that could not be used, with why."""

    own: Own
    notices: tuple[Notice, ...]


def recalibrate(kept: Iterable[tuple[str, Measurement]], sources: Sources) -> Recalibrated:
    """What measurements say of today's prediction.

    Args:
        kept: Id and measurement.
        sources: Catalogues; measurements of the user's that they hold already do not count.
    """
    plain = replace(sources, own=None)
    observations: list[Observation] = []
    notices: list[Notice] = []
    for name, measurement in kept:
        if measurement.status is not Status.OK or not measurement.job.get("model"):
            continue
        try:
            now = estimate_job(load_job(_stated(measurement.job)), plain, replays=True)
        except InputError as error:
            text = message(
                "measurement_unused",
                "the measurement {id} is not used: {why}",
                id=name[:12],
                why=str(error).splitlines()[0],
            )
            notices.append(Notice(message=text))
            continue
        observations += observe(name, measurement, now)
    return Recalibrated(own=Own(observations=tuple(observations)), notices=tuple(notices))


def with_own(sources: Sources, store: str | None) -> tuple[Sources, tuple[Notice, ...]]:
    """The sources with the measurements of a store, and which of those could not be used.

    Raises:
        UnreadableFile: The store cannot be used.
    """
    from tuneplan.store.paths import store_path
    from tuneplan.store.store import Store

    with Store(store or store_path()) as kept:
        found = recalibrate(((one.id, one.measurement) for one in kept.find()), sources)
    return replace(sources, own=found.own), found.notices


def observe(name: str, measurement: Measurement, now: JobEstimate) -> tuple[Observation, ...]:
    """The figures of one measurement beside their prediction; those that both have."""
    resolved = now.resolved
    place = place_of(
        situation_of(resolved.recipe, resolved.parallelism, resolved.accelerator),
        resolved.model,
        resolved.batch,
    )
    speed = _speed(name, measurement, now, place)
    return (*speed, *_memory(name, measurement, now, place))


def _speed(
    name: str, measurement: Measurement, now: JobEstimate, place: Place
) -> Iterator[Observation]:
    time = now.time
    if time is None:
        return
    ratio = None
    alike = _predicted_step_s(measurement, now, time)
    if alike is not None:
        ratio = alike[0] / alike[1]
    elif measurement.tokens_per_s_per_accelerator:
        predicted = time.tokens_per_s_per_accelerator.likely
        ratio = predicted / measurement.tokens_per_s_per_accelerator
    elif measurement.step_s:
        ratio = measurement.step_s / time.step.step_s.likely
    if not ratio or not math.isfinite(ratio):
        return
    error = measurement.relative_error
    if error is None and measurement.origin is Origin.PILOT:
        return  # its first step alone, which is warm-up
    yield Observation(
        place=place,
        log_ratio=math.log(ratio),
        deviation=error / Z80 if error is not None else _UNKNOWN_DEVIATION,
        prior=deviation_of(time.step.step_s),
        name=name,
    )


def _predicted_step_s(
    measurement: Measurement, now: JobEstimate, time: TimeAnswer
) -> tuple[float, float] | None:
    """Mean seconds of the steady steps, measured and predicted for as many positions as they had.

    What a step takes whatever its length (the optimizer, what is sent once) does not scale with the
    positions. None where the steps tell no positions.
    """
    kept = measurement.steps[measurement.warm_up_steps :]
    positions = [one.padded_tokens for one in kept if one.padded_tokens]
    if not kept or len(positions) < len(kept):
        return None
    count = now.resolved.cluster.num_accelerators if now.resolved.cluster else 1
    likely = time.step.step_s.likely
    planned = time.tokens_per_s_per_accelerator.likely * likely * count
    fixed = sum(term.value for term in time.step.terms if term.kind in _WHATEVER_THE_LENGTH)
    mean = sum(positions) / len(positions)
    measured = sum(one.step_s for one in kept) / len(kept)
    return measured, fixed + (likely - fixed) * mean / planned


def _memory(
    name: str, measurement: Measurement, now: JobEstimate, place: Place
) -> Iterator[Observation]:
    """Peaks of a run that went over the longest rows; a short run may not have met them."""
    if measurement.origin is not Origin.PILOT:
        return
    peak, ranges = measurement.peak, now.memory.ranges
    for quantity, measured, predicted in (
        (Quantity.ALLOCATED, peak.allocated_bytes, ranges.peak_bytes),
        (Quantity.RESERVED, peak.reserved_bytes, ranges.peak_reserved_bytes),
        (Quantity.DEVICE, peak.device_bytes, ranges.peak_device_bytes),
    ):
        if measured:
            yield Observation(
                place=place,
                log_ratio=math.log(measured / predicted.likely),
                deviation=_MEMORY_DEVIATION,
                prior=deviation_of(predicted),
                name=name,
                quantity=quantity,
            )


def _stated(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job without its blanks, as a job file has it."""
    stated = {}
    for name, value in job.items():
        if isinstance(value, Mapping):
            inner = _stated(value)
            if inner:
                stated[name] = inner
        elif value is not None and value != []:
            stated[name] = value
    return stated
