"""The JSON API is what its description says, and never fails on its own."""

from __future__ import annotations

import copy

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tuneplan.web.app import application
from tuneplan.web.openapi import document
from tuneplan.web.settings import Settings
from tuneplan.web.views import views
from web.asking import DAY, JOB, client

ASKED_FOR = ("testserver", "localhost")  # as schemathesis calls a server that it runs itself
SETTINGS = Settings(today=lambda: DAY, time_limit_s=120.0, hosts=ASKED_FOR)


def described() -> dict[str, object]:
    """The description with a job in short: its own schema is long, and tested with the contract."""
    told = copy.deepcopy(document())
    sections = {name: {"type": "object"} for name in ("data", "training", "hardware")}
    words = {name: {"type": "string"} for name in ("model", "method", "framework")}
    told["components"]["schemas"]["job"] = {"type": "object", "properties": {**words, **sections}}
    return told


API = schemathesis.openapi.from_dict(described())
API.app = application(SETTINGS)
CHECKS = (
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
    content_type_conformance,
)


@API.parametrize()
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_request_is_more_than_the_api_can_answer(case: schemathesis.Case) -> None:
    # On a busy machine the first plan takes longer than the ten seconds that are usual.
    case.call_and_validate(checks=CHECKS, timeout=SETTINGS.time_limit_s)


@pytest.mark.parametrize("view", views(), ids=lambda view: view.name)
def test_every_view_is_described_for_reading_and_for_sending(view) -> None:
    described = document()["paths"][f"/api/{view.name}"]
    assert set(described) == {"get", "post"}
    assert f"#/components/schemas/{view.schema}" in str(described["get"]["responses"]["200"])


def test_an_answer_is_what_its_schema_says() -> None:
    told = client().get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/estimate", "components": told["components"]}
    answer = client().get(f"/api/fit?{JOB}").json()
    assert not list(Draft202012Validator(schema).iter_errors(answer))
