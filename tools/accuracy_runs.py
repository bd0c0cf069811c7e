"""Every run of ``evidence/`` predicted once, and what a calibration makes of it.

For the page of accuracy and its test. The allocator is replayed where its answer is compared with
something: runs that measured reserved or device memory, or ran out of memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from calibrate import fitted, residuals_of  # noqa: E402 - beside this file

from tuneplan.calibration.calibrated import Calibration, fit  # noqa: E402
from tuneplan.calibration.evidence import Residual  # noqa: E402
from tuneplan.planner.predicting import Predictor, calibrated  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402
from tuneplan.planner.validate import (  # noqa: E402
    ValidatedRow,
    Validation,
    recalibrated,
    validate_runs,
)
from tuneplan.runs.comparison import Comparison, Prediction, Quantity  # noqa: E402
from tuneplan.runs.evidence import Evidence, read_evidence  # noqa: E402
from tuneplan.runs.rows import MeasuredRun, MemoryKind, measured_run  # noqa: E402
from tuneplan.runs.skips import Skip  # noqa: E402
from tuneplan.runs.to_job import to_job  # noqa: E402

EVIDENCE = ROOT / "evidence"
TODAY = date(2026, 11, 30)


@dataclass(frozen=True)
class Case:
    """One measured figure beside its prediction."""

    row: ValidatedRow
    item: Comparison

    @property
    def source(self) -> str:
        """Who published it."""
        return self.row.run.source

    @property
    def predicted(self) -> Prediction:
        """What was predicted."""
        assert self.row.predicted is not None  # noqa: S101 - a case has one
        return self.row.predicted

    @property
    def error(self) -> float:
        """Absolute."""
        return abs(self.item.error_fraction)

    @property
    def cards(self) -> int:
        """Accelerators in all."""
        return self.row.run.accelerators


def cases(found: Validation) -> Iterator[Case]:
    """Every figure that is compared."""
    for row in found.rows:
        for item in row.compared:
            yield Case(row, item)


class Runs:
    """The evidence, predicted in every way that the page shows."""

    def __init__(self) -> None:
        self.evidence: Evidence = read_evidence(EVIDENCE)
        self.runs: Sequence[MeasuredRun] = [
            measured_run(record, source=self.evidence.complete[record.cells["id"]].source)
            for record in self.evidence.records
        ]

    @cached_property
    def physics(self) -> Validation:
        """Nothing fitted to runs."""
        return self.predicted_with(_replaying(self.runs))

    def predicted_with(self, replays: Callable[[object], bool]) -> Validation:
        """Every run by physics; ``replays`` says of which jobs the allocator is played."""
        predictor = Predictor(Sources(today=TODAY), replays=replays)
        return validate_runs(self.runs, predict=predictor, complete=self.evidence.complete)

    @cached_property
    def residuals(self) -> list[Residual]:
        """What physics leaves."""
        return residuals_of(self.physics)

    @cached_property
    def calibration(self) -> Calibration:
        """Fitted to all of it."""
        return fitted(self.residuals)

    @cached_property
    def held_out_sources(self) -> Validation:
        """Calibrated by all sources but the row's own."""
        fitted_to_all = self.calibration
        return recalibrated(
            self.physics, lambda one, source: calibrated(one, fitted_to_all.leaving_out(source))
        )

    @cached_property
    def held_out_models(self) -> Validation:
        """Calibrated by all runs but those of the row's model by the row's source."""
        moved = [figure for figure, one in self.calibration.figures.items() if one.shifts]
        known: dict[tuple[str, str], Calibration] = {}

        def one(prediction: Prediction, source: str) -> Prediction:
            key = source, prediction.model
            if key not in known:
                others = [r for r in self.residuals if (r.source, r.model) != key]
                known[key] = fit(others, as_of="", shifts=moved)
            return calibrated(prediction, known[key])

        return recalibrated(self.physics, one)

    @cached_property
    def shipped(self) -> Validation:
        """As the package answers: calibrated by all."""
        calibration = self.calibration
        return recalibrated(self.physics, lambda one, _source: calibrated(one, calibration))


def _replaying(runs: Sequence[MeasuredRun]) -> Callable[[object], bool]:
    """Jobs whose reserved or device memory was measured, or that ran out of memory."""
    wanted = set()
    for run in runs:
        kinds = (MemoryKind.RESERVED, MemoryKind.DEVICE)
        if run.measured.memory_kind in kinds or run.measured.out_of_memory:
            job = to_job(run)
            if not isinstance(job, Skip):
                wanted.add(repr(job))
    return lambda job: repr(job) in wanted


MEMORY = (Quantity.ALLOCATED, Quantity.RESERVED, Quantity.DEVICE)
