"""What a use-case may look at: catalogues, with the user's own files before the bundled facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tuneplan.calibration.calibrated import Calibration
from tuneplan.calibration.own import Own
from tuneplan.catalog.accelerators import AcceleratorCatalog, load_accelerators
from tuneplan.catalog.calibration import load_calibration
from tuneplan.catalog.kernels import load_curves
from tuneplan.catalog.models import ModelCatalog, load_models
from tuneplan.catalog.offers import OfferCatalog, load_offers, refreshed_file
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.planner.known import Estimates
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.stated import StatedJob
from tuneplan.tracing.folder import cache_folder

if TYPE_CHECKING:
    from tuneplan.planner.tables import Tables
    from tuneplan.tracing.cache import TraceCache


@dataclass(frozen=True)
class Sources:
    """Catalogues, read when first needed.

    Attributes:
        today: The day that the age of prices is counted to; the caller knows it.
        trace_folder: Where earlier traces lie; None where none is to be looked for.
        refreshed_prices: What ``tuneplan prices refresh`` wrote; None where it does not count.
        calibrated: Whether ranges (and, where it helps, likely figures) come from measured runs.
        fitted: A calibration in place of the bundled one.
        own: The user's own measurements; None where they are not asked for.
    """

    model_files: tuple[Path, ...] = ()
    accelerator_files: tuple[Path, ...] = ()
    price_files: tuple[Path, ...] = ()
    today: date = date(2026, 11, 30)
    trace_folder: Path | None = None
    refreshed_prices: Path | None = None
    calibrated: bool = True
    fitted: Calibration | None = None
    own: Own | None = None

    @property
    def calibration(self) -> Calibration | None:
        """What measured runs teach; None for physics alone."""
        if not self.calibrated:
            return None
        return self.fitted or load_calibration()

    @cached_property
    def models(self) -> ModelCatalog:
        """Models."""
        return load_models(self.model_files)

    @cached_property
    def accelerators(self) -> AcceleratorCatalog:
        """Chips."""
        return load_accelerators(self.accelerator_files)

    @cached_property
    def offers(self) -> OfferCatalog:
        """Prices."""
        return load_offers(self.accelerators, self.price_files, self.refreshed_prices)

    @cached_property
    def traces(self) -> TraceCache | None:
        """Earlier traces; what reads them is imported when first asked for."""
        from tuneplan.tracing.cache import TraceCache

        return TraceCache(self.trace_folder) if self.trace_folder is not None else None

    @cached_property
    def estimates(self) -> Estimates:
        """Jobs that were estimated before."""
        return Estimates()

    @cached_property
    def tables(self) -> Tables:
        """Spaces that were searched before."""
        from tuneplan.planner.tables import Tables

        return Tables()

    @cached_property
    def serial(self) -> str:
        """Tells these catalogues from the same files read at another time."""
        return uuid4().hex

    def unread(self) -> Sources:
        """The same catalogues with nothing of them read yet: what another process is told."""
        return replace(self)

    def curves(self, accelerator: Accelerator) -> ChipCurves:
        """Measured or borrowed kernel times of a chip."""
        return load_curves(accelerator)


def sources_for(job: StatedJob, *, today: date, calibrated: bool = True) -> Sources:
    """The catalogues with the files that the job names.

    Raises:
        InvalidRequest: Every mistake in the user's own files, whether or not they are needed.
    """
    base = Path(job.base_path)
    sources = Sources(
        model_files=tuple(base / name for name in job.models),
        accelerator_files=tuple(base / name for name in job.accelerators),
        price_files=tuple(base / name for name in job.prices),
        today=today,
        trace_folder=cache_folder(),
        refreshed_prices=refreshed_file(),
        calibrated=calibrated,
    )
    _read_own_files(sources)
    return sources


def _read_own_files(sources: Sources) -> None:
    mistakes: list[Mistake] = []
    for files, catalogue in (
        (sources.model_files, "models"),
        (sources.accelerator_files, "accelerators"),
        (sources.price_files, "offers"),
    ):
        if not files:
            continue
        try:
            getattr(sources, catalogue)
        except InputError as error:
            mistakes += [one for one in error.mistakes if one not in mistakes]
    if mistakes:
        raise InvalidRequest(mistakes)
