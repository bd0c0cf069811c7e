"""The levers of a job as the answer that the contract describes."""

from __future__ import annotations

from tuneplan.contract.answers import Fit, header
from tuneplan.contract.job_document import job_document
from tuneplan.contract.levered import LeverEffect, LeverFigures, LeversAnswer
from tuneplan.contract.parts import Range, assumption_model, range_model
from tuneplan.contract.plain_json import json_value
from tuneplan.estimation import uncertainty
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.lever_table import Effect, JobLevers
from tuneplan.report.estimate_answer import (
    fit_fields,
    money_range_model,
    notice_models,
    unique_assumptions,
)
from tuneplan.spec.answer import Estimate


def levers_answer(found: JobLevers, *, as_of: str) -> LeversAnswer:
    """The answer of ``levers``; ``as_of`` is the day it is given, ``2026-11-30``."""
    now = found.now
    assumptions = unique_assumptions(now.assumptions)
    headroom = found.job.limits.headroom_fraction
    return LeversAnswer(
        **header("levers", as_of=as_of),
        job=job_document(now.resolved.job, assumptions),
        goal=found.job.goal,
        now=_figures(now, now.memory.fit),
        levers=[_lever(effect, headroom) for effect in found.effects],
        assumptions=[assumption_model(one) for one in assumptions],
        warnings=notice_models(now.notices),
    )


def _lever(effect: Effect, headroom: float) -> LeverEffect:
    change, money = effect.change, effect.saves_money
    return LeverEffect(
        id=change.name,
        kind=change.kind,
        change=str(change.message),
        settings=json_value(dict(change.settings)),
        asks_for=change.price.name.lower(),
        note=str(change.note) if change.note is not None else None,
        after=_figures(effect.after, effect.fit_after) if effect.after is not None else None,
        saves_bytes=_range(effect.saves_bytes, whole=True),
        saves_s=_range(effect.saves_s),
        time_fraction=_range(effect.time_fraction),
        saves_money=money_range_model(money) if money is not None else None,
        keeps_headroom=effect.fit_after.keeps(headroom) if effect.fit_after is not None else None,
        cannot_help_because=(
            None if effect.cannot_help_because is None else str(effect.cannot_help_because)
        ),
    )


def _figures(estimate: JobEstimate, fit: uncertainty.Fit | None) -> LeverFigures:
    time = estimate.time
    run = time.run if time else None
    return LeverFigures(
        fit=Fit(**fit_fields(fit)) if fit is not None else None,
        peak_bytes=range_model(estimate.memory.ranges.peak_bytes, whole=True),
        step_s=range_model(time.step.step_s) if time else None,
        total_s=range_model(run.total_s) if run else None,
        accelerator_hours=range_model(run.accelerator_hours) if run else None,
        cost=money_range_model(estimate.cost.total) if estimate.cost else None,
    )


def _range(estimate: Estimate | None, *, whole: bool = False) -> Range | None:
    return None if estimate is None else range_model(estimate, whole=whole)
