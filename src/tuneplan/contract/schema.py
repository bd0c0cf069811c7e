"""JSON Schema (2020-12) of the job file and of each answer, made from the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel

from tuneplan.contract.answers import (
    CatalogAnswer,
    Errors,
    EstimateAnswer,
    ExplainAnswer,
    PlanAnswer,
)
from tuneplan.contract.budgeted import BudgetAnswer
from tuneplan.contract.checked import CheckAnswer, ImportAnswer
from tuneplan.contract.compared import CompareAnswer
from tuneplan.contract.diagnosed import OomAnswer
from tuneplan.contract.evidenced import AccuracyAnswer
from tuneplan.contract.exported import ExportAnswer
from tuneplan.contract.job import JobFile, keys, sections
from tuneplan.contract.kept_runs import RunsAnswer
from tuneplan.contract.learned import LearnAnswer, StoreAnswer
from tuneplan.contract.levered import LeversAnswer
from tuneplan.contract.measured import DataProfileAnswer, ValidateAnswer
from tuneplan.contract.piloted import PilotAnswer, PilotMatrixAnswer
from tuneplan.contract.priced import BreakEvenAnswer, PricesRefreshAnswer
from tuneplan.contract.reported import ReportAnswer
from tuneplan.contract.ruled import RulesAnswer
from tuneplan.contract.scheduled import ScheduleAnswer
from tuneplan.contract.spellings import IRRELEVANT, SPELLINGS
from tuneplan.contract.tokenised import DataTokenizeAnswer
from tuneplan.contract.traced import TraceAnswer
from tuneplan.contract.values import nearest
from tuneplan.contract.watched import WatchAnswer
from tuneplan.errors import UnknownName
from tuneplan.language import message

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ANSWERS: Final[dict[str, type[BaseModel]]] = {
    "estimate": EstimateAnswer,
    "plan": PlanAnswer,
    "trace": TraceAnswer,
    "check": CheckAnswer,
    "import": ImportAnswer,
    "oom": OomAnswer,
    "explain": ExplainAnswer,
    "levers": LeversAnswer,
    "compare": CompareAnswer,
    "budget": BudgetAnswer,
    "rules": RulesAnswer,
    "prices-refresh": PricesRefreshAnswer,
    "break-even": BreakEvenAnswer,
    "catalog": CatalogAnswer,
    "data-profile": DataProfileAnswer,
    "data-tokenize": DataTokenizeAnswer,
    "validate": ValidateAnswer,
    "export": ExportAnswer,
    "pilot": PilotAnswer,
    "pilot-matrix": PilotMatrixAnswer,
    "learn": LearnAnswer,
    "report": ReportAnswer,
    "store-list": StoreAnswer,
    "runs": RunsAnswer,
    "accuracy": AccuracyAnswer,
    "watch": WatchAnswer,
    "schedule": ScheduleAnswer,
    "errors": Errors,
}
NAMES: Final = ("job", *_ANSWERS)


def json_schema(name: str) -> dict[str, Any]:
    """The schema of ``job`` or of an answer.

    Raises:
        UnknownName: With the nearest of ``NAMES``.
    """
    make: Callable[[], dict[str, Any]]
    if name == "job":
        make = _job_schema
    elif name in _ANSWERS:
        model = _ANSWERS[name]
        make = lambda: model.model_json_schema(mode="serialization")  # noqa: E731
    else:
        raise UnknownName(
            message(
                "unknown_schema",
                "there is no schema {name!r}; there are {names}",
                name=name,
                names=", ".join(NAMES),
            ),
            name=name,
            near=nearest(name, NAMES),
        )
    return {"$schema": _DIALECT, **make()}


def _job_schema() -> dict[str, Any]:
    """The schema of the job file, other spellings and short forms included."""
    schema = JobFile.model_json_schema()
    by_title = {kind.__name__: path for path, kind in sections().items()}
    for holder in (schema, *schema["$defs"].values()):
        _add_spellings(holder["properties"], by_title[holder["title"]])
    text = {"type": "string"}
    several = {"type": "array", "items": text}
    schema["properties"]["data"]["anyOf"] += [text, several]
    schema["properties"]["parallelism"]["anyOf"] += [text]
    # `model` may be said as `model_name_or_path`, so it is required in one of its spellings.
    del schema["required"]
    named = ["model", *(s.written[0] for s in SPELLINGS if s.targets == ("model",))]
    schema["anyOf"] = [{"required": [name]} for name in named]
    return schema


def _add_spellings(properties: dict[str, Any], path: str) -> None:
    known = set(keys())
    for spelling in SPELLINGS:
        if path not in ("", spelling.section):
            continue
        for name in spelling.written:
            if f"{path}.{name}".lstrip(".") not in known:
                targets = ", ".join(spelling.targets)
                properties[name] = {"description": f"Another spelling of {targets}."}
    if path in ("", "training"):
        for name in sorted(IRRELEVANT):
            properties[name] = {"description": "Accepted and left aside."}
