"""The figures that accuracy is judged by, each beside what it must reach and what it aims at."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from accuracy_runs import ROOT, Case, Runs, cases

from tuneplan.planner.validate import ValidatedRow, Validation
from tuneplan.runs.comparison import Quantity, Verdicts, judge
from tuneplan.runs.summaries import percentile

INTERNALS = ROOT / "docs" / "internals"
_NODE = 8
FIELD = "field"  # the source of users' reports


@dataclass(frozen=True)
class Figure:
    """One line of the table of targets; errors as fractions.

    Attributes:
        must, aim: Limits of median and P90; a None is not judged.
        measured: Median and P90 (or one figure and None).
        by_source: The same as medians over the sources; None where it has no sense.
        note: What else belongs to it.
    """

    key: str
    name: str
    count: int
    must: tuple[float | None, float | None]
    aim: tuple[float | None, float | None]
    measured: tuple[float | None, float | None]
    by_source: tuple[float, float] | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether what must be reached is; None where nothing was measured."""
        return _within(self.measured, self.must)

    @property
    def aimed(self) -> bool | None:
        """Whether the aim is reached."""
        return _within(self.measured, self.aim)


def _within(
    measured: tuple[float | None, float | None], limits: tuple[float | None, float | None]
) -> bool | None:
    pairs = [(m, limit) for m, limit in zip(measured, limits, strict=True) if limit is not None]
    if any(m is None for m, _ in pairs):
        return None
    return all(m is not None and m <= limit for m, limit in pairs)


def spread_of_errors(found: Sequence[Case]) -> tuple[float | None, float | None]:
    """Median and P90 of the absolute error."""
    errors = [one.error for one in found]
    return (percentile(errors, 50), percentile(errors, 90)) if errors else (None, None)


def by_source(found: Sequence[Case]) -> tuple[float, float] | None:
    """Medians over the sources of each one's median and P90."""
    sources: dict[str, list[float]] = {}
    for one in found:
        sources.setdefault(one.source, []).append(one.error)
    if len(sources) < 2:
        return None
    return (
        median(percentile(errors, 50) for errors in sources.values()),
        median(percentile(errors, 90) for errors in sources.values()),
    )


def _errors(
    key: str,
    name: str,
    found: Iterable[Case],
    must: tuple[float, float],
    aim: tuple[float, float],
    note: str = "",
) -> Figure:
    known = list(found)
    return Figure(key, name, len(known), must, aim, spread_of_errors(known), by_source(known), note)


def figures(runs: Runs) -> list[Figure]:
    """Every line, in the order of the table."""
    return [
        *_memory(runs.physics),
        *_speed(runs),
        *_verdicts(runs),
        *_ranges(runs),
        *from_other_pages(),
    ]


def _memory(physics: Validation) -> list[Figure]:
    found = [one for one in cases(physics) if one.item.quantity.is_memory]
    lines = []
    for several, must, aim in (
        (False, (0.04, 0.12), (0.01, 0.04)),
        (True, (0.08, 0.20), (0.03, 0.10)),
    ):
        own = [one for one in found if (one.cards > 1) is several]
        where = "several GPUs" if several else "one GPU"
        stem = "several" if several else "one"
        lines.append(_errors(f"memory_{stem}", f"memory, {where}, every kind", own, must, aim))
        for quantity, word in (
            (Quantity.ALLOCATED, "allocated"),
            (Quantity.RESERVED, "reserved"),
            (Quantity.DEVICE, "nvidia-smi"),
        ):
            kind = [one for one in own if one.item.quantity is quantity]
            if kind:
                lines.append(
                    _errors(f"memory_{stem}_{word}", f"memory, {where}, {word}", kind, must, aim)
                )
    fitck = [
        one for one in found if one.source == "fitck" and one.item.quantity is Quantity.ALLOCATED
    ]
    name = "memory of `fitck` (T4, every setting known), allocated"
    return [*lines, _errors("fitck", name, fitck, (0.02, 0.05), (0.005, 0.02))]


