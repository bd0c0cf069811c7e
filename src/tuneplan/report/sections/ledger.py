"""What was assumed, and where every formula, price and default comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuneplan.contract.answers import EstimateBody
from tuneplan.contract.parts import Assumption
from tuneplan.language import say, translate
from tuneplan.report.amounts import words
from tuneplan.report.labels import group_label, memory_term_label, source_text, time_term_label
from tuneplan.report.tables import value_text
from tuneplan.report.view import Block, Cell, Column, Fact, Facts, Paragraph, Section, Table


def assumptions_section(
    assumptions: Sequence[Assumption], job: dict[str, object], software: dict[str, str | None]
) -> Section:
    """Every assumption with its source and how to say otherwise; the job as it was taken."""
    blocks: list[Block] = []
    if assumptions:
        blocks.append(assumption_table(assumptions))
    else:
        blocks.append(Paragraph(text=say("Nothing had to be assumed."), tone="quiet"))
    blocks.append(Facts(title=say("The job"), rows=tuple(_job(job))))
    blocks.append(
        Facts(
            title=say("Software"),
            rows=tuple(
                Fact(name=name, cell=words(version or "?")) for name, version in software.items()
            ),
        )
    )
    return Section(name="assumptions", title=say("Assumptions"), blocks=tuple(blocks))


def assumed_section(assumptions: Sequence[Assumption]) -> Section:
    """Every assumption of a search, or that there is none."""
    if assumptions:
        block: Block = assumption_table(assumptions)
    else:
        block = Paragraph(text=say("Nothing had to be assumed."), tone="quiet")
    return Section(name="assumptions", title=say("Assumptions"), blocks=(block,))


def assumption_table(assumptions: Sequence[Assumption]) -> Table:
    """Each assumption with its source and how to say otherwise."""
    return Table(
        title=say("Assumptions ({count})", count=len(assumptions)),
        columns=(
            Column(name=say("Group")),
            Column(name=say("Key")),
            Column(name=say("Value")),
            Column(name=say("Why")),
            Column(name=say("Source")),
            Column(name=say("How to set it")),
        ),
        rows=tuple(_assumption(one) for one in assumptions),
        folded=True,
    )


def _assumption(one: Assumption) -> tuple[Cell, ...]:
    return (
        words(group_label(one.name)),
        words(one.name),
        words(value_text(one.value)),
        words(one.reason),
        words(source_text(one.source)),
        words(translate(one.how_to_set)),
    )


def _job(job: dict[str, object]) -> Iterator[Fact]:
    for name, value in job.items():
        if isinstance(value, dict):
            for inner, each in value.items():
                if each is not None:
                    yield Fact(name=f"{name}.{inner}", cell=words(value_text(each)))
        elif value is not None:
            yield Fact(name=name, cell=words(value_text(value)))


def sources_section(answer: EstimateBody) -> Section:
    """Each source once, with what rests on it."""
    rests: dict[str, list[str]] = {}
    for source, name in _named(answer):
        if source and name not in rests.setdefault(source, []):
            rests[source].append(name)
    return Section(
        name="sources",
        title=say("Sources"),
        blocks=(
            Table(
                title=say("What the figures rest on"),
                columns=(Column(name=say("Source")), Column(name=say("For"))),
                rows=tuple(
                    (words(source), words(", ".join(names))) for source, names in rests.items()
                ),
                folded=True,
            ),
        ),
    )


def _named(answer: EstimateBody) -> Iterator[tuple[str, str]]:
    if answer.cost is not None:
        offer = answer.cost.offer
        yield f"{offer.source} ({offer.as_of})", say("the price")
    for term in answer.memory.terms:
        yield source_text(term.source), memory_term_label(term.kind)
    for time_term in answer.time.terms if answer.time else ():
        yield source_text(time_term.source), time_term_label(time_term.kind)
    for one in answer.assumptions:
        yield source_text(one.source), one.name
