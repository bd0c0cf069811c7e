"""What every answer is made of: ranges, money, warnings, assumptions, terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from tuneplan.contract import SCHEMA_VERSION
from tuneplan.contract.plain_json import json_value
from tuneplan.language import LANGUAGES
from tuneplan.spec import answer as core
from tuneplan.spec import offer
from tuneplan.spec.answer import Basis

Number = int | FiniteFloat
Fraction = Annotated[FiniteFloat, Field(ge=0, le=1)]
Bytes = Annotated[int, Field(ge=0)]


def _open_to_new_fields(schema: dict[str, Any]) -> None:
    """A reader must not stumble over a field that a later release adds."""
    schema.pop("additionalProperties", None)


class Part(BaseModel):
    """Base of all parts: no field may be misspelt, and every field is in the output."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_open_to_new_fields,
        protected_namespaces=(),
        defer_build=True,  # a command builds only the validators that it needs
    )


class Range(Part):
    """P10, P50 and P90 of a figure; the unit is in the name of the field that holds it."""

    low: Number
    likely: Number
    high: Number
    basis: Basis

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low <= self.likely <= self.high:
            msg = "low <= likely <= high"
            raise ValueError(msg)
        return self


class Moved(Part):
    """One figure before and after the user's own measurements, and what moved it."""

    figure: str
    before: Range
    after: Range
    because: str


class Money(Part):
    """An exact amount in an ISO 4217 currency."""

    amount: str = Field(pattern=r"^-?\d+(\.\d+)?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")


class MoneyRange(Part):
    """P10, P50 and P90 of an amount."""

    low: Money
    likely: Money
    high: Money


class Notice(Part):
    """Something the reader should know; never fatal."""

    code: str
    params: dict[str, Any]
    message: str
    path: str | None = None
    line: int | None = None


class Assumption(Part):
    """Something nobody stated, and what was taken instead."""

    name: str
    value: Any
    reason: str
    source: str
    how_to_set: str


class Term(Part):
    """One addend of a sum of bytes."""

    kind: str
    size_bytes: int
    formula: str
    inputs: dict[str, Any]
    source: str
    basis: Basis
    parts: list[Term] = Field(default_factory=list)


class TimeTerm(Part):
    """One addend of a sum of seconds."""

    kind: str
    time_s: FiniteFloat
    formula: str
    inputs: dict[str, Any]
    source: str
    basis: Basis
    parts: list[TimeTerm] = Field(default_factory=list)


class Header(Part):
    """What every answer starts with."""

    schema_version: int = SCHEMA_VERSION
    tuneplan_version: str
    command: str
    as_of: str = Field(description="Date of the answer, ISO 8601.")
    language: str = Field(json_schema_extra={"enum": list(LANGUAGES)})


class Moment(Part):
    """A point of the timeline of a trace: ``t`` counts births and deaths of blocks."""

    t: int
    phase: str
    allocated_bytes: Bytes
    reserved_bytes: Bytes


def range_model(estimate: core.Estimate, *, whole: bool = False) -> Range:
    """An estimate as it stands in an answer; ``whole`` for bytes and counts."""
    low, likely, high = estimate.low, estimate.likely, estimate.high
    if whole:
        low, likely, high = round(low), round(likely), round(high)
    return Range(low=low, likely=likely, high=high, basis=estimate.basis)


def money_model(money: offer.Money, *, decimals: int = 2) -> Money:
    """Money rounded for an answer, half to even: ``{"amount": "12.34", "currency": "USD"}``."""
    amount = money.amount.quantize(Decimal(1).scaleb(-decimals))
    return Money(amount=f"{amount:f}", currency=money.currency)


def money_decimals(money: offer.Money) -> int:
    """Decimals of an amount that is compared: cents, of small sums three significant digits."""
    if not money.amount:
        return 2
    return min(8, max(2, 2 - money.amount.adjusted()))


def notice_model(notice: core.Notice) -> Notice:
    """A warning, its sentence in the current language."""
    return Notice(
        code=notice.message.code,
        params=json_value(notice.message.params),
        message=str(notice.message),
        path=notice.path,
        line=notice.line,
    )


def assumption_model(assumption: core.Assumption) -> Assumption:
    """An assumption, its reason in the current language."""
    return Assumption(
        name=assumption.name,
        value=json_value(assumption.value),
        reason=str(assumption.reason),
        source=assumption.source,
        how_to_set=assumption.how_to_set,
    )


def term_models(terms: Sequence[core.Term], *, total: int) -> list[Term]:
    """Terms of bytes, rounded so that they sum to ``total`` exactly, parts likewise to theirs."""
    sizes = whole_parts([term.value for term in terms], total)
    return [
        Term(
            kind=term.kind,
            size_bytes=size,
            formula=term.formula,
            inputs=json_value(term.inputs),
            source=term.source,
            basis=term.basis,
            parts=term_models(term.parts, total=size),
        )
        for term, size in zip(terms, sizes, strict=True)
    ]


def time_term_models(terms: Sequence[core.Term]) -> list[TimeTerm]:
    """Terms of seconds."""
    return [
        TimeTerm(
            kind=term.kind,
            time_s=term.value,
            formula=term.formula,
            inputs=json_value(term.inputs),
            source=term.source,
            basis=term.basis,
            parts=time_term_models(term.parts),
        )
        for term in terms
    ]


def whole_parts(values: Sequence[float], total: int) -> list[int]:
    """Whole numbers near ``values`` that sum to ``total``: the largest remainders are rounded up.

    Values that sum to something else are rounded each on its own: then there is nothing to share.
    """
    floors = [math.floor(value) for value in values]
    missing = total - sum(floors)
    if not 0 <= missing <= len(values):
        return [round(value) for value in values]
    by_remainder = sorted(range(len(values)), key=lambda at: (floors[at] - values[at], at))
    for at in by_remainder[:missing]:
        floors[at] += 1
    return floors
