"""Use-case: a short real run of a job, kept as a measurement beside what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuneplan.calibration.own import Own
from tuneplan.contract.job_document import job_document
from tuneplan.errors import InvalidRequest, MissingExtra, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message, say
from tuneplan.piloting.batches import pilot_lengths
from tuneplan.piloting.runner import PilotRun, measurement_of, run_pilot
from tuneplan.piloting.wire import PilotRequest
from tuneplan.planner.estimate import JobEstimate, estimate_resolved
from tuneplan.planner.learning import LearnedFigure, figures_of
from tuneplan.planner.recalibrating import observe
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources
from tuneplan.planner.trace_requests import request_of
from tuneplan.spec.answer import Notice
from tuneplan.spec.measurement import Measurement, Status
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, DType, Method, Objective

# Frameworks whose training loop is transformers' Trainer.
_TRAINER: Final = ("transformers", "trl", "llamafactory", "axolotl", "ms-swift", "unsloth", "qwen")
_METHODS: Final = (Method.FULL, Method.LORA, Method.DORA)
_OBJECTIVES: Final = (Objective.SFT, Objective.PRETRAIN)
_STRATEGIES: Final = (Strategy.SINGLE, Strategy.DDP)
_CHECKPOINTING: Final = (Checkpointing.NONE, Checkpointing.FULL)
STAGES: Final = {  # as the doctor names them
    "load": "load",
    "forward": "first_forward",
    "backward": "first_backward",
    "optimizer_step": "optimizer_step",
    "later": "later",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotLimits:
    """How far a pilot may go.

    Attributes:
        num_steps: At most.
        time_s: Of its steps.
        memory_bytes: None for no limit.
        until_steady: End as soon as the step time is steady.
    """

    num_steps: int = 40
    until_steady: bool = True
    time_s: float = 120.0
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPilot:
    """What a pilot says.

    Attributes:
        stage: Where it stopped, if it did, in the doctor's words.
        figures: Measured beside predicted.
        after: The estimate with what was measured here; None where nothing could be.
        id: Under which the store keeps the measurement; None where it is not kept.
    """

    now: JobEstimate
    run: PilotRun
    measurement: Measurement
    stage: str | None
    figures: tuple[LearnedFigure, ...]
    notices: tuple[Notice, ...]
    id: str | None
    after: JobEstimate | None


def pilot_job(
    now: JobEstimate,
    sources: Sources,
    *,
    measured_at: str,
    limits: PilotLimits | None = None,
    device: str = "auto",
    weights: str | None = None,
    append: Callable[[Measurement], str] | None = None,
    progress: Callable[[str, int], None] = lambda _stage, _steps: None,
) -> JobPilot:
    """Run a few steps of a job for real.

    Args:
        now: The estimate of the job.
        sources: Catalogues, with the measurements that are known already.
        measured_at: ISO 8601.
        limits: Steps, time, memory.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        weights: Folder of the model whose weights are loaded; None builds random ones, which
            changes neither speed nor memory.
        append: Keeps the measurement; None keeps nothing.
        progress: Told the stage and the steps done.

    Raises:
        InvalidRequest: The job asks for what no pilot can run here; all of it at once.
        MissingExtra: PyTorch, transformers or PEFT is not installed.
    """
    resolved, bounds = now.resolved, limits or PilotLimits()
    mistakes = list(_refused(resolved))
    if mistakes:
        raise InvalidRequest(mistakes)
    _require_libraries()
    request = pilot_request(resolved, bounds, device=device, weights=weights)
    count = resolved.cluster.num_accelerators if resolved.cluster else 1
    run = run_pilot(request, num_processes=count, progress=progress)
    stage = _stage(run)
    job = job_document(resolved.job, now.assumptions)
    measurement = replace(measurement_of(run, job, measured_at=measured_at), stage=stage)
    return JobPilot(
        now=now,
        run=run,
        measurement=measurement,
        stage=stage,
        figures=tuple(figures_of(measurement, now)),
        notices=tuple(_notices(resolved, run)),
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


def pilot_request(
    resolved: Resolved, limits: PilotLimits, *, device: str, weights: str | None
) -> PilotRequest:
    """What the child is asked: the model, the arguments, the rows."""
    recipe, batch = resolved.recipe, resolved.batch
    accumulation = recipe.gradient_accumulation_steps
    rows = max(round(batch.sequences), 1)
    lengths = pilot_lengths(
        resolved.dataset.statistics,
        rows=rows,
        max_length=recipe.max_length,
        worst_length=max(round(batch.worst_length), 1),
        packing=recipe.packing,
        num_micro_batches=limits.num_steps * accumulation,
    )
    fixed = resolved.job.recipe.training.padding == "max_length"
    return PilotRequest(
        model=request_of(resolved),
        arguments=dict(training_arguments(resolved)),
        lengths=lengths,
        pad_to=recipe.max_length if fixed or recipe.packing else 0,
        weights=None if weights is None else str(Path(weights).expanduser()),
        num_steps=limits.num_steps,
        until_steady=limits.until_steady,
        time_limit_s=limits.time_s,
        memory_limit_bytes=limits.memory_bytes,
        device=device,
    )


def training_arguments(resolved: Resolved) -> Iterator[tuple[str, Any]]:
    """The job's settings as ``TrainingArguments``, without what is written or reported."""
    recipe = resolved.recipe
    training: Mapping[str, Any] = job_document(resolved.job, resolved.assumptions)["training"]
    yield "per_device_train_batch_size", max(round(resolved.batch.sequences), 1)
    yield "gradient_accumulation_steps", recipe.gradient_accumulation_steps
    yield "max_grad_norm", recipe.max_grad_norm or 0.0
    yield "optim", training.get("optim") or "adamw_torch"
    yield "bf16", recipe.autocast and recipe.compute_dtype is DType.BFLOAT16
    yield "fp16", recipe.autocast and recipe.compute_dtype is DType.FLOAT16
    if recipe.gradient_checkpointing is Checkpointing.FULL:
        yield "gradient_checkpointing", True
        yield "gradient_checkpointing_kwargs", {"use_reentrant": recipe.use_reentrant}


