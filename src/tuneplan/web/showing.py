"""The form as it is drawn: each field with its value, its mistake, what is assumed without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.tables import value_text
from tuneplan.web.fields import BY_KEY, FIELDS, GROUPS, LEAD, Field, group_label
from tuneplan.web.form import Form, field_of

if TYPE_CHECKING:
    from tuneplan.errors import Mistake
    from tuneplan.web.views.view import View
    from tuneplan.web.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownField:
    """A field with what stands in it and beside it; all texts in the current language."""

    field: Field
    label: str
    hint: str
    value: str
    choices: Sequence[str]
    mistake: str
    assumed: str
    placeholder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """Fields under a heading; the lead group is not folded."""

    name: str
    title: str
    fields: tuple[ShownField, ...]
    open: bool

    @property
    def folds(self) -> bool:
        """Whether it can be closed."""
        return self.name != LEAD


def shown_groups(
    view: View, form: Form, world: World, *, answer: Any = None, mistakes: Sequence[Mistake] = ()
) -> tuple[ShownGroup, ...]:
    """The groups of a view's form."""
    assumed, wrong = assumed_texts(answer, form), mistake_texts(mistakes)
    kept = view.texts(form, world) if view.texts else {}
    groups: dict[str, list[ShownField]] = {LEAD: []}
    own = [one for one in view.fields if not (view.drops and one.kind == "file")]
    for one in (*own, *(FIELDS if view.job else ())):
        leads = one.name in view.lead or one in view.fields
        groups.setdefault(LEAD if leads else one.group, []).append(
            ShownField(
                field=one,
                label=one.label(),
                hint=one.hint() if one.hint else "",
                value=form.text(one.name) or kept.get(one.name, ""),
                choices=one.choices(world),
                mistake=wrong.get(one.name, ""),
                assumed=assumed.get(one.name, {}).get("text", ""),
                placeholder=assumed.get(one.name, {}).get("value", one.example),
            )
        )
    return tuple(
        ShownGroup(
            name=name,
            title=group_label(name) if name != LEAD else "",
            fields=tuple(groups[name]),
            open=any(one.value or one.mistake for one in groups[name]),
        )
        for name in GROUPS
        if groups.get(name)
    )


def assumed_texts(answer: Any, form: Form) -> Mapping[str, Mapping[str, str]]:
    """By field: what the answer took where the field is empty, as a ``value`` and a ``text``."""
    found: dict[str, Mapping[str, str]] = {}
    for one in getattr(answer, "assumptions", None) or ():
        name = BY_KEY[one.name].name if one.name in BY_KEY else None
        if name is not None and name not in found and not form.text(name):
            value = value_text(one.value)
            text = say("assumed: {value} ({reason})", value=value, reason=one.reason)
            found[name] = {"value": value, "text": text}
    return found


def mistake_texts(mistakes: Iterable[Mistake]) -> Mapping[str, str]:
    """By field: what is wrong with it."""
    found: dict[str, str] = {}
    for one in mistakes:
        name = field_of(one.path)
        if name is not None:
            said = " ".join([str(one.message), *_nearest(one)])
            found[name] = f"{found[name]}; {said}" if name in found else said
    return found


def _nearest(mistake: Mistake) -> Iterable[str]:
    if mistake.near:
        yield say("Nearest: {names}.", names=", ".join(mistake.near))
