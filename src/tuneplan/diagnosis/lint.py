"""The usual mistakes, one rule a question; each tells what it saw in the figures of the job."""

from __future__ import annotations

from typing import Final

from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.diagnosis.registry import RULES

_ORDER: Final = tuple(Severity)


def lint(case: Case) -> tuple[Finding, ...]:
    """Everything that the rules find, what matters most first; silenced ones are left out."""
    found = [
        finding
        for rule in RULES.values()
        if rule.name not in case.job.lint.ignore
        for finding in rule.check(case)
    ]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))


def silenced(case: Case) -> tuple[str, ...]:
    """Rules that would say something and are silenced by the job."""
    return tuple(
        rule.name
        for rule in RULES.values()
        if rule.name in case.job.lint.ignore and any(rule.check(case))
    )


def not_judged(case: Case) -> dict[str, str]:
    """Rules that cannot say anything about the job, and what is not known.

    ``accelerator``, ``data``, or ``run``: how long it takes, for which both are needed.
    """
    unknown = set()
    if case.accelerator is None:
        unknown.add("accelerator")
    if case.statistics is None or not case.statistics.num_samples:
        unknown.add("data")
    if case.now.total_s is None:
        unknown.add("run")
    return {
        rule.name: rule.needs
        for rule in RULES.values()
        if rule.needs is not None
        and rule.needs in unknown
        and rule.name not in case.job.lint.ignore
    }
