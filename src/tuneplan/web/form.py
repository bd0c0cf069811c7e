"""What a request says: the fields of the form, any other key of the job, files that came along.

A form is its address: ``form.address("plan", gpu="NVIDIA L4")`` is the page with one field changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.web.fields import BY_KEY, FIELDS, Field

if TYPE_CHECKING:
    from tuneplan.spec.stated import StatedJob

Value: TypeAlias = "str | int | float | bool | Sequence[str] | None"
SET: Final = "set"  # set=training.loss=chunked
NOT_FIELDS: Final = frozenset(["lang", "theme"])  # of the page, not of the job
_MOST_FIELDS: Final = 200
_LONGEST_VALUE: Final = 4096
_DIGITS: Final = 19
_NO_ROOT: Final = "/nonexistent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that came with the request; its name is only ever shown."""

    name: str
    content: bytes

    def text(self) -> str:
        """Its text; what is no UTF-8 is shown as such."""
        return self.content.decode("utf-8-sig", errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A request, read but not yet judged.

    Attributes:
        values: By the name of the field, as written; blank ones are left out.
        settings: Other keys of the job: ``training.loss=chunked``.
        document: A job as the job file has it, which fields and settings go before.
        uploads: By the name of the field.
        fields: Those that the view has beside the common ones.
        roots: Folders whose files it may name.
        mistakes: Names that no field has, values that are too long.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    settings: tuple[str, ...] = ()
    document: Mapping[str, Any] | None = None
    uploads: Mapping[str, tuple[Upload, ...]] = field(default_factory=lambda: MappingProxyType({}))
    fields: tuple[Field, ...] = ()
    roots: tuple[Path, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    def text(self, name: str, default: str = "") -> str:
        """What a field says."""
        return ",".join(self.values.get(name, ())) or default

    def several(self, name: str) -> tuple[str, ...]:
        """The values of a field: given several times, or with commas between."""
        return tuple(
            part.strip()
            for text in self.values.get(name, ())
            for part in text.split(",")
            if part.strip()
        )

    @property
    def given(self) -> bool:
        """Whether a model is named: before that there is nothing to answer."""
        named = [text for text in self.settings if text.startswith("model=")]
        return bool(self.values.get("model") or named or self.document)

    def whole(self, name: str, *, default: int, low: int, high: int) -> int:
        """The whole number of a field, ``default`` where it is blank.

        Raises:
            InvalidRequest: It is none, or not between ``low`` and ``high``.
        """
        text = self.text(name)
        if not text:
            return default
        plain = text.replace(",", "").replace("_", "").strip()
        if plain.isdecimal() and len(plain) < _DIGITS and low <= int(plain) <= high:
            return int(plain)
        told = message(
            "not_a_whole_number",
            "{value!r} is no whole number between {low} and {high}",
            value=text[:80],
            low=low,
            high=high,
        )
        raise InvalidRequest([*self.mistakes, Mistake(message=told, path=name, value=text)])

    def refuse_mistakes(self) -> None:
        """For views that ask for no job.

        Raises:
            InvalidRequest: What is wrong with the request as such.
        """
        if self.mistakes:
            raise InvalidRequest(self.mistakes)

    @property
    def base_path(self) -> str:
        """Where relative paths start: the first folder that may be read, else nowhere."""
        return str(self.roots[0]) if self.roots else _NO_ROOT

    def without_uploads(self) -> Form:
        """The same without the files that came along."""
        return replace(self, uploads=MappingProxyType({}))

    def job(self) -> StatedJob:
        """The job.

        Raises:
            InvalidRequest: Every mistake, each with the key of its field; among them files outside
                the folders that may be read.
        """
        from tuneplan.access.jobs import refuse_outside
        from tuneplan.contract.reading import load_job

        try:
            job = load_job(self.document, overrides=self.overrides(), set_=self.settings)
            refuse_outside(job, self.roots)
        except InvalidRequest as error:
            raise InvalidRequest([*self.mistakes, *error.mistakes]) from None
        if self.mistakes:
            raise InvalidRequest(self.mistakes)
        return replace(job, base_path=self.base_path)

    def overrides(self) -> dict[str, Any]:
        """Key paths of the job and the values of the fields."""
        return {
            one.key: _typed(one, self.values[one.name])
            for one in (*FIELDS, *self.fields)
            if one.key and self.values.get(one.name)
        }

    def address(
        self, view: str, /, **changes: str | int | float | bool | Sequence[str] | None
    ) -> str:
        """The page of ``view`` for this request, with some fields changed; None takes one out."""
        pairs: list[tuple[str, str]] = []
        values: dict[str, tuple[str, ...]] = dict(self.values)
        for name, value in changes.items():
            values[name] = _written(value)
        pairs += [(name, text) for name, texts in values.items() for text in texts]
        pairs += [(SET, text) for text in self.settings]
        return f"/{view}" + (f"?{urlencode(pairs, errors='replace')}" if pairs else "")

    def with_keys(self, keys: Mapping[str, Any]) -> Form:
        """The same request with keys of the job file, or fields, set; None takes one out."""
        from tuneplan.contract.job import keys as job_keys

        known = frozenset(job_keys())
        values, settings = dict(self.values), list(self.settings)
        for key, value in keys.items():
            settings = [text for text in settings if not text.startswith(f"{key}=")]
            if key in _by_key() or key not in known:
                values[_by_key()[key].name if key in _by_key() else key] = _written(value)
            elif value is not None:
                settings.append(f"{key}={','.join(_written(value))}")
        kept = {name: texts for name, texts in values.items() if texts}
        return replace(self, values=MappingProxyType(kept), settings=tuple(settings))


def read_form(
    pairs: Sequence[tuple[str, str]],
    *,
    fields: Sequence[Field] = (),
    roots: tuple[Path, ...] = (),
    uploads: Mapping[str, tuple[Upload, ...]] | None = None,
    document: Mapping[str, Any] | None = None,
) -> Form:
    """The form of a query string or of a form's body.

    Args:
        pairs: Names and values in their order.
        fields: Those that the view brings along.
        roots: Folders whose files may be named.
        uploads: Files that came along.
        document: A job, where a program sends one.
    """
    known = {**_fields_of_views(), **{one.name: one for one in (*FIELDS, *fields)}}
    values: dict[str, tuple[str, ...]] = {}
    settings: list[str] = []
    mistakes: list[Mistake] = []
    if len(pairs) > _MOST_FIELDS:
        mistakes.append(_too_many(len(pairs)))
    for name, text in pairs[:_MOST_FIELDS]:
        said = text.strip()
        if not said or name in NOT_FIELDS:
            continue
        if name != SET and name not in known:
            mistakes.append(_no_such_field(name, known))
        elif len(said) > _LONGEST_VALUE and (name == SET or known[name].kind != "area"):
            mistakes.append(_too_long(name))
        elif name == SET:
            settings.append(said)
        else:
            values[name] = (*values.get(name, ()), text if known[name].kind == "area" else said)
    return Form(
        values=MappingProxyType(values),
        settings=tuple(settings),
        document=document,
        fields=tuple(fields),
        uploads=MappingProxyType(dict(uploads or {})),
        roots=roots,
        mistakes=tuple(mistakes),
    )


@cache
def _fields_of_views() -> Mapping[str, Field]:
    """Fields that only some view has: they stay in the address when one goes to another."""
    from tuneplan.web.views import views

    return {one.name: one for view in views() for one in view.fields}


@cache
def _by_key() -> Mapping[str, Field]:
    own = (one for one in _fields_of_views().values() if one.key)
    return {**{one.key: one for one in own}, **BY_KEY}


def field_of(path: str | None) -> str | None:
    """The field that a mistake's key path belongs to; None where no field has it."""
    if path is None:
        return None
    while path:
        if path in _by_key():
            return _by_key()[path].name
        path = path.rpartition(".")[0]
    return None


def _typed(one: Field, texts: tuple[str, ...]) -> Any:
    """The text of a field as the job file has it: numbers are numbers, several are a list."""
    if not one.many:
        return _value(one, texts[-1])
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = [_value(one, part) for part in parts]
    return found[0] if len(found) == 1 else found


def _value(one: Field, text: str) -> Any:
    if one.kind in ("flag", "choice") and text in ("true", "false"):
        return text == "true"
    if one.kind not in ("number", "choice"):
        return text
    plain = text.replace(",", "").replace("_", "").strip()
    try:
        return int(plain) if len(plain) < 19 else text
    except ValueError:
        pass
    try:
        return float(plain) if one.kind == "number" else text
    except ValueError:
        return text


def _written(value: Value) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, bool):
        return (str(value).lower(),)
    if isinstance(value, str | int | float):
        return (str(value),)
    return tuple(part for one in value for part in _written(one))


def _no_such_field(name: str, known: Mapping[str, Field]) -> Mistake:
    from difflib import get_close_matches

    return Mistake(
        message=message("no_such_field", "there is no field {name!r}", name=name[:80]),
        path=name[:80],
        near=tuple(get_close_matches(name[:80], [*known, SET], n=3, cutoff=0.5)),
        how_to_fix=message(
            "write_key_with_set", "any key of the job file is written as set=KEY=VALUE"
        ),
    )


def _too_many(count: int) -> Mistake:
    text = message(
        "too_many_fields", "{count} fields are more than {most}", count=count, most=_MOST_FIELDS
    )
    return Mistake(message=text)


def _too_long(name: str) -> Mistake:
    text = message(
        "field_too_long", "{name} is longer than {most} characters", name=name, most=_LONGEST_VALUE
    )
    return Mistake(message=text, path=name)
