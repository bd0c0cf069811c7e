"""A diagnosis as a document: what ran out, what shows it, the fixes in the order to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuneplan.contract.diagnosed import OomAnswer, OomFix
from tuneplan.language import say
from tuneplan.report.amounts import gib_range_cell, number_cell, percent_cell, words
from tuneplan.report.oom import (
    cost_text,
    enough_text,
    hindered_lines,
    oom_figures,
    oom_title,
    oom_verdict,
    written_value,
)
from tuneplan.report.oom_charts import card_at_failure, card_parts, savings, savings_bars
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.sections.remarks import remarks_of
from tuneplan.report.tables import UNKNOWN
from tuneplan.report.view import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Fact,
    Facts,
    Paragraph,
    Points,
    Section,
    Table,
)
from tuneplan.units import format_gib


def oom_document(answer: OomAnswer) -> Document:
    """The diagnosis to hand on."""
    return Document(
        kind="oom",
        title=oom_title(answer),
        subtitle=say("What ran out of memory, and what helps"),
        as_of=answer.as_of,
        language=answer.language,
        tuneplan_version=answer.tuneplan_version,
        sections=oom_sections(answer),
    )


def oom_sections(answer: OomAnswer) -> tuple[Section, ...]:
    """The verdict, the evidence, the fixes, the ledger."""
    return tuple(
        section
        for section in (
            _summary(answer),
            _evidence(answer),
            _fixes(answer),
            remarks_of(answer.warnings, answer.assumptions),
        )
        if section.blocks
    )


def _summary(answer: OomAnswer) -> Section:
    tone = "does_not_fit" if answer.card_too_small else "loud"
    sentences = oom_verdict(answer).splitlines()
    blocks: list[Block] = [
        Paragraph(text=text, tone="plain" if place else tone)
        for place, text in enumerate(sentences)
    ]
    if answer.card_too_small and len(sentences) > 1:
        blocks[1] = Paragraph(text=sentences[1], tone="does_not_fit")
    parts = card_parts(answer)
    if parts:
        blocks.append(
            Chart(
                name="card",
                title=say("The card when memory ran out"),
                caption="; ".join(
                    say("{name}: {size}", name=name, size=format_gib(size))
                    for name, size in parts.items()
                ),
                specification=card_at_failure(answer, width=WIDE),
                narrow=card_at_failure(answer, width=NARROW),
            )
        )
    figures = tuple(Fact(name=name, cell=words(text)) for name, text in oom_figures(answer))
    blocks.append(Facts(title=say("What the log and the estimate say"), rows=figures))
    return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))


def _evidence(answer: OomAnswer) -> Section:
    blocks: list[Block] = []
    shown = (*answer.stage.evidence, *answer.cause_evidence)
    if shown:
        blocks.append(Points(title=say("What shows it"), items=shown))
    if answer.matches:
        blocks.append(
            Table(
                title=say("What has the size that was asked for"),
                columns=(
                    Column(name=say("Tensor")),
                    Column(name=say("How it is made")),
                    Column(name=say("Off by"), amounts=1, unit="%"),
                ),
                rows=tuple(
                    (
                        words(
                            match.tensor
                            if match.fits_stage
                            else say("{name} (not there)", name=match.tensor)
                        ),
                        words(match.formula),
                        percent_cell(match.error_fraction),
                    )
                    for match in answer.matches
                ),
            )
        )
    return Section(name="evidence", title=say("Evidence"), blocks=tuple(blocks))


def _fixes(answer: OomAnswer) -> Section:
    blocks: list[Block] = []
    helping = [fix for fix in answer.fixes if fix.cannot_help_because is None]
    hindered = [fix for fix in answer.fixes if fix.cannot_help_because is not None]
    if helping:
        blocks.append(_table(helping))
    if len(savings(answer)) > 1:
        blocks.append(
            Chart(
                name="savings",
                title=say("What each fix saves: low, likely, high"),
                caption="; ".join(
                    say("{name}: {low:.3g} to {high:.3g} GiB", name=one.name, low=one.low,
                        high=one.high)
                    for one in savings(answer)
                ),
                specification=savings_bars(answer, width=WIDE),
                narrow=savings_bars(answer, width=NARROW),
            )
        )  # fmt: skip
    if hindered:
        blocks.append(Points(title=say("What cannot help"), items=tuple(hindered_lines(hindered))))
    return Section(name="fixes", title=say("Fixes"), blocks=tuple(blocks))


def _table(fixes: Sequence[OomFix]) -> Table:
    if not any(fix.saves_bytes or fix.settings or fix.costs.time_fraction for fix in fixes):
        return Table(
            title=say("Fixes, in the order to try"),
            columns=(Column(name="#", amounts=1), Column(name=say("Fix"))),
            rows=tuple((number_cell(fix.rank, decimals=0), words(fix.change)) for fix in fixes),
            note=say("With the job in the form, each has what it saves and costs beside it."),
        )
    return Table(
        title=say("Fixes, in the order to try"),
        columns=(
            Column(name="#", amounts=1),
            Column(name=say("Fix")),
            Column(name=say("Saves"), amounts=3, unit="GiB"),
            Column(name=say("Costs")),
            Column(name=say("Enough")),
            Column(name=say("What to write in the job file")),
        ),
        rows=tuple(tuple(_row(fix)) for fix in fixes),
    )


def _row(fix: OomFix) -> Iterator[Cell]:
    yield number_cell(fix.rank, decimals=0)
    yield words(fix.change)
    yield words(UNKNOWN) if fix.id == "larger_card" else gib_range_cell(fix.saves_bytes)
    yield words(cost_text(fix.costs) or UNKNOWN)
    yield words(enough_text(fix))
    yield words(", ".join(f"{key}: {written_value(value)}" for key, value in fix.settings.items()))
