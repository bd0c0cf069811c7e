"""Fit: memory by term against each card's capacity, by phase, and what was assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuneplan.language import say
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.answers import EstimateAnswer
    from tuneplan.report.view import Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


def _answer(form: Form, world: World) -> EstimateAnswer:
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.report.estimate_answer import estimate_answer

    job = form.job()
    estimate = estimate_job(job, world.sources(job), replays=True)
    return estimate_answer(estimate, as_of=world.today.isoformat())


def _sections(answer: EstimateAnswer, form: Form) -> tuple[Section, ...]:
    from tuneplan.report.fit_document import fit_sections

    return fit_sections(answer, with_keys=lambda keys: form.with_keys(keys).address(VIEW.name))


def _heading(answer: EstimateAnswer) -> str:
    from tuneplan.report.verdict import title

    return title(answer)


VIEW = View(
    name="fit",
    title=lambda: say("Fit"),
    purpose=lambda: say("Whether it fits, how long it takes and what it costs."),
    schema="estimate",
    answer=_answer,
    sections=_sections,
    heading=_heading,
    lead=("model", "method", "gpu", "count", "max_length", "micro_batch"),
)
