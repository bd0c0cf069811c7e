"""Predictions against measured runs: one file in, errors, verdicts and skipped rows out.

The predictor is given, so the same comparison serves the formula, the trace and anything else that
turns a stated job into figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from tuneplan.errors import InputError
from tuneplan.frozen import dataclass
from tuneplan.language import Message
from tuneplan.planner.sharing import both, processes_at_hand
from tuneplan.runs.comparison import Comparison, Prediction, Verdicts, compare, judge
from tuneplan.runs.evidence import read_evidence
from tuneplan.runs.reading import Completeness, read_complete, read_records
from tuneplan.runs.rows import MeasuredRun, measured_run
from tuneplan.runs.skips import Skip
from tuneplan.runs.summaries import SEVERAL, SINGLE, Case, Summary, size_of, summarise
from tuneplan.runs.to_job import to_job
from tuneplan.spec.stated import StatedJob

__all__ = [
    "Prediction",
    "Predictor",
    "SkippedReason",
    "ValidatedRow",
    "Validation",
    "validate",
    "validate_runs",
]

Predictor: TypeAlias = Callable[[StatedJob], Prediction]
Calibrate: TypeAlias = Callable[[Prediction, str], Prediction]
_WORTH_SHARING: Final = 60  # jobs, from which on a second process is worth its start


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRow:
    """One row of the file: predicted and compared, or skipped with a reason.

    Attributes:
        run: The row.
        job: The job it was, None where that could not be said.
        predicted: None for a skipped row.
        compared: What counts in the error tables.
        reason: Why it was skipped; None for a predicted row.
    """

    run: MeasuredRun
    job: StatedJob | None = None
    predicted: Prediction | None = None
    compared: tuple[Comparison, ...] = ()
    reason: Message | None = None

    @property
    def status(self) -> str:
        """``predicted`` or ``skipped``."""
        return "skipped" if self.predicted is None else "predicted"

    @property
    def worst_error_fraction(self) -> float:
        """The largest absolute error of the row, 0 where nothing was compared."""
        return max((abs(item.error_fraction) for item in self.compared), default=0.0)


@dataclass(frozen=True, slots=True)
class SkippedReason:
    """How many rows one reason skipped.

    Attributes:
        code: Machine-readable.
        example: The sentence of one of them.
        counted: How many of them would have counted in the error tables.
    """

    code: str
    example: Message
    count: int
    counted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The answer of ``validate``."""

    path: str
    complete_path: str | None
    rows: tuple[ValidatedRow, ...]
    summary: tuple[Summary, ...]
    verdicts: Verdicts
    skipped: tuple[SkippedReason, ...]

    def worst(self, count: int, *, memory: bool | None = None) -> tuple[ValidatedRow, ...]:
        """The rows with the largest errors, of memory, of speed, or of either (None)."""
        rows = [row for row in self.rows if _errors(row, memory=memory)]
        rows.sort(key=lambda row: (-max(_errors(row, memory=memory)), row.run.id))
        return tuple(rows[:count])


def validate(
    path: str | Path,
    *,
    predict: Predictor,
    complete: str | Path | None = None,
    calibrate: Calibrate | None = None,
) -> Validation:
    """Predict every run of a CSV or a folder and compare with what was measured.

    Args:
        path: A CSV with the columns of ``docs/reference/runs.md``, any subset; or a folder of
            evidence (``evidence/README.md``).
        predict: From a job with blanks to its figures; an ``InputError`` skips the row.
        complete: A CSV that says which rows count in the error tables (``id``,
            ``memory_complete``, ``throughput_complete``); without it all rows count.
        calibrate: From a prediction and the source of the row to a calibrated one.

    Raises:
        InputError: One of the files does not read.
    """
    listed = None if complete is None else read_complete(complete)
    if Path(path).is_dir():
        evidence = read_evidence(path)
        records, listed = evidence.records, listed or evidence.complete
    else:
        records = read_records(path)
    runs = [
        measured_run(record, source=_source(record.cells.get("id", ""), listed))
        for record in records
    ]
    return validate_runs(
        runs,
        predict=predict,
        complete=listed,
        calibrate=calibrate,
        path=str(path),
        complete_path=None if complete is None else str(complete),
    )


def validate_runs(
    runs: Sequence[MeasuredRun],
    *,
    predict: Predictor,
    complete: Mapping[str, Completeness] | None = None,
    calibrate: Calibrate | None = None,
    path: str = "",
    complete_path: str | None = None,
) -> Validation:
    """The same for runs that are already read."""
    jobs = [to_job(run) for run in runs]
    known = _predictions([job for job in jobs if not isinstance(job, Skip)], predict)
    rows = tuple(
        _validated(run, job, known, complete, calibrate)
        for run, job in zip(runs, jobs, strict=True)
    )
    return Validation(
        path=path,
        complete_path=complete_path,
        skipped=_skipped(rows, complete),
        rows=rows,
        **_summed_up(rows),
    )


