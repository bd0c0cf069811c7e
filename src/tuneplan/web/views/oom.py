"""OOM: what a log says of memory that ran out, and what helps; with the job also what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuneplan.language import message, say
from tuneplan.web.fields import Field
from tuneplan.web.sent import Sent, keeping, sent_of, showing
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.diagnosed import OomAnswer
    from tuneplan.report.view import Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World

_FIELD: Final = "log"  # names what was sent
_KEPT_BYTES: Final = 4 * 2**20  # of the end of a log, as ``tuneplan oom --log`` reads it


def _answer(form: Form, world: World) -> OomAnswer:
    from tuneplan.diagnosis.oom_text import read_log
    from tuneplan.errors import InvalidRequest, Mistake
    from tuneplan.planner.importing import Configuration
    from tuneplan.planner.oom import diagnose, diagnose_log
    from tuneplan.report.oom_answer import oom_answer

    sent = sent_of(form, world, _FIELD)
    log = read_log(*_end_of(sent)) if sent is not None else None
    if form.given:
        job = form.job()
        configuration = Configuration(job=job, imported=None, files=())
        diagnosis = diagnose(configuration, world.sources(job), log=log)
    elif log is not None:
        form.refuse_mistakes()
        diagnosis = diagnose_log(log)
    else:
        text = message("nothing_to_diagnose", "give the log of the run that failed, a job, or both")
        raise InvalidRequest([*form.mistakes, Mistake(message=text, path="text")])
    return oom_answer(diagnosis, as_of=world.today.isoformat())


def _end_of(sent: Sent) -> tuple[str, int]:
    """The end of the log, and the number of its first line."""
    text = sent.first.text
    if len(text) <= _KEPT_BYTES:
        return text, 1
    return text[-_KEPT_BYTES:], text[:-_KEPT_BYTES].count("\n") + 1


def _sections(answer: OomAnswer, _form: Form) -> tuple[Section, ...]:
    from tuneplan.report.oom_document import oom_sections

    return oom_sections(answer)


def _ready(form: Form) -> bool:
    return form.given or bool(form.text("text") or form.uploads or form.text(_FIELD))


VIEW = View(
    name="oom",
    title=lambda: say("OOM"),
    purpose=lambda: say("Paste the log of a run that ran out of memory: what it was, what helps."),
    schema="oom",
    answer=_answer,
    sections=_sections,
    fields=(
        Field(
            name="text",
            label=lambda: say("Log of the run that failed"),
            kind="area",
            hint=lambda: say("it stays on this machine"),
            example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. ...",
        ),
        Field(name="file", label=lambda: say("or its file"), kind="file"),
        Field(name=_FIELD, label=lambda: "", kind="hidden"),
    ),
    lead=("model", "method", "gpu", "count", "max_length", "micro_batch"),
    ready=_ready,
    posts=True,
    keeps=keeping(_FIELD),
    texts=showing(_FIELD),
)
