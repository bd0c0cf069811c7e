"""Rules of thumb as the answer that the contract describes."""

from __future__ import annotations

from tuneplan.contract import ruled
from tuneplan.contract.answers import header
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import assumption_model, range_model
from tuneplan.contract.ruled import RulesAnswer
from tuneplan.economics.thumb import petaflop_s_days
from tuneplan.planner.rules import JobRules, JudgedRule, TableEntry, TimeRule
from tuneplan.report.estimate_answer import notice_models, unique_assumptions


def rules_answer(found: JobRules, *, as_of: str) -> RulesAnswer:
    """The answer of ``rules``."""
    resolved = found.estimate.resolved
    assumptions = unique_assumptions(found.estimate.assumptions)
    return RulesAnswer(
        **header("rules", as_of=as_of),
        job=job_document(resolved.job, assumptions),
        total_parameters=resolved.model.total_parameters,
        active_parameters=resolved.model.active_parameters,
        rules=[_rule(one) for one in found.rules],
        table_parameters=found.row.parameters,
        table=[_row(one) for one in found.table],
        time_rules=[_time(one) for one in found.time],
        training_flop=found.flop,
        petaflop_s_days=None if found.flop is None else petaflop_s_days(found.flop),
        assumptions=[assumption_model(one) for one in assumptions],
        warnings=notice_models(found.notices),
    )


def _rule(one: JudgedRule) -> ruled.RuleAnswer:
    ours = one.our_bytes
    return ruled.RuleAnswer(
        code=one.rule.code,
        statement=str(one.rule.statement),
        method=one.method,
        weights_only=one.weights_only,
        terms=[ruled.RuleTerm(name=name, size_bytes=size) for name, size in one.rule.terms],
        rule_bytes=one.rule.total_bytes,
        our_bytes=None if ours is None else range_model(ours, whole=True),
        difference_bytes=None if ours is None else ours.likely - one.rule.total_bytes,
        causes=[
            ruled.RuleCause(
                name=cause.bucket,
                rule_bytes=cause.rule_bytes,
                our_bytes=cause.our_bytes,
                difference_bytes=cause.difference_bytes,
                reason=str(cause.reason),
            )
            for cause in one.causes
        ],
        why=str(one.rule.why_different),
        no_answer=None if one.no_answer is None else str(one.no_answer),
    )


def _row(one: TableEntry) -> ruled.RuleTableRow:
    low, high = one.rule_bytes
    return ruled.RuleTableRow(
        method=one.method,
        rule_low_bytes=low,
        rule_high_bytes=high,
        rule_cards=one.rule_cards,
        our_bytes=None if one.our_bytes is None else range_model(one.our_bytes, whole=True),
        our_cards=one.our_cards,
    )


def _time(one: TimeRule) -> ruled.TimeRuleAnswer:
    low, high = one.said
    return ruled.TimeRuleAnswer(
        code=one.code,
        statement=str(one.statement),
        said_low=low,
        said_high=high,
        is_factor=one.is_factor,
        ours=one.ours,
        why=str(one.why),
    )
