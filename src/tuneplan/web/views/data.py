"""Data: lengths with the ``max_length`` line to drag, padding and packing, a file to drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuneplan.language import say
from tuneplan.web.fields import Field
from tuneplan.web.profiles import FIELD, keep_profile, profile_of
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.measured import DataProfileAnswer
    from tuneplan.planner.price_lengths import LengthPrice
    from tuneplan.report.view import PageSection, Section
    from tuneplan.tokens.profile import DataProfile
    from tuneplan.web.form import Form
    from tuneplan.web.world import World

_LONGEST: Final = 100_000_000


def _answer(form: Form, world: World) -> DataProfileAnswer:
    from tuneplan.planner.profile_data import look_at
    from tuneplan.report.profile_answer import profile_answer

    form.refuse_mistakes()
    length = _length(form)
    batch = form.whole("micro_batch", default=0, low=1, high=1_000_000) or None
    found = look_at(profile_of(form, world), max_length=length, per_device_train_batch_size=batch)
    return profile_answer(found, as_of=world.today.isoformat(), prices=_prices(found, form, world))


def _length(form: Form) -> int | None:
    """The length that is looked at: the longest sequence of the job; None for the recommended."""
    said = form.several("max_length")
    if not said:
        return None
    return form.with_keys({"max_length": said[0]}).whole(
        "max_length", default=0, low=1, high=_LONGEST
    )


def _prices(found: DataProfile, form: Form, world: World) -> tuple[LengthPrice, ...]:
    """What lengths cost on the job of the form; nothing before it names a card."""
    if not (form.given and form.text("gpu")):
        return ()
    from tuneplan.planner.price_lengths import price_lengths

    job = form.with_keys({"data.path": None, "training.max_length": None}).job()
    lengths = [one.max_length for one in found.at_max_length]
    return price_lengths(job, found, lengths, world.sources(job))


def _sections(answer: DataProfileAnswer, form: Form) -> tuple[Section | PageSection, ...]:
    from tuneplan.report.data_document import data_sections

    length = _length(form)
    return (*data_sections(answer, max_length=length), _hand_over(answer, form))


def _hand_over(answer: DataProfileAnswer, form: Form) -> PageSection:
    """Links that take the figures of the data to the other views."""
    from tuneplan.report.view import Link, Links, PageSection

    keys = {**stated_data(answer), "data.path": None, FIELD: None}
    with_data = form.with_keys(keys)
    links = tuple(
        Link(text=text, address=with_data.address(view))
        for view, text in (
            ("fit", say("Fit")),
            ("plan", say("Plan")),
            ("levers", say("Levers")),
            ("project", say("Project")),
        )
    )
    title = say("Go on with these samples and lengths")
    return PageSection(name="on", title=title, blocks=(Links(title=title, items=links),))


def stated_data(answer: DataProfileAnswer) -> dict[str, Any]:
    """The data as keys of the job file: samples, mean, quantiles."""
    lengths = answer.length
    keys: dict[str, Any] = {"data.num_samples": answer.num_samples}
    if lengths is not None:
        per_sample = lengths.mean * answer.sequences_per_sample
        keys["data.mean_tokens"] = round(per_sample, 1)
        if answer.sequences_per_sample == 1:
            quantiles = {
                "p25": lengths.p25,
                "p50": lengths.p50,
                "p75": lengths.p75,
                "p95": lengths.p95,
                "p99": lengths.p99,
                "max": lengths.max,
            }
            told = ", ".join(f"{name}: {value:g}" for name, value in quantiles.items())
            keys["data.quantiles"] = f"{{{told}}}"
    return keys


def _ready(form: Form) -> bool:
    return bool(form.uploads or form.text(FIELD) or form.text("data"))


VIEW = View(
    name="data",
    title=lambda: say("Data"),
    purpose=lambda: say("Drop a file of samples: their lengths, and what max_length does to them."),
    schema="data-profile",
    answer=_answer,
    sections=_sections,
    fields=(
        Field(
            name="skip",
            label=lambda: say("Leave bad rows out"),
            kind="switch",
        ),
        Field(name=FIELD, label=lambda: "", kind="hidden"),
        Field(name="file", label=lambda: say("File of samples"), kind="file", many=True),
    ),
    lead=("data", "model", "tokenizer", "max_length", "micro_batch", "gpu"),
    ready=_ready,
    keeps=keep_profile,
    drops=True,
)
