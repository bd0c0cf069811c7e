"""Write ``docs/accuracy.md``: predictions against the measured runs of ``evidence/``.

``python tools/accuracy_page.py`` (``make accuracy``) predicts every run, fits the calibration that
ships (``tools/calibrate.py``), and writes the page, its picture and ``docs/accuracy.json``, whose
figures a test holds against the code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from accuracy_ablation import Line, ablation  # noqa: E402 - beside this file
from accuracy_analysis import ANALYSIS  # noqa: E402
from accuracy_jobs import section as three_jobs  # noqa: E402
from accuracy_runs import Case, Runs, cases  # noqa: E402
from accuracy_targets import (  # noqa: E402
    Figure,
    by_source,
    coverage,
    figures,
    grouped,
    spread_of_errors,
)
from accuracy_verdicts import boundary_rows, verdict_rows, wrong  # noqa: E402
from calibrate import write  # noqa: E402
from interval_methods import Score, compared  # noqa: E402

from tuneplan import __version__  # noqa: E402
from tuneplan.planner.validate import Validation  # noqa: E402
from tuneplan.report.drawing import svg  # noqa: E402
from tuneplan.report.validation import largest_terms  # noqa: E402
from tuneplan.report.validation_charts import reliability  # noqa: E402
from tuneplan.runs.comparison import Quantity  # noqa: E402
from tuneplan.runs.summaries import percentile  # noqa: E402
from tuneplan.units import format_gib  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = ROOT / "docs" / "accuracy.json"
PICTURE = ROOT / "docs" / "accuracy-reliability.svg"
TITLES = {
    Quantity.ALLOCATED: "Memory, allocated peak",
    Quantity.RESERVED: "Memory, reserved peak",
    Quantity.DEVICE: "Memory, whole device (`nvidia-smi`)",
    Quantity.TOKENS: "Tokens per second and accelerator",
    Quantity.REAL_TOKENS: "Tokens per second and accelerator, padding left out",
}
HEAD = """<!-- Made by tools/accuracy_page.py. -->

# Accuracy

Predictions of tuneplan {version} against the published runs of [evidence/](../evidence/README.md),
made on {day} by `make accuracy`.
Bad rows are included. `tuneplan validate RUNS.csv` does the same for yours.

**What was held out, and what was not.** The physics is fitted to no run, but where runs and
prediction disagreed, the frameworks' code was read until the reason was found (decisions
[0003](internals/decisions/0003-what-a-step-executes.md),
[0004](internals/decisions/0004-memory-by-source.md),
[0007](internals/decisions/0007-split-models.md)), and a few constants were read off published
runs, as those pages say: expect more on jobs unlike these.
The calibration (ranges of every figure; factors where they help) is fitted to residuals. Its
figures are given for runs that it did not see: *each source held out* stands for a job unlike the
evidence, *each model of a source held out* for a job with evidence near by.

