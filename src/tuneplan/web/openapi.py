"""The JSON API described: OpenAPI 3.1, made from views, fields and the contract's schemas.

Source: spec.openapis.org/oas/v3.1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tuneplan._version import __version__
from tuneplan.contract.schema import json_schema
from tuneplan.web.fields import FIELDS, Field
from tuneplan.web.form import SET
from tuneplan.web.views import views

if TYPE_CHECKING:
    from tuneplan.web.views.view import View

_TEXT: Final = {"type": "string", "maxLength": 4096}
_NUMBER: Final = {"type": "string", "maxLength": 64, "examples": ["8"]}
_REFUSALS: Final = {
    "403": "Another site asked for this.",
    "405": "Only GET and POST are answered.",
    "413": "More was sent than is taken.",
    "414": "The address is too long.",
    "421": "Asked for under a name that is not this machine's.",
}


@cache
def document() -> Mapping[str, Any]:
    """The whole description; of the server's own kind, so it is made once."""
    schemas: dict[str, Any] = {}
    for name in sorted({"job", "errors", *(view.schema for view in views())}):
        _add_schema(schemas, name)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "tuneplan",
            "version": __version__,
            "summary": "Whether a fine-tuning job fits, how long it takes, what it costs.",
            "description": "Every view of the page as JSON: the same answers, and the same errors, "
            "as the command line gives with --json. Served to this machine alone.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {f"/api/{view.name}": _path(view) for view in views()},
        "components": {"schemas": schemas, "responses": dict(_responses())},
    }


def _add_schema(schemas: dict[str, Any], name: str) -> None:
    """A schema of the contract and what it refers to; like parts of several answers stand once."""
    schema = json_schema(name)
    schema.pop("$schema", None)
    definitions = schema.pop("$defs", {})
    names = {inner: f"{name}.{inner}" for inner in definitions}
    whole = {names[inner]: _referring(one, names) for inner, one in definitions.items()}
    schemas.update(whole)
    schemas[name] = _referring(schema, names)


def _referring(part: Any, names: Mapping[str, str]) -> Any:
    """A part of a schema with its references turned to the components."""
    if isinstance(part, list):
        return [_referring(one, names) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: _referring(one, names) for key, one in part.items() if key != "$ref"}
    if "$ref" in part:
        inner = str(part["$ref"]).removeprefix("#/$defs/")
        made["$ref"] = f"#/components/schemas/{names[inner]}"
    return made


def _path(view: View) -> dict[str, Any]:
    answers = {
        "200": {
            "description": f"The answer, as `tuneplan schema {view.schema}` describes it.",
            "content": _json({"$ref": f"#/components/schemas/{view.schema}"}),
        },
        **{
            status: {"$ref": f"#/components/responses/{status}"}
            for status in ("400", "503", *_REFUSALS)
        },
    }
    described = {"summary": view.purpose(), "tags": [view.name], "responses": answers}
    return {
        "get": {**described, "operationId": view.name, "parameters": list(_parameters(view))},
        "post": {**described, "operationId": f"{view.name}_sent", "requestBody": _body(view)},
    }


def _parameters(view: View) -> Iterator[dict[str, Any]]:
    for one in _fields(view):
        yield {
            "name": one.name,
            "in": "query",
            "description": _described(one),
            "schema": _schema(one),
            **({"example": one.example} if one.example else {}),
        }
    if view.job:
        yield {
            "name": SET,
            "in": "query",
            "description": "Any other key of the job file, as KEY=VALUE.",
            "schema": {"type": "array", "items": _TEXT, "maxItems": 100},
        }


def _fields(view: View) -> tuple[Field, ...]:
    own = tuple(one for one in view.fields if one.kind != "file")
    return (*own, *FIELDS) if view.job else own


def _described(one: Field) -> str:
    said = [
        f"{one.label()}." if one.label() else "",
        f"Key of the job: {one.key}." if one.key else "",
    ]
    said += ["Commas part several values, which are a choice."] if one.many else []
    return " ".join(said)


def _schema(one: Field) -> dict[str, Any]:
    if one.kind == "flag":
        return {"type": "string", "enum": ["true", "false"]}
    if one.kind == "area":
        return {"type": "string"}
    return dict(_NUMBER if one.kind == "number" else _TEXT)


def _body(view: View) -> dict[str, Any]:
    properties: dict[str, Any] = {one.name: _sent(one) for one in _fields(view)}
    if view.job:
        properties["job"] = {"$ref": "#/components/schemas/job"}
        properties[SET] = {"type": "array", "items": _TEXT, "maxItems": 100}
    content = _json({"type": "object", "properties": properties, "additionalProperties": False})
    files = {one.name: _file(one) for one in view.fields if one.kind == "file"}
    if view.posts:
        texts = {one.name: _schema(one) for one in _fields(view)}
        content["multipart/form-data"] = {
            "schema": {"type": "object", "properties": {**texts, **files}}
        }
    return {"required": True, "content": content}


def _sent(one: Field) -> dict[str, Any]:
    """A field in a JSON body, where numbers may be numbers."""
    kinds: list[dict[str, Any]] = [_schema(one)]
    if one.kind == "number":
        kinds.append({"type": "number"})
    if one.kind == "flag":
        kinds.append({"type": "boolean"})
    if one.many:
        kinds.append({"type": "array", "items": {"anyOf": list(kinds)}, "maxItems": 100})
    return {"description": _described(one), "anyOf": kinds}


def _file(one: Field) -> dict[str, Any]:
    content = {"type": "string", "contentMediaType": "application/octet-stream"}
    return {"type": "array", "items": content, "maxItems": 16} if one.many else content


def _responses() -> Iterator[tuple[str, dict[str, Any]]]:
    errors = _json({"$ref": "#/components/schemas/errors"})
    yield "400", {"description": "Every mistake of the request.", "content": errors}
    yield "503", {"description": "Too busy, or the answer took too long.", "content": errors}
    for status, said in _REFUSALS.items():
        yield (
            status,
            {"description": said, "content": {"text/plain": {"schema": {"type": "string"}}}},
        )


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": dict(schema)}}
