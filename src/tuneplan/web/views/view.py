"""What a view is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tuneplan.frozen import dataclass

if TYPE_CHECKING:
    from tuneplan.report.view import PageSection, Section
    from tuneplan.web.fields import Field
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


def _always(_form: Form) -> bool:
    return True


def _with_model(form: Form) -> bool:
    return form.given


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One page and its JSON twin.

    Attributes:
        name: In the address: ``/fit``, ``/api/fit``.
        title: In the navigation, in the current language.
        purpose: One sentence under the title.
        schema: Name of the answer's schema (``tuneplan schema NAME``).
        answer: The use-case: what is asked and the world to the model that ``--json`` prints.
            Raises ``InputError`` for what the user can mend.
        sections: The answer as things to read; the form makes addresses of links.
        heading: What the answer is about, over it; None for the title of the view.
        fields: Fields that only this view has, before the common ones.
        lead: Names of common fields that are open from the start; the others fold.
        job: Whether the common fields, a job, are asked for at all.
        ready: Whether there is enough to answer; before that ``purpose`` alone is shown.
        posts: Whether text or files are sent to it; its form is then sent by POST.
        keeps: Puts what was sent on the shelf of the world: the form that names it, which the
            browser is sent on to, so that the address stays the state.
        texts: What stands in fields whose content is kept there.
        drops: Whether files may be dropped on it, beside its form, which is sent by GET.
        polls: Name of the section of an answer that is asked for again every few seconds; empty
            for none.
    """

    name: str
    title: Callable[[], str]
    purpose: Callable[[], str]
    schema: str
    answer: Callable[[Form, World], Any]
    sections: Callable[[Any, Form], tuple[Section | PageSection, ...]]
    heading: Callable[[Any], str] | None = None
    fields: tuple[Field, ...] = ()
    lead: tuple[str, ...] = ("model", "method", "gpu", "count")
    job: bool = True
    ready: Callable[[Form], bool] = _with_model
    posts: bool = False
    keeps: Callable[[Form, World], Form] | None = None
    texts: Callable[[Form, World], Mapping[str, str]] | None = None
    drops: bool = False
    polls: Callable[[Any], str] | None = None

    @property
    def needs_model(self) -> bool:
        """Whether an answer begins with a model."""
        return self.job and self.ready is _with_model


always = _always
