"""What stands out about a job, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.contract.lint import LintFinding
from tuneplan.language import say
from tuneplan.report.tables import hanging, heading, paragraph

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "advice": "bold cyan"}


def lint_blocks(findings: Sequence[LintFinding]) -> Iterator[RenderableType]:
    """What stands out, with how to fix it."""
    if not findings:
        yield paragraph(say("Nothing stands out."))
        return
    lines: list[tuple[int, str, str]] = []
    for finding in findings:
        where = place_text(finding)
        lines.append(
            (
                0,
                _STYLES[finding.severity],
                f"{severity_word(finding.severity)} {finding.rule}  {where}",
            )
        )
        lines.append((1, "", finding.message))
        if finding.fix:
            lines.append((1, "", say("to fix: {fix}", fix=finding.fix)))
    yield heading(say("What stands out"))
    yield hanging(lines)


def severity_word(severity: str) -> str:
    """How much a finding matters, in a word."""
    words = {"error": say("error"), "warning": say("warning"), "advice": say("advice")}
    return words.get(severity, severity)


def place_text(finding: LintFinding) -> str:
    """``train.yaml:12: cutoff_len``; the key alone where no file says it."""
    if finding.file is None:
        key = finding.path or ""
        return key if finding.stated else say("{key} (by default)", key=key)
    line = f":{finding.line}" if finding.line is not None else ""
    return f"{finding.file}{line}: {finding.path}"