def _speed(runs: Runs) -> list[Figure]:
    found = [one for one in cases(runs.physics) if not one.item.quantity.is_memory]
    one_card = [one for one in found if one.cards == 1]
    node = [one for one in found if 1 < one.cards <= _NODE and one.source != "lf"]
    lf = [one for one in found if one.source == "lf"]
    held = [one for one in cases(runs.held_out_sources) if not one.item.quantity.is_memory]
    models = [one for one in cases(runs.held_out_models) if not one.item.quantity.is_memory]
    must, aim = (0.08, 0.25), (0.04, 0.12)
    return [
        _errors("speed_one", "throughput, one GPU", one_card, (0.06, 0.25), (0.025, 0.10)),
        _errors("speed_node", "throughput, 2 to 8 GPUs in a node, without `lf`", node, must, aim),
        _era("speed_lf", "throughput of `lf`, a factor a chip for the age of its software", lf),
        _errors("speed_all", "throughput, all, physics only", found, (0.10, 0.25), (0.05, 0.12)),
        _errors(
            "speed_held_out",
            "throughput, all, calibrated, each source held out",
            held,
            (0.10, 0.25),
            (0.05, 0.12),
        ),
        _errors(
            "speed_models",
            "throughput, all, calibrated, each model of a source held out",
            models,
            (0.10, 0.25),
            (0.05, 0.12),
        ),
    ]


def _era(key: str, name: str, found: Sequence[Case]) -> Figure:
    """Errors after one factor a chip, fitted to the other models of the source."""
    errors = []
    factors: dict[str, float] = {}
    for one in found:
        chip = one.predicted.situation.chip if one.predicted.situation else ""
        others = [
            math.log(other.item.measured / other.item.likely)
            for other in found
            if other.predicted.model != one.predicted.model
            and other.predicted.situation is not None
            and other.predicted.situation.chip == chip
        ]
        factor = math.exp(median(others)) if others else 1.0
        factors[chip] = factor
        errors.append(abs(one.item.likely * factor / one.item.measured - 1.0))
    before, at_p90 = spread_of_errors(found)
    note = (
        f"without a factor {before or 0:.1%}, {at_p90 or 0:.1%}; factors on the rate, fitted to "
        "the source's other models: "
        + ", ".join(f"{chip} {factor:.2f}" for chip, factor in sorted(factors.items()))
    )
    measured = (percentile(errors, 50), percentile(errors, 90)) if errors else (None, None)
    return Figure(key, name, len(errors), (0.08, 0.25), (0.04, 0.12), measured, None, note)


def judged(rows: Iterable[ValidatedRow]) -> Verdicts:
    """Verdicts on these rows."""
    return judge(
        (row.run.measured.out_of_memory, row.predicted.verdict)
        for row in rows
        if row.predicted is not None
    )


def _verdicts(runs: Runs) -> list[Figure]:
    said = judged(row for row in runs.shipped.rows if row.run.source != FIELD)
    field = judged(row for row in runs.shipped.rows if row.run.source == FIELD)
    labels = said.num_ran + said.num_out_of_memory
    return [
        Figure(
            "missed_oom", "ran out of memory, called `fits`", said.num_out_of_memory,
            (0.07, None), (0.0, None), (said.missed_oom_rate, None),
            note=f"{said.missed_oom} of {said.num_out_of_memory}",
        ),
        Figure(
            "missed_oom_field", "the same of users' reports, which state less",
            field.num_out_of_memory, (0.07, None), (0.0, None), (field.missed_oom_rate, None),
            note=f"{field.missed_oom} of {field.num_out_of_memory}",
        ),
        Figure(
            "false_oom", "ran, called `does_not_fit`", said.num_ran,
            (0.07, None), (0.0, None), (said.false_oom_rate, None),
            note=f"{said.false_oom} of {said.num_ran}",
        ),
        Figure(
            "tight", "called `tight`", labels,
            (0.15, None), (None, None), (said.tight_rate, None), note=f"{said.tight} of {labels}",
        ),
    ]  # fmt: skip


