"""When a pilot's step time is steady: where the warm-up ends, and how well the rest is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Basis, Estimate

_Z80: Final = 1.2816
# Student's t at the 90th percentile by degrees of freedom; a few steps tell little of their spread.
_T80: Final = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)
FEWEST_STEPS: Final = 5  # steady ones, before a pilot may stop
WARM_UP_STEPS: Final = 2  # at least: kernels are chosen, caches filled
_MOST_WARM_UP_FRACTION: Final = 0.5
_ENOUGH: Final = 0.02  # relative error at which more steps are not worth their time
_SETTLED: Final = 1.10  # a step within this of the median of the rest is no warm-up any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """What the steps of a pilot say.

    Attributes:
        warm_up_steps: At the start, not counted.
        seconds_per_token: Of a computed position, over the steady steps: their time over their
            tokens, so that batches of different lengths may be compared.
        relative_error: Half the width of its 80 % interval over it; infinite with one step.
        stable: Enough steps, known well enough, without a trend.
    """

    warm_up_steps: int
    seconds_per_token: float
    relative_error: float
    stable: bool


def warm_up_of(rates: Sequence[float]) -> int:
    """Steps at the start that are slower than the rest by more than a tenth, two at least."""
    if len(rates) <= WARM_UP_STEPS:
        return max(len(rates) - 1, 0)
    most = max(int(len(rates) * _MOST_WARM_UP_FRACTION), WARM_UP_STEPS)
    settled = median(rates[most:] or rates[-1:])
    for number in range(WARM_UP_STEPS, most):
        if rates[number] <= _SETTLED * settled:
            return number
    return most


def steadiness(steps_s: Sequence[float], tokens: Sequence[float]) -> Steadiness:
    """Judge the steps so far.

    Args:
        steps_s: Seconds of each optimizer step.
        tokens: Positions computed in each, padding included.
    """
    rates = [seconds / max(count, 1) for seconds, count in zip(steps_s, tokens, strict=True)]
    skipped = warm_up_of(rates)
    times, counts, kept = steps_s[skipped:], tokens[skipped:], rates[skipped:]
    total_tokens = sum(counts)
    per_token = sum(times) / max(total_tokens, 1)
    if len(kept) < 2 or per_token <= 0:
        return Steadiness(
            warm_up_steps=skipped,
            seconds_per_token=per_token,
            relative_error=math.inf,
            stable=False,
        )
    # The ratio of two sums: residuals of each step from what its tokens should take.
    mean_tokens = total_tokens / len(counts)
    residuals = [seconds - per_token * count for seconds, count in zip(times, counts, strict=True)]
    error = stdev(residuals, 0.0) / mean_tokens / math.sqrt(len(kept))
    freedom = len(kept) - 1
    factor = _T80[freedom - 1] if freedom <= len(_T80) else _Z80 * (1 + 0.7 / freedom)
    relative = factor * error / per_token
    half = len(kept) // 2
    trend = abs(fmean(kept[half:]) / fmean(kept[:half]) - 1)
    return Steadiness(
        warm_up_steps=skipped,
        seconds_per_token=per_token,
        relative_error=relative,
        stable=len(kept) >= FEWEST_STEPS
        and (relative <= _ENOUGH or len(kept) >= 4 * FEWEST_STEPS)
        and trend <= max(3 * relative, 2 * _ENOUGH),
    )


def step_range(found: Steadiness, tokens_per_step: float) -> Estimate:
    """Seconds of a step of so many positions, as a range."""
    likely = found.seconds_per_token * tokens_per_step
    away = min(found.relative_error, 1.0)
    return Estimate(
        low=likely * (1 - min(away, 0.9)),
        likely=likely,
        high=likely * (1 + away),
        basis=Basis.MEASURED,
    )
