"""The answer of ``rules``: rules of thumb beside ours, with the difference by cause."""

from __future__ import annotations

from typing import Any

from pydantic import Field, FiniteFloat

from tuneplan.contract.parts import Assumption, Header, Notice, Part, Range


class RuleTerm(Part):
    """One addend of a rule."""

    name: str
    size_bytes: FiniteFloat


class RuleCause(Part):
    """One word of a rule: what the rule gives it and what we do. Ours less the rule's."""

    name: str = Field(
        json_schema_extra={"enum": ["weights", "gradients", "optimizer", "activations", "other"]}
    )
    rule_bytes: FiniteFloat
    our_bytes: FiniteFloat
    difference_bytes: FiniteFloat
    reason: str


class RuleAnswer(Part):
    """A rule exactly as people state it, and ours for the same job and method on one card."""

    code: str
    statement: str
    method: str = Field(description="The method that the rule speaks of.")
    weights_only: bool
    terms: list[RuleTerm]
    rule_bytes: FiniteFloat
    our_bytes: Range | None = None
    difference_bytes: FiniteFloat | None = None
    causes: list[RuleCause]
    why: str
    no_answer: str | None = None


class RuleTableRow(Part):
    """One method of the folk table, for the size that is nearest."""

    method: str
    rule_low_bytes: FiniteFloat
    rule_high_bytes: FiniteFloat
    rule_cards: int
    our_bytes: Range | None = None
    our_cards: int | None = Field(
        None, description="Cards of 80 GB that hold our likely peak, split without loss."
    )


class TimeRuleAnswer(Part):
    """A saying about time: shares (0.2 = a fifth) or factors."""

    code: str
    statement: str
    said_low: FiniteFloat
    said_high: FiniteFloat
    is_factor: bool
    ours: FiniteFloat | None = None
    why: str


class RulesAnswer(Header):
    """The answer of ``rules``."""

    job: dict[str, Any]
    total_parameters: int
    active_parameters: int
    rules: list[RuleAnswer]
    table_parameters: FiniteFloat
    table: list[RuleTableRow]
    time_rules: list[TimeRuleAnswer]
    training_flop: FiniteFloat | None = Field(
        None, description="6 x active parameters x tokens of the run."
    )
    petaflop_s_days: FiniteFloat | None = None
    assumptions: list[Assumption]
    warnings: list[Notice]