def recalibrated(found: Validation, calibrate: Calibrate) -> Validation:
    """Runs that were predicted by physics, with their predictions calibrated."""
    rows = tuple(_calibrated(row, calibrate) for row in found.rows)
    return replace(found, rows=rows, **_summed_up(rows))


def _calibrated(row: ValidatedRow, calibrate: Calibrate) -> ValidatedRow:
    if row.predicted is None:
        return row
    predicted = calibrate(row.predicted, row.run.source)
    compared = compare(
        row.run,
        predicted,
        memory=any(item.quantity.is_memory for item in row.compared),
        throughput=any(not item.quantity.is_memory for item in row.compared),
    )
    return replace(row, predicted=predicted, compared=compared)


def _summed_up(rows: Sequence[ValidatedRow]) -> dict[str, Any]:
    return {
        "summary": summarise([case for row in rows for case in _cases(row)]),
        "verdicts": judge(
            (row.run.measured.out_of_memory, row.predicted.verdict)
            for row in rows
            if row.predicted is not None
        ),
    }


def _predictions(
    jobs: Sequence[StatedJob], predict: Predictor
) -> Mapping[str, Prediction | Message]:
    """By job: a run published as three rows, one for each memory kind, is predicted once.

    Many jobs are shared with a second process.
    """
    unique = list({repr(job): job for job in jobs}.items())

    def some(pairs: Sequence[tuple[str, StatedJob]]) -> dict[str, Prediction | Message]:
        return {key: _predicted(job, predict) for key, job in pairs}

    if len(unique) < _WORTH_SHARING or processes_at_hand() < 2:
        return some(unique)
    found: dict[str, Prediction | Message] = {}
    for part in both(lambda: some(unique[::2]), lambda: some(unique[1::2])):
        found |= part
    return found


def _predicted(job: StatedJob, predict: Predictor) -> Prediction | Message:
    try:
        return predict(job)
    except InputError as error:
        return error.mistakes[0].message


def _validated(
    run: MeasuredRun,
    job: StatedJob | Skip,
    known: Mapping[str, Prediction | Message],
    complete: Mapping[str, Completeness] | None,
    calibrate: Calibrate | None,
) -> ValidatedRow:
    if isinstance(job, Skip):
        return ValidatedRow(run=run, reason=job.message)
    predicted = known[repr(job)]
    if isinstance(predicted, Message):
        return ValidatedRow(run=run, job=job, reason=predicted)
    if calibrate is not None:
        predicted = calibrate(predicted, run.source)
    counted = _counted(run, complete)
    compared = compare(run, predicted, memory=counted.memory, throughput=counted.throughput)
    return ValidatedRow(run=run, job=job, predicted=predicted, compared=compared)


def _counted(run: MeasuredRun, complete: Mapping[str, Completeness] | None) -> Completeness:
    if complete is None:
        return Completeness(source=run.source, memory=True, throughput=True)
    missing = Completeness(source=run.source, memory=False, throughput=False)
    return complete.get(run.id, missing)


def _source(run_id: str, complete: Mapping[str, Completeness] | None) -> str:
    return complete[run_id].source if complete is not None and run_id in complete else ""


def _cases(row: ValidatedRow) -> Iterable[Case]:
    if row.job is None:
        return
    run, recipe = row.run, row.job.recipe
    method = "pretrain" if recipe.objective == "pretrain" else recipe.method or run.method
    for item in row.compared:
        yield Case(
            run_id=run.id,
            source=run.source,
            method=method,
            framework=recipe.framework or run.framework or "unknown",
            accelerator=" ".join(row.job.hardware.accelerator) or "unknown",
            cards=SINGLE if run.accelerators == 1 else SEVERAL,
            comparison=item,
            size=size_of(row.predicted.parameters) if row.predicted else "",
        )


def _skipped(
    rows: Sequence[ValidatedRow], complete: Mapping[str, Completeness] | None
) -> tuple[SkippedReason, ...]:
    counts: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    examples: dict[str, Message] = {}
    for row in rows:
        if row.reason is None:
            continue
        counts[row.reason.code] += 1
        examples.setdefault(row.reason.code, row.reason)
        wanted = _counted(row.run, complete)
        counted[row.reason.code] += wanted.memory or wanted.throughput
    return tuple(
        SkippedReason(code, examples[code], count, counted[code])
        for code, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def _errors(row: ValidatedRow, *, memory: bool | None) -> list[float]:
    return [
        abs(item.error_fraction)
        for item in row.compared
        if memory is None or item.quantity.is_memory is memory
    ]
