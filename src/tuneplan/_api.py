"""The public functions that need the world: catalogues of the job, and today's date.

Use-cases take both as arguments; these wrappers fill them in. The package itself re-exports what
stands here. May import every room but the command line; read ``planner/sources.py`` next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tuneplan.contract.reading import load_job
from tuneplan.planner.budget import Budget, budget_jobs
from tuneplan.planner.changing import with_settings
from tuneplan.planner.check import JobCheck, check_configuration
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.export import JobExport, export_job
from tuneplan.planner.importing import Configuration, read_configuration
from tuneplan.planner.plan import Plan, plan_job
from tuneplan.planner.predicting import CalibrationChoice, Predictor, calibrating
from tuneplan.planner.sources import Sources, sources_for
from tuneplan.planner.trace import JobTrace, trace_job
from tuneplan.planner.validate import Validation
from tuneplan.planner.validate import validate as validate_runs
from tuneplan.spec.stated import StatedJob
from tuneplan.tracing.images import image_size
from tuneplan.units import parse_bytes

if TYPE_CHECKING:
    from numpy.random import Generator

    from tuneplan.spec.measurement import Measurement

Job: TypeAlias = StatedJob | str | Path | Mapping[str, Any]


def estimate(job: Job, *, calibrated: bool = True, today: date | None = None) -> JobEstimate:
    """Whether one configuration fits, how fast it is, what it costs.

    Args:
        job: What ``load_job`` gave, a job file (YAML, JSON or TOML), or its content as a mapping.
        calibrated: Whether measured runs set the ranges (and move likely figures where that was
            seen to help); False for physics and stated priors alone.
        today: The day that the age of prices is counted to; None for today in UTC.

    Returns:
        Memory, time, cost, energy and storage as ranges, with every assumption made. "Does not
        fit" is an answer: ``.memory.fit.verdict``.

    Raises:
        InputError: What the user can mend; ``.mistakes`` lists all of it.
        MissingExtra: Data files are to be read and the ``tokens`` extra is not installed.
    """
    stated = _stated(job)
    sources = sources_for(stated, today=today or _today(), calibrated=calibrated)
    return estimate_job(stated, sources, replays=True)


def plan(job: Job, *, today: date | None = None) -> Plan:
    """What to run a job on: chips, counts and settings, ranked by the job's goal.

    Args:
        job: As for ``estimate``; what it leaves open is searched.
        today: As for ``estimate``.

    Returns:
        The shortlist, the Pareto set, and why everything else was left out.

    Raises:
        InputError: What the user can mend; ``.mistakes`` lists all of it.
        MissingExtra: Data files are to be read and the ``tokens`` extra is not installed.
    """
    stated = _stated(job)
    return plan_job(stated, sources_for(stated, today=today or _today()))


def trace(
    job: Job,
    *,
    python: str | Path | None = None,
    limits: Sequence[str | int] = (),
    images: Sequence[str] = (),
    peft: str | Path | Mapping[str, Any] | None = None,
    use_cache: bool = True,
    progress: Callable[[str, float], None] = lambda _phase, _share: None,
    today: date | None = None,
) -> JobTrace:
    """The memory of one configuration from the real model code, with nothing allocated.

    Two training steps run on this machine's CPU, in a process of their own and without weights.

    Args:
        job: As for ``estimate``.
        python: A Python, or the folder of its environment, whose PyTorch, transformers and PEFT
            are traced; None for the one that runs.
        limits: Sizes of cards to answer "does it fit" for, such as ``"24 GiB"``.
        images: Of every sample, each as ``"1024x768"``: height and width in pixels as the
            processor leaves it.
        peft: A configuration of PEFT's own (an ``adapter_config.json``, or its content), whose
            method is traced in place of the job's adapter.
        use_cache: Take a trace of the same job and libraries that was made before, and keep a new
            one.
        progress: Told the phase and the share of the work that is done.
        today: As for ``estimate``.

    Returns:
        Allocated, reserved and device memory as ranges; the timeline; what is alive at the peak;
        operations by class; what stood in and what is left out.

    Raises:
        InputError: What the user can mend, and what cannot be traced, by name.
        MissingExtra: The ``trace`` extra is not installed.
        TraceStopped: The process that traces ended without an answer.
    """
    stated = _stated(job)
    return trace_job(
        stated,
        sources_for(stated, today=today or _today()),
        python=None if python is None else str(python),
        limits_bytes=tuple(round(parse_bytes(limit)) for limit in limits),
        images=tuple(map(image_size, images)),
        peft=peft,
        use_cache=use_cache,
        progress=progress,
    )


def budget(
    job: Job,
    *more: Job,
    generator: Generator,
    draws: int = 10_000,
    today: date | None = None,
) -> Budget:
    """What a project costs: hours and money as chances, phases, offers, what matters most.

    Args:
        job: As for ``estimate``; its ``project`` section says what is done around the run.
        more: Other jobs, which are done after it, one after the other.
        generator: Of NumPy; the same state gives the same answer.
        draws: Cases that are drawn.
        today: As for ``estimate``.

    Raises:
        InputError: What the user can mend; ``.mistakes`` lists all of it.
        MissingExtra: Data files are to be read and the ``tokens`` extra is not installed.
    """
    day = today or _today()
    stated = [_stated(job) for job in (job, *more)]
    return budget_jobs(
        [(one, sources_for(one, today=day)) for one in stated], generator=generator, draws=draws
    )


def check(
    config: Job,
    *,
    framework: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    today: date | None = None,
) -> JobCheck:
    """What a configuration comes to, what is wrong with it, and what would help most.

    Args:
        config: The configuration of a framework or a launch script (a path), or a job as for
            ``estimate``.
        framework: ``NAME`` or ``NAME==VERSION``: whose defaults count.
        overrides: Key paths of the job file and values that go before the configuration, such as
            ``{"hardware.accelerator": "H100 SXM", "hardware.accelerators_per_node": 8}``.
        today: As for ``estimate``.

    Returns:
        The estimate; findings of the lint, with evidence; at most three changes with what each
        buys on this job; and what became of every key of the configuration.

    Raises:
        InputError: What the user can mend, at the keys and lines of the user's own files.
        MissingExtra: Data files are to be read and the ``tokens`` extra is not installed.
    """
    read = _configuration(config, framework, overrides or {})
    return check_configuration(read, sources_for(read.job, today=today or _today()))


def export(
    job: Job,
    *,
    to: str,
    launchers: Sequence[str] = (),
    folder: str | Path | None = None,
    today: date | None = None,
) -> JobExport:
    """A job as configuration and launch files of a framework; nothing is written to disk.

    Args:
        job: As for ``estimate``; a choice is refused.
        to: ``trl``, ``llamafactory``, ``axolotl``, ``torchtune`` or ``ms-swift``; or the part of an
            engine, ``deepspeed`` or ``accelerate``.
        launchers: Kinds of launch file: ``torchrun``, ``accelerate``, ``deepspeed``, ``slurm``,
            ``skypilot``, ``dstack``, ``kubernetes``, ``pytorchjob``.
        folder: Where the files will lie, which paths are made relative to; None for the working
            directory.
        today: As for ``estimate``.

    Returns:
        The files with their names and texts, and what filled the job's blanks.

    Raises:
        InputError: What the user can mend; ``.mistakes`` names every setting that the framework
            has no way to say.
    """
    stated = _stated(job)
    return export_job(
        stated,
        sources_for(stated, today=today or _today()),
        to=to,
        launchers=launchers,
        folder=None if folder is None else Path(folder),
    )


def validate(
    path: str | Path,
    *,
    complete: str | Path | None = None,
    calibration: str = "shipped",
    today: date | None = None,
) -> Validation:
    """Predict every measured run of a CSV or a folder and say how far off each prediction is.

    Args:
        path: The runs; columns as in ``docs/reference/runs.md``, any subset. Or a folder of
            evidence, as this project's own.
        complete: A CSV that says which rows count in the error tables; None for all (of a folder:
            what it says itself).
        calibration: ``shipped``; ``none`` for physics alone; ``leave-one-source-out`` for what is
            shipped, less the runs of each row's own source.
        today: As for ``estimate``.

    Raises:
        InputError: One of the files does not read.
    """
    sources = Sources(today=today or _today())
    return validate_runs(
        path,
        predict=Predictor(sources),
        complete=complete,
        calibrate=calibrating(sources.calibration, CalibrationChoice(calibration)),
    )


def _configuration(
    config: Job, framework: str | None, overrides: Mapping[str, Any]
) -> Configuration:
    if isinstance(config, str | Path):
        return read_configuration(config, framework=framework, overrides=overrides)
    flags = {**overrides, "framework": framework} if framework else dict(overrides)
    if isinstance(config, StatedJob):
        job = with_settings(config, flags)
    else:
        job = load_job(config, overrides=flags)
    return Configuration(job=job, imported=None, files=())


def pilot_callback(
    job: Job | None = None,
    *,
    store: str | Path | None = None,
    keep: bool = True,
    most_steps: int = 200,
    stops: bool = False,
    told: Callable[[Measurement], None] | None = None,
) -> Any:
    """A callback for transformers' ``Trainer`` that measures what ``tuneplan pilot`` does.

    Step time, tokens (padded and real), peaks of memory and what the driver tells, of each process
    and of all. Nothing is kept where training was interrupted.

    Args:
        job: The job that the script trains; with it the measurement corrects later estimates of
            this job and others like it. None keeps the figures alone.
        store: Where the measurement is kept; None for the usual file.
        keep: Whether it is kept.
        most_steps: That are timed; training itself goes on.
        stops: Training ends as soon as the step time is steady.
        told: Gets the measurement.

    Raises:
        InputError: The job cannot be read.
    """
    from tuneplan.planner.pilot_callback import pilot_callback as made

    stated = None if job is None else _stated(job)
    return made(
        stated,
        None if stated is None else sources_for(stated, today=_today()),
        store=store,
        keep=keep,
        most_steps=most_steps,
        stops=stops,
        told=told,
    )


def _stated(job: Job) -> StatedJob:
    return job if isinstance(job, StatedJob) else load_job(job)


def _today() -> date:
    return datetime.now(tz=UTC).date()
