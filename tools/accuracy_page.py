"""Write ``docs/accuracy.md``: predictions against measured runs, by source.

``python tools/accuracy_page.py RUNS.csv [COMPLETE.csv]`` predicts every run (columns as in
``docs/reference/runs.md``; ``source_repo`` and ``source_commit`` name where a run was published)
and writes the page. The runs themselves are not part of the repository.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan import Validation, __version__, validate  # noqa: E402 - the source tree comes first
from tuneplan.runs.comparison import Quantity  # noqa: E402
from tuneplan.runs.summaries import SEVERAL, SINGLE, Summary  # noqa: E402

TITLES = {
    Quantity.ALLOCATED: "Memory, allocated peak",
    Quantity.RESERVED: "Memory, reserved peak",
    Quantity.DEVICE: "Memory, whole device (`nvidia-smi`)",
    Quantity.TOKENS: "Tokens per second and accelerator",
    Quantity.REAL_TOKENS: "Tokens per second and accelerator, padding left out",
}
HEAD = """<!-- Made by tools/accuracy_page.py. -->

# Accuracy

Predictions of tuneplan {version} against published measured runs, made on {day}.
Bad rows are included. `tuneplan validate RUNS.csv` does the same for yours.

**These runs are no held-out test.** No correction factor is fitted, but where runs and prediction
disagreed, the frameworks' code was read until the reason was found (decisions
[0003](internals/decisions/0003-what-a-step-executes.md) and
[0004](internals/decisions/0004-memory-by-source.md), with the errors before and after), and a few
constants were read off published runs: the exposed share of FSDP's collectives and their latency
between nodes, the rate of the 2022 Triton attention kernel (llm-foundry, source `lf`), the ratio
of reserved to allocated memory (runs on a T4), the exposed shares of NeMo's exchanges and the rate
of attention products of odd head sizes (source `bsc`). Expect more on jobs unlike these.
Runs of split models are explained in decision
[0007](internals/decisions/0007-split-models.md), the worst ones (`bsg`, `bsc`) too.

Of {total:,} runs {predicted:,} were predicted; the others are skipped, with their reasons below.
Errors count runs that state all that decides the figure.
Median and P90 are of the absolute error, bias is the median with its sign, "inside" is the share
of runs that lie in the predicted range (80 % would be right), width is (high - low) / likely.
"""


def page(found: Validation, published: dict[str, set[str]]) -> str:
    """The whole page as Markdown."""
    predicted = sum(row.status == "predicted" for row in found.rows)
    day = datetime.now(tz=UTC).date().isoformat()
    parts = [HEAD.format(version=__version__, day=day, total=len(found.rows), predicted=predicted)]
    for quantity, title in TITLES.items():
        rows = list(_rows(found, quantity))
        if rows:
            parts.append(f"## {title}\n\n{_TABLE}" + "\n".join(rows) + "\n")
    parts.append(_out_of_memory(found))
    parts.append("## Skipped\n\n| runs | reason | for example |\n|---|---|---|")
    parts += [
        f"| {one.count} | `{one.code}` | {str(one.example).replace('|', '/')} |"
        for one in found.skipped
    ]
    parts.append("\n## Sources\n\n| source | published in |\n|---|---|")
    shown = {one.source for one in found.summary if one.source}
    parts += [
        f"| {name} | {', '.join(sorted(published.get(name, ())))} |" for name in sorted(shown)
    ]
    return "\n".join(parts) + "\n"


_TABLE = (
    "| runs of | runs | median | P90 | bias | inside | width |\n|---|---|---|---|---|---|---|\n"
)
_CARDS = {SINGLE: "one accelerator", SEVERAL: "several accelerators"}
_GROUPS = ("source", "cards", "method", "framework", "accelerator")


def _rows(found: Validation, quantity: Quantity) -> Iterator[str]:
    mine = [one for one in found.summary if one.quantity == quantity]
    yield from (_row("**all**", one) for one in mine if _group(one) == ())
    yield from (_row(_CARDS[str(one.cards)], one) for one in mine if _group(one) == ("cards",))
    of_sources = [one for one in mine if _group(one) == ("source",)]
    yield from (_row(one.source, one) for one in sorted(of_sources, key=lambda x: -x.count))


def _group(one: Summary) -> tuple[str, ...]:
    return tuple(name for name in _GROUPS if getattr(one, name) is not None)


def _row(name: str | None, one: Summary) -> str:
    return (
        f"| {name} | {one.count} | {one.median_abs_error_fraction:.1%} | "
        f"{one.p90_abs_error_fraction:.1%} | {one.bias_fraction:+.1%} | "
        f"{one.coverage_fraction:.0%} | {one.median_width_fraction:.0%} |"
    )


def _out_of_memory(found: Validation) -> str:
    said = found.verdicts
    return (
        "## Out of memory\n\n"
        f"{said.missed_oom} of {said.num_out_of_memory} runs that ran out of memory were said to "
        f"fit; {said.false_oom} of {said.num_ran} that ran were said not to; "
        f"{said.tight} were called tight.\n"
    )


def published_in(runs: Path) -> dict[str, set[str]]:
    """Source (the id without its number) to repository and commit."""
    found: dict[str, set[str]] = defaultdict(set)
    with runs.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            name = row.get("id", "").rpartition("-")[0]
            where = row.get("source_repo", "")
            commit = row.get("source_commit", "")[:8]
            if where:
                found[name].add(f"{where}@{commit}" if commit and commit not in where else where)
    return found


if __name__ == "__main__":
    RUNS = Path(sys.argv[1])
    TO = ROOT / "docs" / "accuracy.md"
    ANSWER = validate(RUNS, complete=sys.argv[2] if len(sys.argv) > 2 else None)
    TO.write_text(page(ANSWER, published_in(RUNS)), encoding="utf-8")
    print(f"wrote {TO.relative_to(ROOT)}")
