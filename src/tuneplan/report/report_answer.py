"""A document as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuneplan.contract.answers import header
from tuneplan.contract.reported import (
    ReportAnswer,
    ReportedAmount,
    ReportedBlock,
    ReportedCell,
    ReportedChart,
    ReportedColumn,
    ReportedFact,
    ReportedFacts,
    ReportedParagraph,
    ReportedPoints,
    ReportedSection,
    ReportedTable,
)
from tuneplan.report.view import Block, Cell, Chart, Document, Facts, Paragraph, Points


def report_answer(document: Document, *, written: Sequence[str] = ()) -> ReportAnswer:
    """The answer of ``report``; ``written`` names the files."""
    return ReportAnswer(
        **header("report", as_of=document.as_of),
        kind=document.kind,
        title=document.title,
        subtitle=document.subtitle,
        sections=[
            ReportedSection(
                name=section.name,
                title=section.title,
                blocks=[_block(block) for block in section.blocks],
            )
            for section in document.sections
        ],
        written=list(written),
    )


def document_json(document: Document) -> dict[str, Any]:
    """What a ``.json`` file holds."""
    return report_answer(document).model_dump(mode="json")


def _block(block: Block) -> ReportedBlock:
    if isinstance(block, Paragraph):
        return ReportedParagraph(kind="paragraph", text=block.text, tone=block.tone)
    if isinstance(block, Points):
        return ReportedPoints(kind="points", title=block.title, items=list(block.items))
    if isinstance(block, Facts):
        rows = [
            ReportedFact(name=row.name, cell=_cell(row.cell), remark=row.remark)
            for row in block.rows
        ]
        return ReportedFacts(kind="facts", title=block.title, rows=rows)
    if isinstance(block, Chart):
        return ReportedChart(
            kind="chart",
            name=block.name,
            title=block.title,
            caption=block.caption,
            specification=dict(block.specification),
        )
    return ReportedTable(
        kind="table",
        title=block.title,
        columns=[ReportedColumn(name=one.name, unit=one.unit) for one in block.columns],
        rows=[[_cell(cell) for cell in row] for row in block.rows],
        note=block.note,
    )


def _cell(cell: Cell) -> ReportedCell:
    return ReportedCell(
        text=cell.text,
        amounts=[
            ReportedAmount(
                text=one.text, value=one.value, unit=one.unit, key=one.key, formula=one.formula
            )
            for one in cell.amounts
        ],
    )
