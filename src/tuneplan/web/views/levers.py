"""Levers: what each switch buys in memory, hours and money; a click makes the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuneplan.language import say
from tuneplan.web.views.states import with_settings
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.levered import LeversAnswer
    from tuneplan.report.view import Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


def _answer(form: Form, world: World) -> LeversAnswer:
    from tuneplan.planner.lever_table import levers_job
    from tuneplan.report.levers_answer import levers_answer

    job = form.job()
    found = levers_job(job, world.sources(job), replays=True, helper=world.helper)
    return levers_answer(found, as_of=world.today.isoformat())


def _sections(answer: LeversAnswer, form: Form) -> tuple[Section, ...]:
    from tuneplan.report.sections.levers import levers_sections

    return levers_sections(
        answer, address=lambda settings: with_settings(form, settings).address("levers")
    )


VIEW = View(
    name="levers",
    title=lambda: say("Levers"),
    purpose=lambda: say("What each switch buys in memory, hours and money."),
    schema="levers",
    answer=_answer,
    sections=_sections,
    lead=("model", "method", "gpu", "count", "max_length", "micro_batch"),
)
