"""Write ``docs/accuracy.md``: predictions against the measured runs of ``evidence/``.

``python tools/accuracy_page.py`` (``make accuracy``) predicts every run, fits the calibration that
ships (``tools/calibrate.py``), and writes the page, its picture, ``docs/accuracy.json``, whose
figures a test holds against the code, and what the package shows of it (``accuracy_bundle.py``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import accuracy_texts as texts  # noqa: E402 - beside this file
from accuracy_ablation import Line, ablation  # noqa: E402 - beside this file
from accuracy_analysis import ANALYSIS  # noqa: E402
from accuracy_bundle import bundle  # noqa: E402
from accuracy_jobs import section as three_jobs  # noqa: E402
from accuracy_ranges import TITLES, picture, ranges  # noqa: E402
from accuracy_runs import Case, Runs, cases  # noqa: E402
from accuracy_targets import (  # noqa: E402
    Figure,
    by_source,
    figures,
    grouped,
    spread_of_errors,
)
from accuracy_verdicts import boundary_rows, verdict_rows, wrong  # noqa: E402
from calibrate import write  # noqa: E402

from tuneplan import __version__  # noqa: E402
from tuneplan.planner.validate import Validation  # noqa: E402
from tuneplan.report.validation import largest_terms  # noqa: E402
from tuneplan.runs.comparison import Quantity  # noqa: E402
from tuneplan.runs.summaries import percentile  # noqa: E402
from tuneplan.units import format_gib  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = ROOT / "docs" / "accuracy.json"
PICTURE = ROOT / "docs" / "accuracy-reliability.svg"
BUNDLE = ROOT / "src" / "tuneplan" / "catalog" / "data" / "accuracy.json"
HEAD = """<!-- Made by tools/accuracy_page.py. -->

# Accuracy

Predictions of tuneplan {version} against the published runs of `evidence/`,
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
        "## Ranges\n" + ranges(runs),
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
    yield texts.PILOTS


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
    skipped = [
        row
        for row in runs.physics.rows
        if row.run.measured.out_of_memory is True and row.predicted is None
    ]
    return "\n".join(
        [
            texts.VERDICTS.format(
                ran=said.num_ran,
                oom=said.num_out_of_memory,
                missed=said.missed_oom,
                false=said.false_oom,
                tight=said.tight,
                skipped=len(skipped),
            ),
            "| runs | which | what happened, verdict | allocated, of | why |",
            "|---|---|---|---|---|",
            *verdict_rows(wrong(runs.shipped)),
            texts.BOUNDARY,
            "| run | model | cards | sequences x tokens | what happened | verdict |",
            "|---|---|---|---|---|---|",
            *boundary_rows(runs.shipped),
            texts.FIELD,
        ]
    )


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
    BUNDLE.write_text(bundle(RUNS, LINES), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, {PICTURE.name}, {FIGURES.name}")
