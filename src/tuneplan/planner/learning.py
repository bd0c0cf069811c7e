"""Use-case: logs of runs as measurements, held against what is predicted for the same job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tuneplan.contract.job_document import job_document
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.logs.measuring import measure
from tuneplan.logs.refusing import unreadable
from tuneplan.logs.registry import find_logs, read_log
from tuneplan.planner.estimate import JobEstimate
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.spec.measurement import Measurement
from tuneplan.spec.run_log import RunLog

Append = Callable[[Measurement], str]
# A log in a folder that turns out to be of no known format is left out with a notice, one that was
# named is refused.
_SKIPPED: Final = "log_skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFigure:
    """One measured figure beside the predicted one.

    Attributes:
        quantity: Name with its unit, as in the answer of ``estimate``.
        predicted: None without a job, or where the job says nothing of it.
    """

    quantity: str
    measured: float
    predicted: Estimate | None

    @property
    def error_fraction(self) -> float | None:
        """Predicted likely over measured, minus 1."""
        return self.predicted.likely / self.measured - 1 if self.predicted else None

    @property
    def inside(self) -> bool | None:
        """Whether the predicted range covers what was measured."""
        if self.predicted is None:
            return None
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRun:
    """What the logs of one run say.

    Attributes:
        id: Under which the store keeps it; None where it is not kept.
    """

    name: str
    logs: tuple[RunLog, ...]
    measurement: Measurement
    figures: tuple[LearnedFigure, ...]
    notices: tuple[Notice, ...]
    id: str | None


def learn(
    sources: Sequence[str | Path], *, now: JobEstimate | None = None, append: Append | None = None
) -> tuple[LearnedRun, ...]:
    """Read logs, a run a folder, and keep what they measured.

    Args:
        sources: Log files and folders; a folder is one run with all the logs in it, files that lie
            in the same folder are one run too.
        now: The estimate of the job that ran, if it is known.
        append: Keeps a measurement and returns its id; None keeps nothing.

    Raises:
        InputError: Sources that do not exist, hold no log, or cannot be read: all of them at once.
    """
    runs = list(_runs(sources))
    read: list[tuple[str, tuple[RunLog, ...], tuple[Notice, ...]]] = []
    mistakes: list[Mistake] = []
    for name, paths, is_folder in runs:
        try:
            read.append((name, *_read(paths, skip=is_folder)))
        except InvalidRequest as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise InvalidRequest(mistakes)
    return tuple(_learned(name, logs, told, now, append) for name, logs, told in read)


def _runs(sources: Sequence[str | Path]) -> Iterator[tuple[str, tuple[Path, ...], bool]]:
    found = find_logs(sources)
    folders = [Path(source) for source in sources if Path(source).is_dir()]
    for folder in folders:
        inside = tuple(path for path in found if path.is_relative_to(folder))
        yield str(folder), inside, True
    named = [path for path in found if not any(path.is_relative_to(folder) for folder in folders)]
    for parent in dict.fromkeys(path.parent for path in named):
        paths = tuple(path for path in named if path.parent == parent)
        yield str(paths[0] if len(paths) == 1 else parent), paths, False


def _read(paths: Sequence[Path], *, skip: bool) -> tuple[tuple[RunLog, ...], tuple[Notice, ...]]:
    logs: list[RunLog] = []
    mistakes: list[Mistake] = []
    for path in paths:
        try:
            logs.append(read_log(path))
        except InputError as error:
            mistakes.extend(error.mistakes)
    if mistakes and (not skip or not logs):
        raise InvalidRequest(mistakes)
    told = tuple(
        Notice(message=replace(one.message, code=_SKIPPED), path=one.path) for one in mistakes
    )
    return tuple(logs), told


def _learned(
    name: str,
    logs: tuple[RunLog, ...],
    told: tuple[Notice, ...],
    now: JobEstimate | None,
    append: Append | None,
) -> LearnedRun:
    cluster = now.resolved.cluster if now else None
    count = cluster.num_accelerators if cluster else None
    measurement, notices = measure(logs, num_accelerators=count)
    if now is not None:
        measurement = _of_job(measurement, now)
    figures = tuple(figures_of(measurement, now))
    if not figures:
        nothing = message(
            "log_measures_nothing",
            "the logs tell neither time nor memory: a step time needs a clock (TensorBoard events, "
            "a console log with step times), or the length of the run (the end of training in "
            "trainer_state.json)",
        )
        notices = (*notices, Notice(message=nothing, path=name))
    return LearnedRun(
        name=name,
        logs=logs,
        measurement=measurement,
        figures=figures,
        notices=(*told, *notices),
        id=append(measurement) if append and figures else None,
    )


def _of_job(measurement: Measurement, now: JobEstimate) -> Measurement:
    """The measurement with the job that ran, and its chip where the logs name none."""
    cluster = now.resolved.cluster
    environment = measurement.environment
    if cluster is not None:
        environment = replace(
            environment,
            accelerator=environment.accelerator or cluster.accelerator.name,
            num_nodes=cluster.num_nodes,
        )
    return replace(
        measurement,
        job=job_document(now.resolved.job, now.assumptions),
        environment=environment,
    )


def figures_of(measurement: Measurement, now: JobEstimate | None) -> Iterator[LearnedFigure]:
    """What was measured, each beside the prediction of the same quantity."""
    ranges = now.memory.ranges if now else None
    time = now.time if now else None
    run = time.run if time else None
    pairs: tuple[tuple[str, float | None, Estimate | None], ...] = (
        ("step_s", measurement.step_s, time.step.step_s if time else None),
        (
            "tokens_per_s_per_accelerator",
            measurement.tokens_per_s_per_accelerator,
            time.tokens_per_s_per_accelerator if time else None,
        ),
        ("train_s", measurement.train_s, run.train_s if run else None),
        ("peak_bytes", measurement.peak.allocated_bytes, ranges.peak_bytes if ranges else None),
        (
            "peak_reserved_bytes",
            measurement.peak.reserved_bytes,
            ranges.peak_reserved_bytes if ranges else None,
        ),
        (
            "peak_device_bytes",
            measurement.peak.device_bytes,
            ranges.peak_device_bytes if ranges else None,
        ),
        (
            "real_tokens_per_s_per_accelerator",
            measurement.real_tokens_per_s_per_accelerator,
            run.real_tokens_per_s_per_accelerator if run else None,
        ),
        ("samples_per_s", measurement.samples_per_s, run.samples_per_s if run else None),
        ("power_w", measurement.power_w, None),
        ("utilization_fraction", measurement.utilization_fraction, None),
    )
    for quantity, measured, predicted in pairs:
        if measured is not None and measured > 0:
            yield LearnedFigure(quantity=quantity, measured=measured, predicted=predicted)


def import_measurements(file: str, store: str) -> tuple[int, int]:
    """Keep what another store has exported; how many there are, and how many were new.

    Raises:
        InvalidRequest: Every line that is no measurement; nothing is kept then.
        UnreadableFile: The file or the store cannot be used.
    """
    from tuneplan.store.store import Store

    try:
        with Path(file).open("r", encoding="utf-8-sig") as lines, Store(store) as kept:
            before = kept.count()
            names = kept.import_from(lines, name=file)
            return len(names), kept.count() - before
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(Path(file), getattr(error, "strerror", None) or str(error)) from None
