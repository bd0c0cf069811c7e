"""A request to a form, with the language and the colours that its reader wants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import LANGUAGES, message, nearest_language
from tuneplan.web.form import Form, Upload, read_form
from tuneplan.web.rendering import THEMES
from tuneplan.web.settings import Settings

if TYPE_CHECKING:
    from starlette.requests import Request

    from tuneplan.web.views.view import View

_MOST_PARTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked, and how the answer is to look."""

    form: Form
    language: str
    theme: str


async def asked(request: Request, view: View, settings: Settings) -> Asked:
    """Read a request of the page: the address, and what a form has sent.

    Raises:
        InvalidRequest: The body does not read.
    """
    pairs = list(request.query_params.multi_items())
    uploads: dict[str, tuple[Upload, ...]] = {}
    if request.method == "POST":
        async for name, value in _sent(request, settings):
            if isinstance(value, Upload):
                uploads[name] = (*uploads.get(name, ()), value)
            else:
                pairs.append((name, value))
    form = read_form(pairs, fields=view.fields, roots=settings.roots, uploads=uploads)
    return Asked(form=form, language=language_of(request), theme=theme_of(request))


async def asked_by_program(request: Request, view: View, settings: Settings) -> Form:
    """Read a request of the JSON API: as above, or a JSON object ``{"job": ..., FIELD: ...}``.

    Raises:
        InvalidRequest: The body does not read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method != "POST" or kind != "application/json":
        return (await asked(request, view, settings)).form
    body = _json_object(await request.body())
    job = body.pop("job", None)
    if job is not None and not isinstance(job, Mapping):
        raise _invalid(message("job_is_no_object", "job is not an object"), path="job")
    pairs = list(request.query_params.multi_items())
    for name, value in body.items():
        pairs += [(name, text) for text in _texts(name, value)]
    return read_form(pairs, fields=view.fields, roots=settings.roots, document=job)


async def _sent(request: Request, settings: Settings) -> Any:
    limit = settings.upload_limit_bytes
    try:
        async with request.form(max_files=16, max_fields=_MOST_PARTS, max_part_size=limit) as sent:
            for name, value in sent.multi_items():
                if not isinstance(value, UploadFile):
                    yield name, value
                elif value.filename:
                    content = await value.read()
                    yield name, Upload(name=value.filename[:200], content=content)
    except (HTTPException, UnicodeError) as error:  # the latter of a charset that the form names
        why = getattr(error, "detail", str(error))
        text = message("form_does_not_read", "the form does not read: {why}", why=why)
        raise _invalid(text) from None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise _invalid(message("body_is_no_json", "the body is not JSON")) from None
    if not isinstance(found, dict):
        raise _invalid(message("body_is_no_object", "the body is not a JSON object"))
    return found


def _texts(name: str, value: Any) -> list[str]:
    """A value of a JSON object as a field of a form has it."""
    if value is None:
        return []
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str | int | float):
        return [str(value)]
    if isinstance(value, list) and not any(isinstance(one, list) for one in value):
        return [text for one in value for text in _texts(name, one)]
    text = message("field_is_no_value", "{name} is neither text nor number", name=name[:80])
    raise _invalid(text, path=name[:80])


def _invalid(text: Any, path: str | None = None) -> InvalidRequest:
    return InvalidRequest([Mistake(message=text, path=path)])


def language_of(request: Request) -> str:
    """The language of the address, else of the cookie, else the first that the browser names."""
    for chosen in (request.query_params.get("lang"), request.cookies.get("lang")):
        if chosen in LANGUAGES:
            return chosen
    return accepted_language(request.headers.get("accept-language", ""))


def accepted_language(header: str) -> str:
    """The best of ``Accept-Language``; English where none is ours. Source: RFC 9110, 12.5.4."""
    wanted: list[tuple[float, int, str]] = []
    for place, part in enumerate(header[:1000].split(",")):
        tag, _, weight = part.strip().partition(";q=")
        try:
            quality = float(weight or 1)
        except ValueError:
            continue
        found = nearest_language(tag)
        if found and quality > 0:
            wanted.append((-quality, place, found))
    return min(wanted)[2] if wanted else "en"


def theme_of(request: Request) -> str:
    """The colours of the address, else of the cookie, else those of the system."""
    for chosen in (request.query_params.get("theme"), request.cookies.get("theme")):
        if chosen in THEMES:
            return chosen
    return THEMES[0]
