"""Learned runs and kept measurements as the answers that the contract describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuneplan.contract.answers import header
from tuneplan.contract.job_document import job_document
from tuneplan.contract.learned import (
    LearnAnswer,
    LearnedFigure,
    LearnedLog,
    LearnedRun,
    StoreAnswer,
    StoredMeasurement,
)
from tuneplan.contract.parts import range_model
from tuneplan.planner import learning
from tuneplan.planner.estimate import JobEstimate
from tuneplan.report.estimate_answer import notice_models
from tuneplan.spec.measurement import Measurement
from tuneplan.spec.run_log import RunLog

if TYPE_CHECKING:
    from tuneplan.store.store import Kept


def learn_answer(
    runs: Sequence[learning.LearnedRun],
    *,
    now: JobEstimate | None,
    store: str | None,
    as_of: str,
) -> LearnAnswer:
    """The answer of ``learn``; ``now`` is the estimate of the job that ran, if it is known."""
    return LearnAnswer(
        **header("learn", as_of=as_of),
        job=job_document(now.resolved.job, now.assumptions) if now else None,
        runs=[_run(run) for run in runs],
        store=store,
    )


def _run(run: learning.LearnedRun) -> LearnedRun:
    measurement = run.measurement
    return LearnedRun(
        name=run.name,
        logs=[_log(log) for log in run.logs],
        accelerator=measurement.environment.accelerator,
        num_accelerators=measurement.environment.num_accelerators,
        steps=measurement.num_steps,
        relative_error=measurement.relative_error,
        measured_at=measurement.measured_at,
        figures=[figure_model(figure) for figure in run.figures],
        measurement_id=run.id,
        warnings=notice_models(run.notices),
    )


def _log(log: RunLog) -> LearnedLog:
    steps = [point.step for point in log.points if point.step is not None]
    return LearnedLog(
        path=log.path,
        format=log.format,
        points=len(log.points),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
    )


def figure_model(figure: learning.LearnedFigure) -> LearnedFigure:
    """One measured figure as the contract describes it."""
    return LearnedFigure(
        quantity=figure.quantity,
        measured=figure.measured,
        predicted=range_model(figure.predicted) if figure.predicted else None,
        error_fraction=figure.error_fraction,
        inside_interval=figure.inside,
    )


def store_answer(kept: Sequence[Kept], *, store: str, as_of: str) -> StoreAnswer:
    """The answer of ``store list``."""
    return StoreAnswer(
        **header("store list", as_of=as_of),
        store=store,
        measurements=[_stored(one.id, one.kept_at, one.measurement) for one in kept],
    )


def _stored(name: str, kept_at: str, measurement: Measurement) -> StoredMeasurement:
    return StoredMeasurement(
        measurement_id=name,
        kept_at=kept_at,
        measured_at=measurement.measured_at,
        origin=measurement.origin.value,
        status=measurement.status.value,
        model=_text(measurement.job, "model"),
        method=_text(measurement.job, "method"),
        accelerator=measurement.environment.accelerator,
        num_accelerators=measurement.environment.num_accelerators,
        step_s=measurement.step_s,
        peak_bytes=measurement.peak.allocated_bytes,
    )


def _text(job: Mapping[str, object], key: str) -> str | None:
    value = job.get(key)
    return value if isinstance(value, str) else None
