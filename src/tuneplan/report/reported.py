"""What ``report`` says on a terminal, and the document that it writes."""

from __future__ import annotations

from tuneplan.contract.reported import ReportAnswer, ReportedFacts, ReportedParagraph
from tuneplan.language import say
from tuneplan.planner.reporting import Reported
from tuneplan.report.check_answer import check_answer
from tuneplan.report.document import estimate_document, plan_document
from tuneplan.report.page import Page
from tuneplan.report.plan_answer import plan_answer
from tuneplan.report.tables import facts, heading, paragraph, render
from tuneplan.report.view import Document


def report_document(reported: Reported, *, as_of: str) -> Document:
    """The document of a use-case's result; ``as_of`` is the day it is given, ``2026-11-30``."""
    check = None if reported.check is None else check_answer(reported.check, as_of=as_of)
    if reported.plan is not None:
        return plan_document(plan_answer(reported.plan, as_of=as_of), check)
    if check is None:
        msg = "neither a plan nor an estimate"
        raise ValueError(msg)
    return estimate_document(check)


def report_text(answer: ReportAnswer, page: Page) -> str:
    """The first page of the document, and where it was written."""
    blocks = [heading(answer.title)]
    for block in answer.sections[0].blocks:
        if isinstance(block, ReportedParagraph) and block.tone != "quiet":
            blocks.append(paragraph(block.text))
        elif isinstance(block, ReportedFacts):
            blocks.append(facts([(row.name, row.cell.text) for row in block.rows]))
    if answer.written:
        files = ", ".join(answer.written)
        blocks.append(paragraph(say("Written: {files}", files=files)))
    return render(blocks, page)
