"""What stands out about a job, and what is to be heeded."""

from __future__ import annotations

from collections.abc import Sequence

from tuneplan.contract.lint import LintFinding
from tuneplan.contract.parts import Assumption, Notice
from tuneplan.language import say
from tuneplan.report.amounts import words
from tuneplan.report.lint import place_text, severity_word
from tuneplan.report.sections.ledger import assumption_table
from tuneplan.report.view import Block, Column, Paragraph, Points, Section, Table


def remarks_section(findings: Sequence[LintFinding], warnings: Sequence[Notice]) -> Section:
    """Findings with their fixes, then warnings."""
    blocks: list[Block] = []
    if findings:
        blocks.append(
            Table(
                title=say("What stands out"),
                columns=(
                    Column(name=say("Weight")),
                    Column(name=say("Rule")),
                    Column(name=say("Where")),
                    Column(name=say("What")),
                    Column(name=say("To fix")),
                ),
                rows=tuple(
                    (
                        words(severity_word(one.severity)),
                        words(one.rule),
                        words(place_text(one)),
                        words(one.message),
                        words(one.fix or ""),
                    )
                    for one in findings
                ),
            )
        )
    if warnings:
        blocks.append(Points(title=say("Warnings"), items=tuple(one.message for one in warnings)))
    if not blocks:
        blocks.append(Paragraph(text=say("Nothing stands out."), tone="quiet"))
    return Section(name="remarks", title=say("Remarks"), blocks=tuple(blocks))


def remarks_of(warnings: Sequence[Notice], assumptions: Sequence[Assumption]) -> Section:
    """What an answer warns of, and what it takes for granted."""
    blocks: list[Block] = []
    if warnings:
        told = tuple(one.message for one in warnings)
        blocks.append(Points(title=say("Warnings"), items=told))
    if assumptions:
        blocks.append(assumption_table(assumptions))
    return Section(name="remarks", title=say("Remarks"), blocks=tuple(blocks))
