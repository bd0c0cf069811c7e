"""Our own evidence as a document: does it fit, how far off, do the ranges hold, who measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tuneplan.contract.evidenced import AccuracyAnswer, AccuracyFigure
from tuneplan.language import say
from tuneplan.report.amounts import count_cell, number_cell, percent_cell, words
from tuneplan.report.dates import date_text
from tuneplan.report.tables import UNKNOWN
from tuneplan.report.validation import quantity_label
from tuneplan.report.validation_charts import reliability, scatter
from tuneplan.report.view import (
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Paragraph,
    Section,
    Table,
)
from tuneplan.runs.comparison import Comparison, Quantity
from tuneplan.units import format_count

_WIDE, _NARROW = 440, 250
_COVERAGE: Final = "coverage"
_TILES: Final = ("memory_one", "memory_several", "speed_one", "missed_oom", "false_oom")


def accuracy_sections(answer: AccuracyAnswer) -> tuple[Section, ...]:
    """Summary, predictions over measurements, ranges, every target, the sources."""
    return (
        _summary(answer),
        Section(
            name="points", title=say("Predicted over measured"), blocks=tuple(_scatters(answer))
        ),
        Section(name="ranges", title=say("Do the ranges hold?"), blocks=tuple(_ranges(answer))),
        Section(name="targets", title=say("Every target"), blocks=tuple(_targets(answer))),
        Section(name="sources", title=say("Who measured"), blocks=(_sources(answer),)),
    )


def figure_labels() -> dict[str, str]:
    """What each figure is called."""
    return {
        "memory_one": say("memory, one GPU"),
        "memory_one_allocated": say("memory, one GPU, allocated"),
        "memory_one_reserved": say("memory, one GPU, reserved"),
        "memory_one_nvidia-smi": say("memory, one GPU, nvidia-smi"),
        "memory_several": say("memory, several GPUs"),
        "memory_several_allocated": say("memory, several GPUs, allocated"),
        "memory_several_reserved": say("memory, several GPUs, reserved"),
        "memory_several_nvidia-smi": say("memory, several GPUs, nvidia-smi"),
        "fitck": say("memory where every setting is known (T4), allocated"),
        "speed_one": say("throughput, one GPU"),
        "speed_node": say("throughput, 2 to 8 GPUs in a node"),
        "speed_lf": say("throughput of llm-foundry's tables, corrected for their age"),
        "speed_all": say("throughput, physics only"),
        "speed_held_out": say("throughput, calibrated, each source held out"),
        "speed_models": say("throughput, calibrated, each model held out"),
        "missed_oom": say("ran out of memory, called “fits”"),
        "missed_oom_field": say("the same in users' reports, which state less"),
        "false_oom": say("ran, called “does not fit”"),
        "tight": say("called “tight”"),
        "coverage_memory_source": say("memory inside its range, each source held out"),
        "coverage_throughput_source": say("throughput inside its range, each source held out"),
        "coverage_memory_model": say("memory inside its range, each model held out"),
        "coverage_throughput_model": say("throughput inside its range, each model held out"),
        "coverage_memory_shipped": say("memory inside its range, as shipped"),
        "coverage_throughput_shipped": say("throughput inside its range, as shipped"),
        "trace_fitck": say("memory by trace, every setting known (T4)"),
        "trace_fms": say("memory by trace, tables of fms-hf-tuning"),
        "trace_reserved_fitck": say("reserved memory by trace, every setting known (T4)"),
        "trace_reserved_peft": say("reserved memory by trace, tables of PEFT"),
        "trace_cpu": say("trace beside the allocations of a real step, worst"),
        "formula_trace": say("formula beside trace: median, worst"),
    }


def _label(key: str) -> str:
    return figure_labels().get(key, key)


def _summary(answer: AccuracyAnswer) -> Section:
    judged = [one for one in answer.figures if one.met is not None]
    missed = [one for one in judged if not one.met]
    known = {one.key: one for one in answer.figures}
    blocks: list[Block] = [
        Paragraph(
            text=say(
                "Of {runs} published runs {predicted} could be predicted; {met} of {all} targets "
                "are met.",
                runs=format_count(answer.num_runs),
                predicted=format_count(answer.num_predicted),
                met=len(judged) - len(missed),
                all=len(judged),
            ),
            tone="loud",
        ),
        Facts(
            title=say("At a glance"),
            rows=tuple(_tile(known[key]) for key in _TILES if key in known),
            tiles=True,
        ),
    ]
    if missed:
        names = "; ".join(_label(one.key) for one in missed)
        blocks.append(Paragraph(text=say("Missed: {names}.", names=names)))
    blocks.append(
        Paragraph(
            text=say(
                "Measured on {day} by tuneplan {version}; docs/accuracy.md says what was held out, "
                "why targets are missed, and lists the worst runs. `tuneplan validate RUNS.csv` "
                "does the same for yours.",
                day=date_text(answer.measured_on),
                version=answer.tuneplan_version,
            ),
            tone="quiet",
        )
    )
    return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))


def _tile(one: AccuracyFigure) -> Fact:
    error, at_p90 = one.measured
    if at_p90 is None:
        return Fact(
            name=_label(one.key),
            cell=_percent(error),
            remark=say("of {count} runs", count=format_count(one.runs)),
        )
    return Fact(
        name=_label(one.key),
        cell=_percent(error),
        remark=say(
            "median error of {count} runs; 9 of 10 below {p90}",
            count=format_count(one.runs),
            p90=_percent(at_p90).text,
        ),
    )


def _percent(fraction: float | None) -> Cell:
    return number_cell(None if fraction is None else 100 * fraction, unit="%", digits=2)


def _scatters(answer: AccuracyAnswer) -> Iterator[Block]:
    for quantity in Quantity:
        points = list(_points(answer, quantity))
        if points:
            inside = sum(item.inside_interval for _, item in points) / len(points)
            yield Chart(
                name=str(quantity),
                title=quantity_label(quantity),
                caption=say(
                    "{count} runs of {sources} {sources:~source/sources}; {share:.0%} of them lie "
                    "in their range, which was made without the runs of the same source; the "
                    "dashed line is equality",
                    count=format_count(len(points)),
                    sources=len({source for source, _ in points}),
                    share=inside,
                ),
                specification=scatter(points, title="", size=_WIDE),
                narrow=scatter(points, title="", size=_NARROW),
            )


def _points(answer: AccuracyAnswer, quantity: Quantity) -> Iterator[tuple[str, Comparison]]:
    for one in answer.points:
        if one.quantity == quantity:
            yield (
                one.source,
                Comparison(
                    quantity=quantity,
                    measured=one.measured,
                    likely=one.likely,
                    low=one.low,
                    high=one.high,
                    probability=one.probability,
                ),
            )


def _ranges(answer: AccuracyAnswer) -> Iterator[Block]:
    series = {
        quantity_label(quantity): [
            item.probability
            for _, item in _points(answer, quantity)
            if item.probability is not None
        ]
        for quantity in Quantity
    }
    series = {name: values for name, values in series.items() if values}
    if series:
        yield Chart(
            name="reliability",
            title=say("Share of runs that had at most what was given a probability"),
            caption=say("Right ranges lie on the diagonal; the band is ten per cent beside it."),
            specification=reliability(series, title="", size=_WIDE),
            narrow=reliability(series, title="", size=_NARROW),
        )
    coverages = [one for one in answer.figures if one.key.startswith(_COVERAGE)]
    if coverages:
        yield Table(
            title=say("Share of runs inside their range (80 % would be right)"),
            columns=(
                Column(name=say("figure")),
                Column(name=say("runs"), amounts=1),
                Column(name=say("inside"), amounts=1, unit="%"),
                Column(name=say("must lie between")),
                Column(name=say("met")),
            ),
            rows=tuple(
                (
                    words(_label(one.key)),
                    count_cell(one.runs),
                    percent_cell(one.measured[0]),
                    words(_band(one.must)),
                    words(_word(one.met)),
                )
                for one in coverages
            ),
        )


def _band(ends: Sequence[float | None]) -> str:
    low, high = ends
    return say("{low:.0%} and {high:.0%}", low=low or 0.0, high=high or 0.0)


def _word(is_met: object) -> str:
    if is_met is None:
        return UNKNOWN
    return say("yes") if is_met else say("no")


def _targets(answer: AccuracyAnswer) -> Iterator[Block]:
    yield Table(
        title=say("Errors: median, and what nine of ten runs stay below"),
        columns=(
            Column(name=say("figure")),
            Column(name=say("runs"), amounts=1),
            Column(name=say("median"), amounts=1, unit="%"),
            Column(name="P90", amounts=1, unit="%"),
            Column(name=say("must reach")),
            Column(name=say("met")),
            Column(name=say("aim")),
            Column(name=say("aim met")),
        ),
        rows=tuple(_target(one) for one in answer.figures if not one.key.startswith(_COVERAGE)),
        note=say("Where one figure stands, it is a share of the runs, or the worst error."),
    )


def _target(one: AccuracyFigure) -> tuple[Cell, ...]:
    return (
        words(_label(one.key)),
        count_cell(one.runs),
        _percent(one.measured[0]),
        _percent(one.measured[1]),
        words(_limits(one.must)),
        words(_word(one.met)),
        words(_limits(one.aim)),
        words(_word(one.aimed) if _limits(one.aim) != UNKNOWN else UNKNOWN),
    )


def _limits(pair: Sequence[float | None]) -> str:
    shown = [_percent(one).text for one in pair if one is not None]
    return " / ".join(shown) if shown else UNKNOWN


def _sources(answer: AccuracyAnswer) -> Table:
    return Table(
        title=say("Published runs, by source"),
        columns=(
            Column(name=say("source")),
            Column(name=say("runs"), amounts=1),
            Column(name=say("published in")),
        ),
        rows=tuple(
            (words(one.name), count_cell(one.runs), words(one.published_in))
            for one in answer.sources
        ),
        folded=True,
    )