def coverage(found: Iterable[Case]) -> float | None:
    """Share of measured figures inside their range."""
    inside = [one.item.inside_interval for one in found]
    return sum(inside) / len(inside) if inside else None


def _ranges(runs: Runs) -> list[Figure]:
    lines = []
    for way, found in (
        ("each source held out", runs.held_out_sources),
        ("each model of a source held out", runs.held_out_models),
        ("as shipped", runs.shipped),
    ):
        for memory, word in ((True, "memory"), (False, "throughput")):
            own = [one for one in cases(found) if one.item.quantity.is_memory is memory]
            share = coverage(own)
            # Distance from the middle of the wanted band: 72 to 90 %, at best 78 to 85 %.
            away = None if share is None else abs(share - 0.81)
            lines.append(
                Figure(
                    f"coverage_{word}_{way.split()[1]}", f"coverage of {word}, {way}", len(own),
                    (0.0901, None), (0.0351, None), (away, None),
                    note="" if share is None else f"{share:.1%} inside",
                )
            )  # fmt: skip
    return lines


def from_other_pages() -> list[Figure]:
    """Figures of the trace, which other tools measure and write to pages of their own."""
    lines = []
    page = _text(INTERNALS / "trace_accuracy.md")
    allocated = page.split("## Allocated peak, by source")[-1].split("\n## ")[0]
    for source in ("fitck", "fms"):
        found = re.search(
            rf"^\| {source} \| (\d+) \| \d+ \| ([\d.]+) \| ([\d.]+) \|", allocated, re.MULTILINE
        )
        if found:
            lines.append(
                Figure(
                    f"trace_{source}", f"memory by **trace**, `{source}`, allocated",
                    int(found[1]), (0.003, 0.02), (0.001, 0.005),
                    (float(found[2]) / 100, float(found[3]) / 100),
                    note="[traces against runs](internals/trace_accuracy.md)",
                )
            )  # fmt: skip
    reserved = page.split("\n## Reserved\n")[-1].split("\n## ")[0]
    for name, key in (("fitck, lora, 1 card", "fitck"), ("peft-old, lora, 1 card", "peft")):
        found = re.search(rf"^\| {name} \| (\d+) \| \d+ \| ([\d.]+) \|", reserved, re.MULTILINE)
        if found:
            lines.append(
                Figure(
                    f"trace_reserved_{key}", f"reserved by **trace**, {name}, median",
                    int(found[1]), (0.03, None), (0.005, None), (float(found[2]) / 100, None),
                    note="loading is deterministic; elsewhere the range covers, as that page shows",
                )
            )  # fmt: skip
    page = _text(INTERNALS / "trace_against_cpu.md")
    errors = [abs(float(one)) for one in re.findall(r"\| [\d.]+ \| ([+-][\d.]+) % \|", page)]
    if errors:
        lines.append(
            Figure(
                "trace_cpu", "trace beside the allocations of a real CPU step, worst", len(errors),
                (0.01, None), (0.0, None), (max(errors) / 100, None),
                note="[the trace against real allocations](internals/trace_against_cpu.md)",
            )
        )  # fmt: skip
    page = _text(INTERNALS / "formula_against_trace.md")
    found = re.search(r"(\d+) cases: median ([\d.]+) %, P90 [\d.]+ %, worst ([\d.]+) %", page)
    if found:
        lines.append(
            Figure(
                "formula_trace", "formula beside trace, catalogue families: median, worst",
                int(found[1]), (0.015, 0.04), (0.005, 0.02),
                (float(found[2]) / 100, float(found[3]) / 100),
                note="[the formula against the trace](internals/formula_against_trace.md)",
            )
        )  # fmt: skip
    return lines


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def grouped(
    found: Iterable[Case], by: Callable[[Case], str], least: int = 15
) -> list[tuple[str, list[Case]]]:
    """Groups of at least so many figures, the largest first."""
    groups: dict[str, list[Case]] = {}
    for one in found:
        groups.setdefault(by(one), []).append(one)
    large = [(name, own) for name, own in groups.items() if len(own) >= least]
    return sorted(large, key=lambda pair: (-len(pair[1]), pair[0]))
