"""Accuracy: our own evidence, as ``make accuracy`` measured it for this release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuneplan.language import say
from tuneplan.web.views.view import View, always

if TYPE_CHECKING:
    from tuneplan.contract.evidenced import AccuracyAnswer
    from tuneplan.report.view import Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


def _answer(form: Form, world: World) -> AccuracyAnswer:
    from tuneplan.report.accuracy_answer import accuracy_answer

    form.refuse_mistakes()
    return accuracy_answer(as_of=world.today.isoformat())


def _sections(answer: AccuracyAnswer, _form: Form) -> tuple[Section, ...]:
    from tuneplan.report.accuracy_document import accuracy_sections

    return accuracy_sections(answer)


VIEW = View(
    name="accuracy",
    title=lambda: say("Accuracy"),
    purpose=lambda: say("How far predictions were from measured runs that others published."),
    schema="accuracy",
    answer=_answer,
    sections=_sections,
    job=False,
    ready=always,
)