def _refused(resolved: Resolved) -> Iterator[Mistake]:
    """What the child cannot run as the job says, each with its key."""
    recipe, layout = resolved.recipe, resolved.parallelism
    nodes = resolved.cluster.num_nodes if resolved.cluster else 1
    checks: tuple[tuple[bool, str, Any, tuple[str, ...]], ...] = (
        (recipe.method not in _METHODS, "method", recipe.method, tuple(_METHODS)),
        (recipe.objective not in _OBJECTIVES, "objective", recipe.objective, tuple(_OBJECTIVES)),
        (
            recipe.gradient_checkpointing not in _CHECKPOINTING,
            "training.gradient_checkpointing",
            recipe.gradient_checkpointing,
            ("true", "false"),
        ),
        (
            layout.strategy not in _STRATEGIES,
            "parallelism.strategy",
            layout.strategy,
            tuple(_STRATEGIES),
        ),
        (nodes > 1, "hardware.num_nodes", nodes, ("1",)),
        (resolved.model.vision is not None, "model", resolved.job.model, ()),
    )
    for wrong, path, value, near in checks:
        if wrong:
            yield Mistake(
                message=message(
                    "pilot_cannot_run",
                    "a pilot does not run {value} yet",
                    value=str(getattr(value, "value", value)),
                ),
                path=path,
                value=str(getattr(value, "value", value)),
                near=tuple(str(getattr(one, "value", one)) for one in near),
            )


def _require_libraries() -> None:
    from importlib.util import find_spec

    for name in ("torch", "transformers", "peft", "accelerate"):
        if find_spec(name) is None:
            raise MissingExtra(extra="pilot", purpose=say("a pilot"))


def _stage(run: PilotRun) -> str | None:
    if run.status is Status.OK or run.stage is None:
        return None
    if run.steps and run.stage != "later":
        return STAGES["later"]
    return STAGES.get(run.stage, run.stage)


def _notices(resolved: Resolved, run: PilotRun) -> Iterator[Notice]:
    framework = resolved.recipe.framework
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
