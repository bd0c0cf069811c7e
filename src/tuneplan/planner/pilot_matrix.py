"""Use-case: a list of pilots, one after the other, each a row of measured runs."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tuneplan.contract.pilot_matrix import Matrix, MatrixCase
from tuneplan.devices import Devices
from tuneplan.errors import InputError, MissingExtra, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.piloting.probe import Probe
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.evidence_row import COLUMNS, evidence_row
from tuneplan.planner.pilot import JobPilot, pilot_job
from tuneplan.planner.pilot_request import PilotChoices, PilotLimits
from tuneplan.planner.sources import Sources
from tuneplan.spec.measurement import Measurement, Status
from tuneplan.spec.stated import StatedJob
from tuneplan.tracing.images import image_size
from tuneplan.units import format_gib

KEPT: Final = (Status.OK, Status.OOM, Status.TIMEOUT)  # results; a failure is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDone:
    """What came of one case.

    Attributes:
        pilot: None where it was not run.
        reason: Why it was not run, or failed.
        before: Its row was there already.
    """

    case: MatrixCase
    pilot: JobPilot | None = None
    reason: Message | None = None
    before: bool = False


def run_matrix(
    matrix: Matrix,
    sources_of: Callable[[StatedJob], Sources],
    *,
    rows: Path,
    found: Probe,
    devices: Devices,
    append: Callable[[Measurement], str] | None,
    began: Callable[[MatrixCase], None] = lambda _case: None,
) -> Iterator[CaseDone]:
    """Run the cases that have no row yet; each row is written as soon as its case is done.

    Args:
        matrix: The cases.
        sources_of: The catalogues of a job.
        rows: A CSV that grows; its rows tell what is done already.
        found: The card of this machine.
        devices: Asked for power while a case runs.
        append: Keeps measurements; None keeps none.
        began: Told each case that begins.

    Raises:
        UnreadableFile: The file of rows is no such file.
    """
    done = _done(rows)
    for case in matrix.cases:
        if case.digest in done:
            yield CaseDone(case=case, before=True)
            continue
        missing = _missing(case, found)
        if missing is not None:
            yield CaseDone(case=case, reason=missing)
            continue
        began(case)
        yield _run(matrix, case, sources_of, rows=rows, found=found, devices=devices, append=append)


def _missing(case: MatrixCase, found: Probe) -> Message | None:
    """What this machine lacks."""
    if case.needs_cuda and found.name is None:
        return message("matrix_no_card", "it needs a CUDA or ROCm card, and there is none here")
    if case.needs_cuda and case.needs_bytes and (found.memory_bytes or 0) < case.needs_bytes:
        return message(
            "matrix_small_card",
            "it needs a card of {needed}, and {name} has {memory}",
            needed=format_gib(case.needs_bytes),
            name=found.name,
            memory=format_gib(found.memory_bytes or 0),
        )
    return None


def _run(
    matrix: Matrix,
    case: MatrixCase,
    sources_of: Callable[[StatedJob], Sources],
    *,
    rows: Path,
    found: Probe,
    devices: Devices,
    append: Callable[[Measurement], str] | None,
) -> CaseDone:
    at = datetime.now(tz=UTC).isoformat(timespec="seconds")
    try:
        sources = sources_of(case.job)
        now = _estimate(case, sources, found)
        pilot = pilot_job(
            now,
            sources,
            measured_at=at,
            limits=PilotLimits(
                num_steps=case.steps,
                until_steady=not case.all_steps,
                time_s=case.time_s,
                memory_bytes=case.memory_bytes,
            ),
            choices=PilotChoices(
                device=case.device,
                weights=case.weights,
                images=tuple(map(image_size, case.images)),
                synthetic=case.synthetic,
            ),
            append=append,
            devices=devices,
        )
    except (InputError, MissingExtra) as error:
        why = "; ".join(str(one.message) for one in error.mistakes) or str(error)
        return CaseDone(case=case, reason=message("matrix_refused", "{why}", why=why))
    if pilot.run.status not in KEPT:
        why = pilot.run.reason or pilot.run.said.strip().rpartition("\n")[2] or "?"
        return CaseDone(
            case=case, pilot=pilot, reason=message("matrix_failed", "{why}", why=why[:300])
        )
    extra = {
        "case": case.name,
        "case_digest": case.digest,
        "measurement_id": pilot.id or "",
        "image_sizes": " ".join(case.images),
    }
    row = evidence_row(
        _id(matrix, case),
        now,
        pilot.measurement,
        gpu_memory_bytes=found.memory_bytes if case.device != "cpu" else None,
        extra=extra,
    )
    _write(row, rows)
    return CaseDone(case=case, pilot=pilot)


def _estimate(case: MatrixCase, sources: Sources, found: Probe) -> JobEstimate:
    """The prediction, on this machine's card where the job names none and it is known."""
    job = case.job
    if not job.hardware.accelerator and found.name and case.device != "cpu":
        try:
            name = sources.accelerators.resolve(found.name).accelerator.name
        except InputError:
            name = None
        if name is not None:
            hardware = replace(job.hardware, accelerator=(name,), accelerators_per_node=(1,))
            job = replace(job, hardware=hardware)
    return estimate_job(job, sources)


def _id(matrix: Matrix, case: MatrixCase) -> str:
    """``pilot-NAME-NUMBER``: one source, and another number for another case."""
    return f"pilot-{matrix.name}-{int(case.digest[:12], 16) % 10**9:09d}"


def _done(rows: Path) -> frozenset[str]:
    if not rows.exists():
        return frozenset()
    try:
        with rows.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise UnreadableFile(
                    message(
                        "matrix_other_rows",
                        "{path} holds other columns than a matrix writes: name another file",
                        path=str(rows),
                    ),
                    path=str(rows),
                )
            return frozenset(row["case_digest"] for row in reader if row["case_digest"])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        text = message("matrix_rows_unreadable", "{path}: {why}", path=str(rows), why=str(error))
        raise UnreadableFile(text, path=str(rows)) from None


def _write(row: Mapping[str, str], rows: Path) -> None:
    """One row at the end, on disk before the next case begins."""
    new = not rows.exists() or not rows.stat().st_size
    with rows.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())
