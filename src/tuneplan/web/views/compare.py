"""Compare: up to four plans side by side; the form is the first, the others are kept beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tuneplan.language import say
from tuneplan.web.fields import Field
from tuneplan.web.views.states import (
    AGAINST,
    MOST_AGAINST,
    compared,
    job_alone,
    state_of,
)
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.compared import CompareAnswer
    from tuneplan.report.sections.compare import PlanLinks
    from tuneplan.report.view import PageSection, Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


def _states(form: Form) -> tuple[Form, ...]:
    """The request itself, then those that are kept beside it."""
    return (form, *(state_of(query, form) for query in form.several(AGAINST)[:MOST_AGAINST]))


def _answer(form: Form, world: World) -> CompareAnswer:
    from tuneplan.planner.compare import compare_jobs
    from tuneplan.report.compare_answer import compare_answer

    first, *others = _states(form)
    first.job()  # mistakes of the form stand beside its fields
    plans = compare_jobs([one.job for one in (first, *others)], world.sources)
    return compare_answer(plans, as_of=world.today.isoformat())


def _sections(answer: CompareAnswer, form: Form) -> tuple[Section | PageSection, ...]:
    from tuneplan.report.sections.compare import compare_sections
    from tuneplan.report.view import Link, Links, PageSection, Paragraph

    states = _states(form)
    first, *others = states
    found: tuple[Section | PageSection, ...] = compare_sections(answer, links=tuple(_links(states)))
    if len(others) >= MOST_AGAINST:
        return found
    kept = Link(
        text=say("Keep this plan beside the form"), address=compared(first, [*others, first])
    )
    hint = Paragraph(
        text=say(
            "Plan A is what the form says. Keep it, then change the form: both stand side by side."
        ),
        tone="quiet",
    )
    keep = PageSection(
        name="keep",
        title=say("One more plan"),
        blocks=(hint, Links(title=say("One more plan"), items=(kept,))),
    )
    return (*found, keep)


def _links(states: Sequence[Form]) -> Iterator[PlanLinks]:
    from tuneplan.report.sections.compare import PlanLinks

    for place, one in enumerate(states):
        rest = [*states[:place], *states[place + 1 :]]
        yield PlanLinks(
            opened=job_alone(one).address("fit"),
            removed=compared(rest[0], rest[1:]) if rest else "",
        )


VIEW = View(
    name="compare",
    title=lambda: say("Compare"),
    purpose=lambda: say("Up to four plans side by side."),
    schema="compare",
    answer=_answer,
    sections=_sections,
    fields=(Field(name=AGAINST, label=lambda: say("Compared with"), kind="hidden"),),
    lead=("model", "method", "gpu", "count", "max_length", "micro_batch"),
)
