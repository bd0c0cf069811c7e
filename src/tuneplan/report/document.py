"""An answer as a document: which parts, in which order."""

from __future__ import annotations

from tuneplan.contract.answers import PlanAnswer
from tuneplan.contract.checked import CheckAnswer
from tuneplan.language import say
from tuneplan.report.estimate import stated_cards
from tuneplan.report.plan import order_text
from tuneplan.report.sections.alternatives import estimate_alternatives, plan_alternatives
from tuneplan.report.sections.cost import cost_section
from tuneplan.report.sections.disks import disks_section
from tuneplan.report.sections.ledger import assumptions_section, sources_section
from tuneplan.report.sections.memory import memory_section
from tuneplan.report.sections.remarks import remarks_section
from tuneplan.report.sections.summary import estimate_summary, plan_summary
from tuneplan.report.sections.time import time_section
from tuneplan.report.tables import value_text
from tuneplan.report.verdict import title
from tuneplan.report.view import Document, Section


def estimate_document(answer: CheckAnswer) -> Document:
    """One configuration: an estimate with what stands out and what would help."""
    body = answer.estimate
    cards = stated_cards(body)
    return Document(
        kind="estimate",
        title=title(body),
        subtitle=say("An estimate before anything is spent"),
        as_of=answer.as_of,
        language=answer.language,
        tuneplan_version=answer.tuneplan_version,
        sections=(
            estimate_summary(body, answer.as_of, cards=cards),
            memory_section(body),
            time_section(body),
            cost_section(body, answer.as_of),
            *disks_section(body),
            estimate_alternatives(body, answer.best_changes),
            remarks_section(answer.lint, answer.warnings),
            assumptions_section(body.assumptions, body.job, body.software),
            sources_section(body),
        ),
    )


def plan_document(answer: PlanAnswer, first: CheckAnswer | None) -> Document:
    """A shortlist; ``first`` is the check of its first plan, whose figures are shown in full."""
    sections: list[Section] = [plan_summary(answer)]
    if answer.entries:
        best = answer.entries[0].estimate
        sections += [
            memory_section(best, chart=False),
            time_section(best),
            cost_section(best, answer.as_of),
            *disks_section(best),
        ]
    sections.append(plan_alternatives(answer))
    sections.append(remarks_section(first.lint if first else (), answer.warnings))
    if answer.entries:
        best = answer.entries[0].estimate
        sections += [
            assumptions_section(best.assumptions, best.job, best.software),
            sources_section(best),
        ]
    else:
        sections.append(assumptions_section(answer.assumptions, answer.job, {}))
    return Document(
        kind="plan",
        title=value_text(answer.job.get("model")),
        subtitle=say(
            "{count} {count:~plan/plans}, {goal} first",
            count=len(answer.entries),
            goal=order_text(answer),
        ),
        as_of=answer.as_of,
        language=answer.language,
        tuneplan_version=answer.tuneplan_version,
        sections=tuple(sections),
    )
