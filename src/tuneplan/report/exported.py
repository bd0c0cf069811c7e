"""An exported job as an answer, and the answer as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuneplan.contract.answers import header
from tuneplan.contract.exported import ExportAnswer, ExportedPart
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import assumption_model, range_model
from tuneplan.language import say
from tuneplan.planner.export import JobExport
from tuneplan.report.estimate_answer import notice_models, unique_assumptions
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import Column, heading, paragraph, points, render, table

if TYPE_CHECKING:
    from rich.console import RenderableType


def export_answer(export: JobExport, *, as_of: str, folder: str | None) -> ExportAnswer:
    """The answer of ``export``; ``folder`` is where the files were written, if they were."""
    peak, exported = export.peak_bytes, export.exported_peak_bytes
    return ExportAnswer(
        **header("export", as_of=as_of),
        framework=export.framework,
        framework_version=export.framework_version,
        job=job_document(export.job),
        files=[
            ExportedPart(
                name=one.name,
                purpose=str(one.purpose),
                path=None if folder is None else str(Path(folder) / one.name),
                text=one.text,
            )
            for one in export.files
        ],
        peak_bytes=range_model(peak, whole=True),
        exported_peak_bytes=None if exported is None else range_model(exported, whole=True),
        assumptions=[assumption_model(one) for one in unique_assumptions(export.assumptions)],
        warnings=notice_models(export.notices),
    )


def export_text(answer: ExportAnswer, page: Page, *, full: bool = False) -> str:
    """The files written, and what to heed; the files themselves where none was written."""
    written = any(one.path is not None for one in answer.files)
    if written:
        return render(list(_blocks(answer, page, full=full)), page)
    parts = [_file_text(one) for one in answer.files]
    if answer.warnings:
        notes = [heading(say("Warnings")), _warnings(answer)]
        parts.append(render(notes, page))
    return "\n".join([*parts, render([paragraph(_not_written())], page)])


def _file_text(part: ExportedPart) -> str:
    """A file under its name; nothing in it is wrapped, so that it can be copied."""
    return f"# === {part.name}: {part.purpose}\n{part.text}"


def _not_written() -> str:
    return say("Nothing was written: --output DIR writes the files.")


def _blocks(answer: ExportAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    version = f" {answer.framework_version}" if answer.framework_version else ""
    title = say(
        "{count} files for {framework}{version}",
        count=len(answer.files),
        framework=answer.framework,
        version=version,
    )
    yield table(
        (Column(name=say("File"), keep=True), Column(name=say("What it is for"))),
        [(one.path or one.name, one.purpose) for one in answer.files],
        title=title,
    )
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def _warnings(answer: ExportAnswer) -> RenderableType:
    return points([warning.message for warning in answer.warnings], mark="!")
