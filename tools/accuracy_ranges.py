"""The part of the page of accuracy about ranges: coverage, width, reliability, the two methods."""

from __future__ import annotations

from collections.abc import Sequence

import accuracy_texts as texts
from accuracy_runs import Case, Runs, cases
from accuracy_targets import coverage, grouped
from interval_methods import Score, compared

from tuneplan.planner.validate import Validation
from tuneplan.report.drawing import svg
from tuneplan.report.validation_charts import reliability
from tuneplan.runs.comparison import Quantity
from tuneplan.runs.summaries import percentile

TITLES = {
    Quantity.ALLOCATED: "Memory, allocated peak",
    Quantity.RESERVED: "Memory, reserved peak",
    Quantity.DEVICE: "Memory, whole device (`nvidia-smi`)",
    Quantity.TOKENS: "Tokens per second and accelerator",
    Quantity.REAL_TOKENS: "Tokens per second and accelerator, padding left out",
}


def ranges(runs: Runs) -> str:
    """The section."""
    return "\n".join(
        [
            texts.RANGES,
            texts.RANGES_HEAD,
            "|---|---|---|---|---|---|---|---|---|---|",
            *_coverage(runs),
            texts.RELIABILITY,
            texts.METHODS,
            *_methods(compared(runs.residuals)),
        ]
    )


def _coverage(runs: Runs) -> list[str]:
    ways = (runs.held_out_sources, runs.held_out_models, runs.shipped)
    by_way = [_by_figure(found) for found in ways]
    lines = []
    for quantity in Quantity:
        own = [one for one in cases(runs.shipped) if one.item.quantity is quantity]
        if not own:
            continue
        groups = [("**all**", own), *grouped(own, lambda one: one.source)]
        groups += grouped(own, lambda one: f"{one.source}, {_situation(one)}")
        for name, found in groups:
            shares = [
                cell
                for way in by_way
                for cell in _held([way[(one.row.run.id, quantity)] for one in found])
            ]
            error = percentile([one.error for one in found], 50)
            width = percentile([one.item.width_fraction for one in found], 50)
            ratio = f"{width / error:.1f}" if error > 0 else "-"
            lines.append(
                f"| {TITLES[quantity].lower()} | {name} | {len(found)} | {' | '.join(shares)} | "
                f"{ratio} |"
            )
    return lines


def _situation(one: Case) -> str:
    found = one.predicted.situation
    return f"{found.method}, {found.layout}, {found.chip}" if found else "-"


def _by_figure(found: Validation) -> dict[tuple[str, Quantity], Case]:
    return {(one.row.run.id, one.item.quantity): one for one in cases(found)}


def _held(found: Sequence[Case]) -> list[str]:
    share = coverage(found) or 0.0
    width = percentile([one.item.width_fraction for one in found], 50)
    return [f"{share:.0%}", f"{width:.1%}"]


def _methods(scores: Sequence[Score]) -> list[str]:
    pairs = list(zip(scores[::2], scores[1::2], strict=True))
    return [
        "| figure | held out | method | runs | coverage | lowest source | width | score |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| `{one.figure}` | {one.held_out} | {one.method} | {one.count} | "
            f"{one.coverage:.0%} | {one.worst_source:.0%} | {one.width:.1%} | "
            f"{one.interval_score:.3f} |"
            for one in scores
        ),
        texts.CHOSEN.format(
            won=sum(one.interval_score < other.interval_score for one, other in pairs),
            all=len(pairs),
            own=_miss(scores[::2]),
            other=_miss(scores[1::2]),
        ),
    ]


def _miss(scores: Sequence[Score]) -> float:
    return sum(abs(one.coverage - 0.8) for one in scores) / len(scores)


def picture(runs: Runs) -> str:
    """The reliability plot as SVG."""
    series = {}
    for way, found in (
        ("source held out", runs.held_out_sources),
        ("model held out", runs.held_out_models),
    ):
        for memory, word in ((True, "memory"), (False, "throughput")):
            series[f"{word}, {way}"] = [
                one.item.probability
                for one in cases(found)
                if one.item.quantity.is_memory is memory and one.item.probability is not None
            ]
    drawn = svg(reliability(series, title=""), label="Reliability of the ranges")
    return drawn.replace("<svg ", '<svg style="background:#fff" ', 1) + "\n"
