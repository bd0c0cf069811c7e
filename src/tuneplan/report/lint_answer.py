"""Findings of the core as the contract describes them."""

from __future__ import annotations

from collections.abc import Iterable

from tuneplan.contract.lint import LintFinding
from tuneplan.contract.plain_json import json_value
from tuneplan.diagnosis.finding import Finding
from tuneplan.planner.configuration import Configuration


def finding_models(findings: Iterable[Finding], configuration: Configuration) -> list[LintFinding]:
    """What the rules found, each at the user's own key, file and line."""
    return [_finding(one, configuration) for one in findings]


def _finding(finding: Finding, configuration: Configuration) -> LintFinding:
    stated = [key for key in finding.keys if key in configuration.job.stated]
    path = next(iter((*stated, *finding.keys)), None)
    origin = configuration.origin(path) if path is not None else None
    return LintFinding(
        rule=finding.rule,
        severity=finding.severity.value,
        path=origin.path if origin else path,
        file=origin.file if origin else None,
        line=origin.line if origin else None,
        stated=bool(stated),
        message=str(finding.message),
        evidence=json_value(dict(finding.evidence)),
        fix=str(finding.fix) if finding.fix is not None else None,
    )
