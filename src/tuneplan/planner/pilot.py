"""Use-case: a short real run of a job, kept as a measurement beside what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tuneplan.calibration.own import Own
from tuneplan.contract.job_document import job_document
from tuneplan.devices import Devices
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.piloting.runner import PilotRun, measurement_of, run_pilot
from tuneplan.planner.estimate import JobEstimate, estimate_resolved
from tuneplan.planner.learning import LearnedFigure, figures_of
from tuneplan.planner.pilot_refusing import chosen_trainer, refuse, require_libraries
from tuneplan.planner.pilot_request import TRL, PilotChoices, PilotLimits, pilot_request
from tuneplan.planner.recalibrating import observe
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.measurement import Measurement, Status

# Frameworks whose training loop is transformers' Trainer.
_TRAINER: Final = ("transformers", "trl", "llamafactory", "axolotl", "ms-swift", "unsloth", "qwen")
STAGES: Final = {  # as the doctor names them
    "load": "load",
    "forward": "first_forward",
    "backward": "first_backward",
    "optimizer_step": "optimizer_step",
    "later": "later",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPilot:
    """What a pilot says.

    Attributes:
        stage: Where it stopped, if it did, in the doctor's words.
        figures: Measured beside predicted.
        after: The estimate with what was measured here; None where nothing could be.
        assumptions: Of the pilot itself: its trainer, its rows.
        id: Under which the store keeps the measurement; None where it is not kept.
    """

    now: JobEstimate
    run: PilotRun
    measurement: Measurement
    stage: str | None
    figures: tuple[LearnedFigure, ...]
    notices: tuple[Notice, ...]
    assumptions: tuple[Assumption, ...]
    id: str | None
    after: JobEstimate | None


def pilot_job(
    now: JobEstimate,
    sources: Sources,
    *,
    measured_at: str,
    limits: PilotLimits | None = None,
    choices: PilotChoices | None = None,
    append: Callable[[Measurement], str] | None = None,
    progress: Callable[[str, int], None] = lambda _stage, _steps: None,
    devices: Devices | None = None,
) -> JobPilot:
    """Run a few steps of a job for real.

    Args:
        now: The estimate of the job.
        sources: Catalogues, with the measurements that are known already.
        measured_at: ISO 8601.
        limits: Steps, time, memory.
        choices: What the job does not say: where, with which weights and pictures.
        append: Keeps the measurement; None keeps nothing.
        progress: Told the stage and the steps done.
        devices: Asked for power, use and temperature; None for nobody.

    Raises:
        InvalidRequest: The job asks for what no pilot can run here; all of it at once.
        MissingExtra: PyTorch, transformers or PEFT is not installed.
    """
    resolved, asked = now.resolved, choices or PilotChoices()
    require_libraries()
    refuse(resolved, asked)
    trainer = chosen_trainer(resolved, asked)
    with TemporaryDirectory(prefix="tuneplan-pilot-rows-") as folder:
        request, assumptions = pilot_request(
            resolved, limits or PilotLimits(), asked, trainer=trainer, folder=Path(folder)
        )
        count = resolved.cluster.num_accelerators if resolved.cluster else 1
        run = run_pilot(request, num_processes=count, progress=progress, devices=devices)
    stage = _stage(run)
    job = job_document(resolved.job, now.assumptions)
    measurement = replace(measurement_of(run, job, measured_at=measured_at), stage=stage)
    return JobPilot(
        now=now,
        run=run,
        measurement=measurement,
        stage=stage,
        figures=tuple(figures_of(measurement, now)),
        notices=tuple(_notices(resolved, run, trainer)),
        assumptions=assumptions,
        id=append(measurement) if append else None,
        after=_after(now, measurement, sources),
    )


def _after(now: JobEstimate, measurement: Measurement, sources: Sources) -> JobEstimate | None:
    """The job estimated again, with this measurement beside those that were known."""
    observations = observe("pilot", measurement, now)
    if not observations or measurement.status is not Status.OK:
        return None
    known = sources.own.observations if sources.own else ()
    own = Own(observations=(*known, *observations))
    return estimate_resolved(now.resolved, replace(sources, own=own), replays=True)


def _stage(run: PilotRun) -> str | None:
    if run.status is Status.OK or run.stage is None:
        return None
    if run.steps and run.stage != "later":
        return STAGES["later"]
    return STAGES.get(run.stage, run.stage)


def _notices(resolved: Resolved, run: PilotRun, trainer: str) -> Iterator[Notice]:
    framework = resolved.recipe.framework
    if framework == TRL and trainer != TRL:
        yield Notice(
            message=message(
                "pilot_without_trl",
                "TRL was not used (it is not installed, or the rows have pictures): the pilot ran "
                "transformers' Trainer, whose loss takes other memory",
            )
        )
    if framework not in _TRAINER:
        yield Notice(
            message=message(
                "pilot_by_trainer",
                "{framework} has a training loop of its own; the pilot ran transformers' Trainer",
                framework=framework,
            )
        )
    if run.status is Status.FAILED:
        yield Notice(
            message=message(
                "pilot_failed",
                "the run failed: {reason}",
                reason=run.reason or run.said or "?",
            )
        )
    if run.status is Status.OK and run.steady is not None and not run.steady.stable:
        yield Notice(
            message=message(
                "pilot_not_steady",
                "the step time was not steady yet after {count} steps: give it more time",
                count=len(run.steps),
            )
        )
    if run.device is not None and run.watched.power_w is None:
        yield Notice(
            message=message(
                "pilot_no_power",
                "nothing here tells the power, use and temperature of {device}: NVIDIA's driver "
                "does with the extra watch, AMD's with amdsmi, others do not",
                device=run.environment.accelerator or run.device,
            )
        )
