"""Why: every figure opens its formula, inputs, basis and source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.language import say
from tuneplan.web.fields import Field
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.answers import ExplainAnswer
    from tuneplan.report.view import PageSection
    from tuneplan.web.form import Form
    from tuneplan.web.world import World

_FIRST: Final = "memory.peak_bytes"


def _answer(form: Form, world: World) -> ExplainAnswer:
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.report.explain_answer import check_figure, explain_answer

    figure = check_figure(form.text("figure", _FIRST))
    job = form.job()
    sources = world.sources(job)
    estimate = estimate_job(job, sources, replays=True)
    return explain_answer(estimate, figure, as_of=world.today.isoformat(), sources=sources)


def _sections(answer: ExplainAnswer, form: Form) -> tuple[PageSection, ...]:
    from tuneplan.report.sections.why import why_sections

    return why_sections(answer, address=lambda figure: form.address("why", figure=figure))


def _figures(_world: World) -> Sequence[str]:
    from tuneplan.report.explain_answer import FIGURES

    return tuple(FIGURES)


VIEW = View(
    name="why",
    title=lambda: say("Why"),
    purpose=lambda: say("Where every figure comes from: formula, inputs, basis, source."),
    schema="explain",
    answer=_answer,
    sections=_sections,
    fields=(Field(name="figure", label=lambda: say("Figure"), kind="choice", choices=_figures),),
)
