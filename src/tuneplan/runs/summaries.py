"""Errors of many runs, summed up: over all, and by each thing that may explain them.

``error_fraction`` is predicted likely over measured minus 1; median and P90 are of its absolute
value, the bias is its median with sign. Every figure stands twice: pooled over the runs, and as
the median over the sources of each source's own median (a pooled median is mostly two sources).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.runs.comparison import Comparison, Quantity

SINGLE: Final = "single"
SEVERAL: Final = "several"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison with what it may be grouped by.

    Attributes:
        cards: ``single`` or ``several`` accelerators.
        size: Of the model, as ``size_of`` has it.
    """

    run_id: str
    source: str
    method: str
    framework: str
    accelerator: str
    cards: str
    comparison: Comparison
    size: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The errors of one group of runs; a grouping field that is None covers all of its values.

    Attributes:
        quantity: What is compared; kinds of memory are never pooled.
        count: Runs.
        median_abs_error_fraction, p90_abs_error_fraction: Of the absolute error.
        bias_fraction: Median of the error with its sign.
        coverage_fraction: Share of runs whose measured value lies in the predicted range.
        median_width_fraction: Median of (high - low) / likely.
        num_sources: Sources among the runs.
        source_median_abs_error_fraction: Median over the sources of each source's median.
        source_median_p90_abs_error_fraction: Median over the sources of each source's P90.
    """

    quantity: Quantity
    count: int
    median_abs_error_fraction: float
    p90_abs_error_fraction: float
    bias_fraction: float
    coverage_fraction: float
    median_width_fraction: float
    num_sources: int
    source_median_abs_error_fraction: float
    source_median_p90_abs_error_fraction: float
    method: str | None = None
    framework: str | None = None
    accelerator: str | None = None
    source: str | None = None
    cards: str | None = None
    size: str | None = None


def size_of(parameters: int) -> str:
    """The class of a model's size, in billions of parameters."""
    for limit in _SIZES:
        if parameters < limit * 1e9:
            return f"< {limit}B"
    return f">= {_SIZES[-1]}B"


_SIZES: Final = (2, 5, 10, 20, 50)
_EVERYTHING: Final[Mapping[str, str]] = MappingProxyType({})
_GROUPINGS: Final[tuple[tuple[str, Callable[[Case], str]], ...]] = (
    ("cards", lambda case: case.cards),
    ("source", lambda case: case.source),
    ("method", lambda case: case.method),
    ("framework", lambda case: case.framework),
    ("accelerator", lambda case: case.accelerator),
    ("size", lambda case: case.size),
)


def summarise(cases: Sequence[Case]) -> tuple[Summary, ...]:
    """Summaries by quantity: over all runs first, then by cards, source, method and the rest.

    The order is fixed: quantities as they are listed, then groupings, then by size of the group
    and name. An empty sequence gives an empty tuple.
    """
    found: list[Summary] = []
    for quantity in Quantity:
        of_quantity = [case for case in cases if case.comparison.quantity is quantity]
        if not of_quantity:
            continue
        found.append(_summary(quantity, of_quantity))
        for name, value_of in _GROUPINGS:
            found += _grouped(quantity, of_quantity, name, value_of)
    return tuple(found)


def _grouped(
    quantity: Quantity, cases: Sequence[Case], name: str, value_of: Callable[[Case], str]
) -> list[Summary]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(value_of(case), []).append(case)
    ordered = sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [_summary(quantity, group, {name: value}) for value, group in ordered]


def _summary(
    quantity: Quantity, cases: Sequence[Case], group: Mapping[str, str] = _EVERYTHING
) -> Summary:
    sources: dict[str, list[float]] = {}
    for case in cases:
        sources.setdefault(case.source, []).append(abs(case.comparison.error_fraction))
    errors = [case.comparison.error_fraction for case in cases]
    absolute = [abs(error) for error in errors]
    return Summary(
        quantity=quantity,
        count=len(cases),
        median_abs_error_fraction=percentile(absolute, 50),
        p90_abs_error_fraction=percentile(absolute, 90),
        bias_fraction=percentile(errors, 50),
        coverage_fraction=sum(case.comparison.inside_interval for case in cases) / len(cases),
        median_width_fraction=percentile([case.comparison.width_fraction for case in cases], 50),
        num_sources=len(sources),
        source_median_abs_error_fraction=percentile(
            [percentile(values, 50) for values in sources.values()], 50
        ),
        source_median_p90_abs_error_fraction=percentile(
            [percentile(values, 90) for values in sources.values()], 50
        ),
        method=group.get("method"),
        framework=group.get("framework"),
        accelerator=group.get("accelerator"),
        source=group.get("source"),
        cards=group.get("cards"),
        size=group.get("size"),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest values (NumPy's default); ``values`` must not be empty."""
    import numpy as np  # late: the command line starts without it

    return float(np.percentile(np.asarray(values, dtype=float), percent))
