"""A diagnosis of the core as the answer that the contract describes."""

from __future__ import annotations

from typing import Any

from tuneplan.contract.answers import Fit, header
from tuneplan.contract.diagnosed import (
    OomAnswer,
    OomCombined,
    OomCosts,
    OomFix,
    OomMatch,
    OomMessage,
    OomStage,
)
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import assumption_model, money_model, range_model
from tuneplan.contract.plain_json import json_value
from tuneplan.diagnosis.oom_matches import Match
from tuneplan.diagnosis.oom_text import Failure, Printed
from tuneplan.planner.change import Change
from tuneplan.planner.oom import Diagnosis
from tuneplan.planner.oom_ranking import Combination, Fix
from tuneplan.report.estimate_answer import fit_fields, notice_models, unique_assumptions


def oom_answer(diagnosis: Diagnosis, *, as_of: str) -> OomAnswer:
    """The answer of ``oom``; ``as_of`` is the day it is given, ``2026-11-30``."""
    failure, now = diagnosis.failure, diagnosis.now
    stage, combination = diagnosis.stage, diagnosis.smallest_combination
    assumptions = unique_assumptions(diagnosis.assumptions)
    return OomAnswer(
        **header("oom", as_of=as_of),
        job=job_document(now.resolved.job, assumptions) if now else None,
        stage=OomStage(
            name=stage.stage.value,
            confidence=stage.confidence.value,
            evidence=[str(one) for one in stage.evidence],
            within=stage.within.value if stage.within else None,
        ),
        message=_message(failure, diagnosis.num_failures) if failure else None,
        requested_bytes=_bytes(failure.requested) if failure else None,
        capacity_bytes=diagnosis.capacity_bytes,
        allocated_bytes=_bytes(failure.allocated) if failure else None,
        reserved_bytes=_bytes(failure.reserved) if failure else None,
        free_bytes=_bytes(failure.free) if failure else None,
        other_processes_bytes=failure.others_bytes if failure else None,
        needed_bytes=(
            range_model(diagnosis.needed_bytes, whole=True) if diagnosis.needed_bytes else None
        ),
        cause=diagnosis.cause.cause.value if diagnosis.cause.cause else None,
        cause_confidence=diagnosis.cause.confidence.value if diagnosis.cause.cause else None,
        cause_evidence=[str(one) for one in diagnosis.cause.evidence],
        matches=[_match(one) for one in diagnosis.matches],
        fixes=[_fix(one, place) for place, one in enumerate(diagnosis.fixes, start=1)],
        smallest_combination=[_combined(one) for one in combination.changes] if combination else [],
        combination_needs_bytes=(
            range_model(combination.needed_bytes, whole=True) if combination else None
        ),
        combination_costs=_costs(combination) if combination else None,
        card_too_small=diagnosis.card_too_small,
        assumptions=[assumption_model(one) for one in assumptions],
        warnings=notice_models(diagnosis.notices),
    )


def _bytes(printed: Printed | None) -> int | None:
    return printed.size_bytes if printed else None


def _message(failure: Failure, count: int) -> OomMessage:
    return OomMessage(
        line=failure.line, text=failure.text, source=failure.source.value, num_messages=count
    )


def _match(match: Match) -> OomMatch:
    return OomMatch(
        tensor=str(match.tensor.name),
        kind=match.tensor.kind,
        formula=match.tensor.formula,
        size_bytes=round(match.size_bytes),
        error_fraction=match.error_fraction,
        fits_stage=match.fits_stage,
    )


def _fix(fix: Fix, place: int) -> OomFix:
    because = fix.cannot_help_because
    return OomFix(
        rank=place,
        id=fix.change.kind,
        change=str(fix.change.message),
        settings=_settings(fix.change),
        saves_bytes=range_model(fix.saves_bytes, whole=True) if fix.saves_bytes else None,
        costs=_costs(fix),
        fit_after=Fit(**fit_fields(fix.fit_after)) if fix.fit_after is not None else None,
        enough_alone=fix.enough_alone,
        cannot_help_because=str(because) if because else None,
    )


def _settings(change: Change) -> Any:
    return json_value(dict(change.settings))


def _costs(fix: Fix | Combination) -> OomCosts:
    return OomCosts(
        time_fraction=range_model(fix.time_fraction) if fix.time_fraction else None,
        money=money_model(fix.money) if fix.money else None,
    )


def _combined(change: Change) -> OomCombined:
    return OomCombined(id=change.kind, change=str(change.message), settings=_settings(change))