Of {total:,} runs {predicted:,} were predicted; the others are skipped, with their reasons below.
Errors count runs that state all that decides the figure. Median and P90 are of the absolute error.
Figures stand twice: pooled over the runs, and as medians over the sources of each source's own
median and P90, since a pooled median is mostly two sources.
"""


def page(runs: Runs, lines: Sequence[Figure]) -> str:
    """The whole page as Markdown."""
    found = runs.physics
    day = datetime.now(tz=UTC).date().isoformat()
    predicted = sum(row.status == "predicted" for row in found.rows)
    head = HEAD.format(version=__version__, day=day, total=len(found.rows), predicted=predicted)
    parts = [
        head,
        "## Targets\n\n" + "\n".join(_targets(lines)) + "\n",
        _analysis(lines),
        *(_errors(runs, quantity) for quantity in Quantity),
        "## Ranges\n\n" + _ranges(runs),
        "## What each part buys\n\n" + "\n".join(_ablation(ablation(runs))) + "\n",
        "## Does it fit?\n\n" + _verdicts(runs),
        "## Three jobs that others were asked about\n\n" + three_jobs(),
        "## The worst runs\n\n" + _worst(runs),
        "## Skipped\n\n" + "\n".join(_skipped(found)) + "\n",
        "## Sources\n\n" + "\n".join(_sources(runs)) + "\n",
    ]
    return "\n".join(part for part in parts if part)


# --- targets --------------------------------------------------------------------------------------


def _targets(lines: Sequence[Figure]) -> Iterator[str]:
    yield "| figure | runs | must reach | measured | over sources | met | aim |"
    yield "|---|---|---|---|---|---|---|"
    for one in lines:
        if one.key.startswith("coverage"):
            must, aim, measured = "72 - 90 %", "78 - 85 %", one.note
        else:
            must, aim, measured = map(_pair, (one.must, one.aim, one.measured))
        sources = _pair(one.by_source) if one.by_source else ""
        name = (
            one.name
            if one.key.startswith("coverage") or not one.note
            else (f"{one.name} ({one.note})")
        )
        met = {True: "yes", False: "**no**", None: "-"}[one.met]
        aimed = {True: "yes", False: "no", None: "-"}[one.aimed] if aim else ""
        yield f"| {name} | {one.count} | {must} | {measured} | {sources} | {met} | {aim} {aimed} |"
    yield ""
    yield (
        "Figures of pilots (a longer run after a pilot on the same machine) have no row: no "
        "published run comes with one."
    )


def _pair(pair: tuple[float | None, float | None]) -> str:
    return " / ".join(f"{100 * one:.3g} %" for one in pair if one is not None)


def _analysis(lines: Sequence[Figure]) -> str:
    missed = [one for one in lines if one.met is False]
    if not missed:
        return ""
    texts = [
        f"- **{one.name}**: {ANALYSIS.get(one.key, ANALYSIS.get(one.key.split('_')[0], ''))}"
        for one in missed
    ]
    return "### Missed, why, and what would fix it\n\n" + "\n".join(texts) + "\n"


# --- errors ---------------------------------------------------------------------------------------

_GROUPS: tuple[tuple[str, Callable[[Case], str]], ...] = (
    ("source", lambda one: one.source),
    ("cards", lambda one: "one accelerator" if one.cards == 1 else "several accelerators"),
    ("method", lambda one: one.predicted.situation.method if one.predicted.situation else "-"),
    (
        "framework",
        lambda one: one.predicted.situation.framework if one.predicted.situation else "-",
    ),
    ("chip", lambda one: one.predicted.situation.chip if one.predicted.situation else "-"),
)


def _errors(runs: Runs, quantity: Quantity) -> str:
    physics = [one for one in cases(runs.physics) if one.item.quantity is quantity]
    if not physics:
        return ""
    held = {one.row.run.id: one for one in cases(runs.held_out_sources)
            if one.item.quantity is quantity}  # fmt: skip
    lines = [
        f"## {TITLES[quantity]}\n",
        "| runs of | runs | median | P90 | bias | calibrated, source held out | |",
        "|---|---|---|---|---|---|---|",
        _error_line("**all**", physics, held),
    ]
    pooled = by_source(physics)
    if pooled is not None:
        held_pooled = by_source([held[one.row.run.id] for one in physics])
        shown = [f"{value:.1%}" for value in (*pooled, *(held_pooled or ()))]
        lines.append(
            f"| median over sources | {len({one.source for one in physics})} | {shown[0]} | "
            f"{shown[1]} | | {shown[2]} | {shown[3]} |"
        )
    for _, by in _GROUPS:
        groups = grouped(physics, by, least=1)
        if len(groups) > 1:
            lines += [_error_line(name, own, held) for name, own in groups]
    return "\n".join(lines) + "\n"


def _error_line(name: str, own: Sequence[Case], held: dict[str, Case]) -> str:
    median, at_p90 = spread_of_errors(own)
    calibrated = spread_of_errors([held[one.row.run.id] for one in own])
    bias = percentile([one.item.error_fraction for one in own], 50)
    return (
        f"| {name} | {len(own)} | {median:.1%} | {at_p90:.1%} | {bias:+.1%} | "
        f"{calibrated[0]:.1%} | {calibrated[1]:.1%} |"
    )


# --- ranges ---------------------------------------------------------------------------------------


def _ranges(runs: Runs) -> str:
    ways = (runs.held_out_sources, runs.held_out_models, runs.shipped)
    by_way = [_by_figure(found) for found in ways]
    lines = [
        (
            "P10 to P90, so that 80 % would be right. Coverage and width (high - low, over likely) of "
            "each group of at least 15 runs, with its source held out, with the model of the run held "
            "out, and as shipped (which has seen these runs). The last column is the width as shipped "
            "over the group's median error; four is about what a normal curve needs, more where "
            "errors have a long tail.\n"
        ),
        (
            "| figure | runs of | runs | source held out | | model held out | | as shipped | | width / "
            "median error |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
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
    lines += [
        "\n![Reliability of the ranges](accuracy-reliability.svg)\n",
        (
            "The share of runs that had at most what was given a probability, with each source held "
            "out and with each model of a source held out; the diagonal would be right, the grey band "
            "is ten points around it.\n"
        ),
        "### Which way from residuals to ranges\n",
        (
            "Two were compared on runs that were held out: hierarchical Bayes, which shrinks the scale "
            "of a cell of like runs towards the tier before it, and conformal prediction by cells. The "
            "interval score counts the width (as a logarithm) and ten times every miss: lower is "
            "better.\n"
        ),
        "| figure | held out | method | runs | coverage | lowest source | width | score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    scores = compared(runs.residuals)
    lines += [
        f"| `{one.figure}` | {one.held_out} | {one.method} | {one.count} | {one.coverage:.0%} | "
        f"{one.worst_source:.0%} | {one.width:.1%} | {one.interval_score:.3f} |"
        for one in scores
    ]
    pairs = list(zip(scores[::2], scores[1::2], strict=True))
    won = sum(one.interval_score < other.interval_score for one, other in pairs)
    lines.append(
        f"\nHierarchical Bayes has the lower score in {won} of {len(pairs)} comparisons, and misses "
        f"80 % by {_miss(scores[::2]):.0%} on average, conformal prediction by "
        f"{_miss(scores[1::2]):.0%}, always to the narrow side. The first ships: where both are "
        "about as good, a range that is too wide does less harm than one that is too narrow, and "
        "it has tails for probabilities and an answer where no cell has enough runs.\n"
    )
    return "\n".join(lines)


def _miss(scores: Sequence[Score]) -> float:
    return sum(abs(one.coverage - 0.8) for one in scores) / len(scores)


def _situation(one: Case) -> str:
    found = one.predicted.situation
    return f"{found.method}, {found.layout}, {found.chip}" if found else "-"


def _by_figure(found: Validation) -> dict[tuple[str, Quantity], Case]:
    return {(one.row.run.id, one.item.quantity): one for one in cases(found)}


def _held(found: Sequence[Case]) -> list[str]:
    share = coverage(found) or 0.0
    width = percentile([one.item.width_fraction for one in found], 50)
    return [f"{share:.0%}", f"{width:.1%}"]


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


# --- the rest -------------------------------------------------------------------------------------


def _ablation(lines: Sequence[Line]) -> Iterator[str]:
    yield "Errors (median / P90) as predicted, and with one part taken away and nothing else.\n"
    yield "| figure | part | runs | with it | without |"
    yield "|---|---|---|---|---|"
    for one in lines:
        yield (
            f"| {one.figure} | {one.part} | {one.count} | {_pair(one.full)} | "
            f"{_pair(one.without)} |"
        )


def _verdicts(runs: Runs) -> str:
    said = runs.shipped.verdicts
    labelled = [row for row in runs.physics.rows if row.run.measured.out_of_memory is True]
    skipped = [row for row in labelled if row.predicted is None]
    lines = [
        (
            f"{said.num_ran:,} predicted runs are known to have run, {said.num_out_of_memory} to have "
            f"run out of memory. {said.missed_oom} of these were said to fit, {said.false_oom} of "
            f"those not to; {said.tight} are called tight. {len(skipped)} more ran out of memory and "
            "are skipped, since their rows leave open what was run.\n"
        ),
        "Every wrong verdict:\n",
        "| runs | which | what happened, verdict | allocated, of | why |",
        "|---|---|---|---|---|",
        *verdict_rows(wrong(runs.shipped)),
        "",
        "Runs published as the largest that fits, or the first that does not:\n",
        "| run | model | cards | sequences x tokens | what happened | verdict |",
        "|---|---|---|---|---|---|",
        *boundary_rows(runs.shipped),
        "",
        (
            "Reports of users whose job ran out of memory are held against `tuneplan oom` on [a page "
            "of their own](internals/field_reports.md); those that state model, card, length and "
            "batch stand in `evidence/field.toml` and count above."
        ),
    ]
    return "\n".join(lines) + "\n"


def _worst(runs: Runs) -> str:
    lines = [
        "By physics alone, the largest errors of each figure.\n",
        "| run | figure | measured | predicted | error | largest terms |",
        "|---|---|---|---|---|---|",
    ]
    for quantity in Quantity:
        own = [one for one in cases(runs.physics) if one.item.quantity is quantity]
        own.sort(key=lambda one: (-one.error, one.row.run.id))
        for one in own[:8]:
            item = one.item
            show = format_gib if quantity.is_memory else "{:,.0f}".format
            terms = largest_terms(one.row, memory=quantity.is_memory)
            lines.append(
                f"| {one.row.run.id} | {TITLES[quantity].lower()} | {show(item.measured)} | "
                f"{show(item.likely)} | {item.error_fraction:+.0%} | {terms} |"
            )
    return "\n".join(lines) + "\n"


def _skipped(found: Validation) -> Iterator[str]:
    yield "| runs | reason | for example |"
    yield "|---|---|---|"
    for one in found.skipped:
        yield f"| {one.count} | `{one.code}` | {str(one.example).replace('|', '/')} |"


def _sources(runs: Runs) -> Iterator[str]:
    yield "| source | runs | published in |"
    yield "|---|---|---|"
    counts: dict[str, int] = {}
    for row in runs.physics.rows:
        counts[row.run.source] = counts.get(row.run.source, 0) + 1
    for name, where in sorted(runs.evidence.published.items()):
        yield f"| {name} | {counts.get(name, 0)} | {where} |"


def plain(lines: Sequence[Figure]) -> str:
    """The figures as JSON, for the test that keeps them."""
    return (
        json.dumps(
            {
                one.key: {
                    "runs": one.count,
                    "measured": [None if m is None else round(m, 5) for m in one.measured],
                    "met": one.met,
                }
                for one in lines
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    RUNS = Runs()
    write(RUNS.calibration)
    LINES = figures(RUNS)
    PAGE.write_text(page(RUNS, LINES), encoding="utf-8")
    PICTURE.write_text(picture(RUNS), encoding="utf-8")
    FIGURES.write_text(plain(LINES), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, {PICTURE.name}, {FIGURES.name}")
