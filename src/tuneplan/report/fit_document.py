"""An estimate as the page shows it: the verdict, memory, time, cost, what was assumed."""

from __future__ import annotations

from tuneplan.contract.answers import EstimateAnswer
from tuneplan.report.estimate import stated_cards
from tuneplan.report.sections.cost import cost_section
from tuneplan.report.sections.ledger import assumptions_section
from tuneplan.report.sections.memory import memory_section
from tuneplan.report.sections.remarks import remarks_section
from tuneplan.report.sections.summary import estimate_summary
from tuneplan.report.sections.time import time_section
from tuneplan.report.view import Section


def fit_sections(answer: EstimateAnswer) -> tuple[Section, ...]:
    """The parts, in the order in which they are read."""
    return (
        estimate_summary(answer, answer.as_of, cards=stated_cards(answer)),
        memory_section(answer),
        time_section(answer),
        cost_section(answer, answer.as_of),
        remarks_section(answer.lint, answer.warnings),
        assumptions_section(answer.assumptions, answer.job, answer.software),
    )
