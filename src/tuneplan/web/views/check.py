"""Check: somebody's own configuration: what was read, what was not, the verdict, what is wrong."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tuneplan.language import message, say
from tuneplan.web.fields import Field
from tuneplan.web.sent import Sent, keeping, sent_of, showing
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.checked import CheckAnswer
    from tuneplan.planner.importing import Configuration
    from tuneplan.report.view import PageSection, Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World

_FIELD: Final = "config"  # names what was sent
_PASTED: Final = "configuration.yaml"  # YAML holds JSON too
_SCRIPT: Final = "configuration.sh"


def _answer(form: Form, world: World) -> CheckAnswer:
    from tuneplan.errors import InvalidRequest, Mistake
    from tuneplan.planner.check import check_configuration
    from tuneplan.planner.importing import Configuration
    from tuneplan.report.check_answer import check_answer

    sent = sent_of(form, world, _FIELD)
    if sent is not None:
        configuration = _read(sent, form)
    elif form.given:
        configuration = Configuration(job=form.job(), imported=None, files=())
    else:
        text = message("nothing_to_check", "paste a configuration, or give its file")
        raise InvalidRequest([*form.mistakes, Mistake(message=text, path="text")])
    check = check_configuration(configuration, world.sources(configuration.job))
    return check_answer(check, as_of=world.today.isoformat())


def _read(sent: Sent, form: Form) -> Configuration:
    from tuneplan.access.jobs import refuse_outside
    from tuneplan.planner.importing import read_configuration_text

    form.refuse_mistakes()
    first = sent.first
    found = read_configuration_text(
        first.text,
        name=_name(first.name, first.text, form.text("file_name")),
        beside={PurePath(one.name).name: one.text for one in sent.texts[1:]},
        base_path=form.base_path,
        overrides=form.overrides(),
        set_=form.settings,
    )
    refuse_outside(found.job, form.roots)
    return found


def _name(own: str, text: str, said: str) -> str:
    """What the file is called: its ending decides how it is read."""
    if said.strip() or own:
        return PurePath(said.strip() or own).name
    from tuneplan.formats.shell_lines import shell_like

    return _SCRIPT if shell_like(text) else _PASTED


def _sections(answer: CheckAnswer, form: Form) -> tuple[Section | PageSection, ...]:
    from tuneplan.report.check_document import check_sections

    first, *rest = check_sections(answer)
    return (first, _open_in(answer, form), *rest)


def _open_in(answer: CheckAnswer, form: Form) -> PageSection:
    """Links to the other views with the job that was read."""
    from tuneplan.report.check_document import stated_keys
    from tuneplan.report.view import Link, Links, PageSection

    keys = dict.fromkeys((_FIELD, "text", "file_name"))
    opened = form.with_keys({**keys, **stated_keys(answer.job)})
    links = tuple(
        Link(text=text, address=opened.address(view))
        for view, text in (
            ("fit", say("Fit")),
            ("plan", say("Plan")),
            ("levers", say("Levers")),
            ("project", say("Project")),
        )
    )
    title = say("Go on with this job")
    return PageSection(name="on", title=title, blocks=(Links(title=title, items=links),))


def _ready(form: Form) -> bool:
    return form.given or bool(form.text("text") or form.uploads or form.text(_FIELD))


VIEW = View(
    name="check",
    title=lambda: say("Check"),
    purpose=lambda: say(
        "Paste the configuration of LLaMA-Factory, Axolotl, TRL, torchtune, LitGPT, ms-swift, "
        "DeepSpeed, Accelerate, or a launch script: does it fit, and what is wrong with it."
    ),
    schema="check",
    answer=_answer,
    sections=_sections,
    fields=(
        Field(name="text", label=lambda: say("Configuration"), kind="area"),
        Field(
            name="file",
            label=lambda: say("or its files, the one that is started first"),
            kind="file",
            many=True,
        ),
        Field(
            name="file_name",
            label=lambda: say("Name of the pasted file"),
            hint=lambda: say("its ending says how it is read"),
            example="train.yaml",
        ),
        Field(name=_FIELD, label=lambda: "", kind="hidden"),
    ),
    lead=("gpu", "count"),
    ready=_ready,
    posts=True,
    keeps=keeping(_FIELD),
    texts=showing(_FIELD),
)
