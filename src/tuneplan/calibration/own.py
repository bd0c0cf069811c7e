"""What the user's own measurements say of a job: a factor that carries over, with its doubt.

The logarithm of measured over predicted seconds (or bytes, each figure by itself) is a Gaussian
process over jobs. Its variance for a
job is that of the predicted range; two jobs share as much of it as they have in common: half on the
same chip, a quarter more with the same code and method, the rest as far as sizes and lengths are
alike. So a pilot of the very job leaves little doubt, one of another length or model a bit more,
one of another method more, one on another chip nearly all. Source: Rasmussen and Williams,
"Gaussian Processes for Machine Learning" (2006), equations 2.25 and 2.26.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tuneplan.calibration.situations import Situation
from tuneplan.frozen import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHIP_SHARE: Final = 0.50
_CODE_SHARE: Final = 0.25
_NEAR_SHARE: Final = 0.25
_OTHER_CHIP_SHARE: Final = 0.10  # the same code and method elsewhere
_FACTOR_APART: Final = math.log(4.0)  # sizes that differ by this factor have little in common
# A measurement is off by so much anyway: of speed, of memory.
_FLOOR: Final = 0.01
_MEMORY_FLOOR: Final = 0.003
# And two runs of one job differ in speed: runs ten times as long as their pilots were 1 to 3 % off,
# three jobs on a shared processor (docs/internals/pilot_end_to_end.md).
_RUNS_DIFFER: Final = 0.02


class Quantity(StrEnum):
    """What was measured; kinds of memory never mix."""

    STEP = "step"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A job among others.

    Attributes:
        situation: Chip, code, method, layout.
        parameters: Of the model, in all.
        micro_batch_tokens: Positions of a micro-batch.
        length: Of a row.
    """

    situation: Situation
    parameters: float
    micro_batch_tokens: float
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured figure of a job.

    Attributes:
        log_ratio: Of measured over predicted.
        deviation: How well it was measured (of the logarithm).
        prior: How well it was predicted (of the logarithm).
        name: Of the measurement.
    """

    place: Place
    log_ratio: float
    deviation: float
    prior: float
    name: str
    quantity: Quantity = Quantity.STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What measurements say of one job.

    Attributes:
        factor: On the predicted figure.
        deviation: Of the logarithm of the corrected one.
        share: Of the predicted doubt that is gone, 0 to 1.
        names: Of the measurements, the nearest first.
    """

    factor: float
    deviation: float
    share: float
    names: tuple[str, ...]


def alike(one: Place, other: Place, quantity: Quantity = Quantity.STEP) -> float:
    """The share of their error that two jobs have in common, 1 for the same job.

    What tensors take depends on no chip; how fast they are, and what else a process holds, does.
    """
    a, b = one.situation, other.situation
    same_code = (a.code, a.method) == (b.code, b.method)
    if a.chip != b.chip and quantity is not Quantity.ALLOCATED:
        return _OTHER_CHIP_SHARE if same_code else 0.0
    if not same_code:
        return _CHIP_SHARE
    shared = _CHIP_SHARE + _CODE_SHARE
    if a.layout != b.layout:
        return shared
    apart = sum(
        (math.log(max(x, 1e-9) / max(y, 1e-9)) / _FACTOR_APART) ** 2
        for x, y in (
            (one.parameters, other.parameters),
            (one.micro_batch_tokens, other.micro_batch_tokens),
            (one.length, other.length),
        )
    )
    return shared + _NEAR_SHARE * math.exp(-apart / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The user's own measurements."""

    observations: tuple[Observation, ...]

    def correction(
        self, place: Place, prior: float, quantity: Quantity = Quantity.STEP
    ) -> Correction | None:
        """What they say of a job whose predicted figure has the deviation ``prior``."""
        known = [
            (alike(one.place, place, quantity), one)
            for one in self.observations
            if one.quantity is quantity
        ]
        near = [(share, one) for share, one in known if share > 0]
        if not near or prior <= 0:
            return None
        mean, variance = _posterior([one for _, one in near], place, prior, quantity)
        ordered = sorted(near, key=lambda pair: -pair[0])
        return Correction(
            factor=math.exp(mean),
            deviation=math.sqrt(variance + _between_runs(quantity) ** 2),
            share=min(max(1 - variance / prior**2, 0.0), 1.0),
            names=tuple(one.name for _, one in ordered),
        )


def _floor(quantity: Quantity) -> float:
    return _FLOOR if quantity is Quantity.STEP else _MEMORY_FLOOR


def _between_runs(quantity: Quantity) -> float:
    return _RUNS_DIFFER if quantity is Quantity.STEP else _MEMORY_FLOOR


def _posterior(
    observations: Sequence[Observation], place: Place, prior: float, quantity: Quantity
) -> tuple[float, float]:
    """Mean and variance of the logarithm of the factor.

    What a job with a wide range has in common with the measured ones is no wider than theirs; the
    rest of its doubt is its own. Else a close prediction that was off a little would throw a wide
    one far off.
    """
    import numpy as np

    scales = np.array([one.prior for one in observations])
    common = min(prior, float(scales.max()))
    between = np.array(
        [[alike(a.place, b.place, quantity) for b in observations] for a in observations]
    )
    # Two measurements of one job differ by their own noise alone.
    noise = np.diag([one.deviation**2 + _floor(quantity) ** 2 for one in observations])
    covariance = between * np.outer(scales, scales) + noise
    shares = np.array([alike(one.place, place, quantity) for one in observations])
    towards = shares * scales * common
    weights = _solved(covariance, towards)
    mean = float(weights @ np.array([one.log_ratio for one in observations]))
    variance = float(prior**2 - weights @ towards)
    return mean, min(max(variance, 0.0), prior**2)


def _solved(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])
