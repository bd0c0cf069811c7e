"""Use-case: what a pilot measures, taken from somebody's own training script."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuneplan.contract.job_document import job_document
from tuneplan.devices import devices_here
from tuneplan.piloting.callback import Measuring, callback_of
from tuneplan.piloting.runner import PilotRun, measurement_of
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.measurement import Measurement
from tuneplan.spec.stated import StatedJob


def pilot_callback(
    job: StatedJob | None,
    sources: Sources | None,
    *,
    store: str | Path | None,
    keep: bool,
    most_steps: int,
    stops: bool,
    told: Callable[[Measurement], None] | None,
) -> Any:
    """A callback of transformers' that keeps a measurement once training has ended.

    Args:
        job: What is trained, if that is known; ``sources`` are its catalogues.
        sources: None where the job is.
        store: None for the usual file.
        keep: Whether the measurement is kept.
        most_steps: That are timed.
        stops: Training ends as soon as the step time is steady.
        told: Gets the measurement.
    """
    stated: Mapping[str, Any] = {}
    if job is not None and sources is not None:
        now = estimate_job(job, sources)
        stated = job_document(now.resolved.job, now.assumptions)

    def finish(run: PilotRun) -> None:
        at = datetime.now(tz=UTC).isoformat(timespec="seconds")
        measurement = measurement_of(run, stated, measured_at=at)
        if keep:
            _keep(measurement, store)
        if told is not None:
            told(measurement)

    devices = devices_here(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return callback_of(Measuring(finish, devices, most_steps=most_steps, stops=stops))


def _keep(measurement: Measurement, store: str | Path | None) -> None:
    from tuneplan.store.paths import store_path
    from tuneplan.store.store import Store

    with Store(store or store_path()) as kept:
        kept.append(measurement)
