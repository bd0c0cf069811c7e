"""Use-case: kept measurements as observations, by predicting each of them again today.

Measurements are facts and stay; what they say of the prediction follows its formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuneplan.calibration.own import Observation, Own
from tuneplan.calibration.owning import Z80, deviation_of
from tuneplan.calibration.situations import situation_of
from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.evaluating import place_of
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Notice
from tuneplan.spec.measurement import Measurement, Status

_UNKNOWN_DEVIATION = 0.05  # of a step time whose spread was not seen


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
            now = estimate_job(load_job(_stated(measurement.job)), plain)
        except InputError as error:
            text = message(
                "measurement_unused",
                "the measurement {id} is not used: {why}",
                id=name[:12],
                why=str(error).splitlines()[0],
            )
            notices.append(Notice(message=text))
            continue
        found = observe(name, measurement, now)
        if found is not None:
            observations.append(found)
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


def observe(name: str, measurement: Measurement, now: JobEstimate) -> Observation | None:
    """One measurement beside its prediction; None where they have no speed in common."""
    time, cluster = now.time, now.resolved.cluster
    if time is None or cluster is None:
        return None
    ratio = None
    if measurement.tokens_per_s_per_accelerator:
        predicted = time.tokens_per_s_per_accelerator.likely
        ratio = predicted / measurement.tokens_per_s_per_accelerator
    elif measurement.step_s:
        ratio = measurement.step_s / time.step.step_s.likely
    if not ratio or not math.isfinite(ratio):
        return None
    error = measurement.relative_error
    resolved = now.resolved
    return Observation(
        place=place_of(
            situation_of(resolved.recipe, resolved.parallelism, cluster.accelerator),
            resolved.model,
            resolved.batch,
        ),
        log_ratio=math.log(ratio),
        deviation=error / Z80 if error is not None else _UNKNOWN_DEVIATION,
        prior=deviation_of(time.step.step_s),
        name=name,
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
