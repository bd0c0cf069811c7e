"""Fit the calibration that comes with the package, from ``evidence/`` alone.

``python tools/calibrate.py`` predicts every run by physics, sums up what is left, and writes
``src/tuneplan/catalog/data/calibration.json``. Whether a likely figure is moved is decided by
sources that were held out, figure by figure; what was compared is printed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan.calibration.calibrated import Calibration, fit, to_plain  # noqa: E402
from tuneplan.calibration.evidence import Residual, tallies  # noqa: E402
from tuneplan.calibration.shift import CHIP, PROGRAM, log_shift  # noqa: E402
from tuneplan.calibration.situations import Figure  # noqa: E402
from tuneplan.catalog.calibration import PATH  # noqa: E402
from tuneplan.estimation.uncertainty import prior_distances, reserved_prior  # noqa: E402
from tuneplan.planner.predicting import Predictor  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402
from tuneplan.planner.validate import Validation, validate  # noqa: E402
from tuneplan.runs.comparison import Comparison, Prediction, Quantity  # noqa: E402

EVIDENCE = ROOT / "evidence"
FIGURES = {
    Quantity.ALLOCATED: Figure.ALLOCATED,
    Quantity.RESERVED: Figure.RESERVED,
    Quantity.TOKENS: Figure.TOKENS,
}


def by_physics() -> Validation:
    """Every run of the evidence, predicted with nothing fitted."""
    return validate(EVIDENCE, predict=Predictor(Sources(today=date(2026, 11, 30))))


def residuals_of(found: Validation) -> list[Residual]:
    """What physics leaves, figure by figure."""
    return [
        one
        for row in found.rows
        if row.predicted is not None
        for item in row.compared
        if (one := _residual(row.run.id, row.run.source, row.predicted, item)) is not None
    ]


def _residual(run: str, source: str, predicted: Prediction, item: Comparison) -> Residual | None:
    figure = FIGURES.get(item.quantity)
    if figure is None or predicted.situation is None:
        return None
    below, above = _prior(figure, predicted)
    if min(below, above) <= 0:
        return None
    return Residual(
        figure=figure,
        run=run,
        source=source,
        model=predicted.model,
        situation=predicted.situation,
        log_ratio=math.log(item.measured / item.likely),
        prior_below=below,
        prior_above=above,
    )


def _prior(figure: Figure, predicted: Prediction) -> tuple[float, float]:
    physics, step = predicted.physics, predicted.step_s
    if physics is None:
        return 0.0, 0.0
    if figure is Figure.ALLOCATED:
        return prior_distances(physics.prior)
    if figure is Figure.RESERVED:
        return reserved_prior(physics.prior, physics.reserving)
    if step is None:
        return 0.0, 0.0
    return math.log(step.high / step.likely), math.log(step.likely / step.low)


# --- does a factor help? --------------------------------------------------------------------------

Fold = Callable[[Residual], object]


def held_out(residuals: Sequence[Residual], fold: Fold) -> Iterator[tuple[Residual, float]]:
    """Each residual with the factor that was fitted without its fold."""
    for part in dict.fromkeys(map(fold, residuals)):
        others = [one for one in residuals if fold(one) != part]
        chips, programs = tallies(others, CHIP), tallies(others, PROGRAM)
        for one in residuals:
            if fold(one) == part:
                yield one, log_shift(chips, programs, one.situation)


def errors(pairs: Sequence[tuple[Residual, float]]) -> tuple[float, float, float]:
    """Median and P90 of the absolute error, and the median over sources of each one's median."""
    of = [(one.source, abs(math.exp(shift - one.log_ratio) - 1.0)) for one, shift in pairs]
    every = sorted(error for _, error in of)
    sources = {name for name, _ in of}
    return (
        median(every),
        every[min(int(0.9 * len(every)), len(every) - 1)],
        median(median(error for name, error in of if name == source) for source in sources),
    )


def helps(residuals: Sequence[Residual], figure: Figure) -> bool:
    """Whether held-out sources are predicted better with a factor, pooled and source by source."""
    own = [one for one in residuals if one.figure is figure]
    if not own:
        return False
    physics = errors([(one, 0.0) for one in own])
    source = errors(list(held_out(own, lambda one: one.source)))
    model = errors(list(held_out(own, lambda one: (one.source, one.model))))
    print(f"{figure.value}: {len(own)} figures; median, P90, median of sources")
    for name, one in (
        ("physics", physics),
        ("held-out sources", source),
        ("held-out models", model),
    ):
        print(f"  {name:17}" + "  ".join(f"{value:7.2%}" for value in one))
    better = source[0] < physics[0] and source[2] < physics[2] and source[1] <= physics[1]
    print(f"  a factor {'helps: applied' if better else 'does not help: none is applied'}")
    return better


def fitted(residuals: Sequence[Residual]) -> Calibration:
    """The calibration, with factors where they help."""
    moved = [figure for figure in Figure if helps(residuals, figure)]
    return fit(residuals, as_of=datetime.now(tz=UTC).date().isoformat(), shifts=moved)


def write(calibration: Calibration) -> None:
    """Put it where the package finds it."""
    text = json.dumps(to_plain(calibration), separators=(",", ":"), sort_keys=True)
    PATH.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {PATH.relative_to(ROOT)}: {calibration.rows} figures, {len(text):,} bytes")


if __name__ == "__main__":
    write(fitted(residuals_of(by_physics())))
