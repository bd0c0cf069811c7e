"""Plan: which cards, how many, which settings; cost against time, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message, say
from tuneplan.web.fields import Field
from tuneplan.web.views.states import compared, job_alone, with_settings
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.answers import PlanAnswer
    from tuneplan.report.view import PageSection
    from tuneplan.web.form import Form
    from tuneplan.web.world import World

_ORDERS: Final = ("ascending", "descending")


def _answer(form: Form, world: World) -> PlanAnswer:
    from tuneplan.planner.plan import plan_job
    from tuneplan.report.plan_answer import plan_answer

    _check_order(form)
    job = form.job()
    plan = plan_job(job, world.sources(job), helper=world.helper)
    return plan_answer(plan, as_of=world.today.isoformat())


def _check_order(form: Form) -> None:
    from tuneplan.report.sections.shortlist import SORTED_BY

    wrong = [
        _no_order(name, form.text(name), valid)
        for name, valid in (("sort", SORTED_BY), ("order", _ORDERS))
        if form.text(name, valid[0]) not in valid
    ]
    if wrong:
        raise InvalidRequest(wrong)


def _no_order(name: str, value: str, valid: Sequence[str]) -> Mistake:
    text = message(
        "no_such_order", "{name} is {valid}, not {value!r}",
        name=name, value=value[:80], valid=" | ".join(valid),
    )  # fmt: skip
    return Mistake(message=text, path=name, value=value[:80], near=tuple(valid))


def _sections(answer: PlanAnswer, form: Form) -> tuple[PageSection, ...]:
    from tuneplan.report.sections.shortlist import SORTED_BY, PlanPage, plan_sections

    asked = job_alone(form)

    def opened(settings: Mapping[str, Any]) -> str:
        return with_settings(asked, settings).address("fit")

    def switched(settings: Mapping[str, Any]) -> str:
        return with_settings(asked, settings).address("levers")

    def together(several: Sequence[Mapping[str, Any]]) -> str:
        first, *others = (with_settings(asked, one) for one in several)
        return compared(first, others)

    page = PlanPage(
        opened=opened,
        switched=switched,
        compared=together,
        sorted_by=lambda name, order: form.address("plan", sort=name, order=order),
        sort=form.text("sort", SORTED_BY[0]),
        order=form.text("order", _ORDERS[0]),
    )
    return plan_sections(answer, page)


VIEW = View(
    name="plan",
    title=lambda: say("Plan"),
    purpose=lambda: say("Which cards, how many and which settings, for the least money or time."),
    schema="plan",
    answer=_answer,
    sections=_sections,
    fields=(
        Field(name="sort", label=lambda: say("Sorted by"), kind="hidden"),
        Field(name="order", label=lambda: say("Order"), kind="hidden"),
    ),
    lead=("model", "method", "gpu", "samples", "mean_tokens", "deadline", "budget", "goal"),
)
