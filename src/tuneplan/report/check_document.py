"""A check as a document: what was read, what of it counts, the verdict, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tuneplan.contract.checked import CheckAnswer, ImportAnswer, Key
from tuneplan.language import say
from tuneplan.report.amounts import words
from tuneplan.report.check import not_judged_sentence, read_sentence
from tuneplan.report.estimate import stated_cards
from tuneplan.report.sections.alternatives import estimate_alternatives
from tuneplan.report.sections.cost import cost_section
from tuneplan.report.sections.ledger import assumption_table, sources_section
from tuneplan.report.sections.memory import memory_section
from tuneplan.report.sections.remarks import remarks_section
from tuneplan.report.sections.summary import estimate_summary
from tuneplan.report.sections.time import time_section
from tuneplan.report.tables import UNKNOWN, value_text
from tuneplan.report.view import Block, Cell, Column, Paragraph, Points, Section, Table

_LONGEST_VALUE: Final = 80


def check_sections(answer: CheckAnswer) -> tuple[Section, ...]:
    """The verdict and what is wrong first, then what became of every key, then the figures."""
    body = answer.estimate
    summary = estimate_summary(body, answer.as_of, cards=stated_cards(body))
    read = Paragraph(text=read_sentence(answer), tone="quiet")
    remarks = remarks_section(answer.lint, answer.warnings)
    told = list(remarks.blocks)
    if answer.not_judged:
        text = not_judged_sentence(answer.not_judged)
        told.append(Paragraph(text=text, tone="quiet"))
    if answer.silenced:
        names = ", ".join(answer.silenced)
        text = say("Silenced, though they had something: {names}.", names=names)
        told.append(Paragraph(text=text, tone="quiet"))
    return (
        Section(
            name="summary",
            title=summary.title,
            blocks=(*summary.blocks[:1], read, *summary.blocks[1:]),
        ),
        Section(name="remarks", title=remarks.title, blocks=tuple(told)),
        *keys_section(answer),
        estimate_alternatives(body, answer.best_changes),
        memory_section(body),
        time_section(body),
        cost_section(body, answer.as_of),
        *_assumptions(answer),
        sources_section(body),
    )


def _assumptions(answer: CheckAnswer) -> tuple[Section, ...]:
    assumptions = answer.estimate.assumptions
    if not assumptions:
        return ()
    table = assumption_table(assumptions)
    return (Section(name="assumptions", title=say("Assumptions"), blocks=(table,)),)


def import_sections(answer: ImportAnswer) -> tuple[Section, ...]:
    """Of a configuration that was read and of which no estimate can be made."""
    blocks: list[Block] = [Paragraph(text=read_sentence(answer), tone="quiet")]
    if answer.refused:
        told = tuple(one.message for one in answer.refused)
        blocks.append(Points(title=say("What no estimate can be made of"), items=told))
    if answer.warnings:
        told = tuple(one.message for one in answer.warnings)
        blocks.append(Points(title=say("Warnings"), items=told))
    return (
        Section(name="summary", title=say("Summary"), blocks=tuple(blocks)),
        *keys_section(answer),
    )


def keys_section(answer: CheckAnswer | ImportAnswer) -> tuple[Section, ...]:
    """What became of every key of a configuration; nothing for a job file."""
    blocks = tuple(_keys(answer))
    if not blocks:
        return ()
    return (Section(name="keys", title=say("What was read"), blocks=blocks),)


def _keys(answer: CheckAnswer | ImportAnswer) -> Iterator[Table]:
    several = len(answer.files) > 1
    for title, keys in (
        (say("Not carried over"), answer.not_carried),
        (say("Not understood"), answer.not_understood),
    ):
        if keys:
            yield _table(
                title,
                (say("Key"), say("Value"), say("Where"), say("Why")),
                [(*_key(one, several=several), words(one.why or "")) for one in keys],
            )
    if answer.carried:
        yield _table(
            say("Carried over"),
            (say("Key"), say("Value"), say("Where"), say("In the job")),
            [
                (*_key(one, several=several), words(", ".join(one.job_keys)))
                for one in answer.carried
            ],
            folded=True,
        )
    if answer.irrelevant:
        yield _table(
            say("Irrelevant to memory, time and cost"),
            (say("Key"), say("Value"), say("Where")),
            [_key(one, several=several) for one in answer.irrelevant],
            folded=True,
        )


def _table(
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[Cell, ...]],
    *,
    folded: bool = False,
) -> Table:
    return Table(
        title=say("{title} ({count})", title=title, count=len(rows)),
        columns=tuple(Column(name=name) for name in names),
        rows=tuple(rows),
        folded=folded,
    )


def _key(key: Key, *, several: bool) -> tuple[Cell, Cell, Cell]:
    value = value_text(key.value)
    if len(value) > _LONGEST_VALUE:
        value = value[: _LONGEST_VALUE - 1] + "…"
    line = say("line {line}", line=key.line) if key.line is not None else ""
    file = key.file if several else ""
    place = ", ".join(part for part in (file, line) if part)
    return words(key.key), words(value), words(place or UNKNOWN)


def stated_keys(job: Mapping[str, object]) -> dict[str, object]:
    """Keys of an answer's job that say something: what an empty job has too is left out."""
    from tuneplan.contract.job_document import job_document
    from tuneplan.spec.stated import StatedJob

    blank = dict(_flat(job_document(StatedJob(model=""))))
    return {key: value for key, value in _flat(job) if blank.get(key) != value}


def _flat(tree: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in _flat(value))
        elif value is not None and value != []:
            yield name, value
