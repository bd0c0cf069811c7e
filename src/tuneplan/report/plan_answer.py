"""A plan of the core as the answer that the contract describes."""

from __future__ import annotations

from tuneplan.contract.answers import (
    FrontPoint,
    Lever,
    PlanAnswer,
    PlanEntry,
    PlanMoved,
    Rejected,
    Rejection,
    Search,
    header,
)
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import assumption_model, money_decimals, money_model
from tuneplan.contract.plain_json import json_value
from tuneplan.planner.plan import Entry, Plan
from tuneplan.report.estimate_answer import (
    estimate_body,
    notice_models,
    quick_lint,
    unique_assumptions,
)
from tuneplan.report.piloted import moved_figures


def plan_answer(plan: Plan, *, as_of: str) -> PlanAnswer:
    """The answer of ``plan``; ``as_of`` is the day it is given, ``2026-11-30``."""
    return PlanAnswer(
        **header("plan", as_of=as_of),
        job=job_document(plan.job),
        assumptions=[assumption_model(one) for one in unique_assumptions(plan.assumptions)],
        warnings=notice_models(plan.notices),
        goal=plan.goal,
        search=Search(
            num_candidates=plan.num_candidates,
            num_evaluated=plan.num_evaluated,
            elapsed_s=plan.elapsed_s,
        ),
        entries=[_entry(entry) for entry in plan.entries],
        pareto=list(plan.pareto),
        front=[
            FrontPoint(
                id=one.id,
                settings=json_value(one.settings),
                total_s=one.total_s,
                cost=None
                if one.cost is None
                else money_model(one.cost, decimals=money_decimals(one.cost)),
                headroom_fraction=one.headroom_fraction,
            )
            for one in plan.front
        ],
        next_best_lever=_lever(plan),
        moved=[
            PlanMoved(rank=entry.rank, id=entry.id, **one.model_dump())
            for entry, before in zip(plan.entries, plan.before, strict=False)
            for one in moved_figures(before, entry.estimate)
        ],
        lint=quick_lint(plan.entries[0].estimate) if plan.entries else [],
        rejected=Rejected(
            total=sum(one.count for one in plan.rejected),
            by_reason=[
                Rejection(
                    code=one.code,
                    count=one.count,
                    message=str(one.message),
                    example=None if one.example is None else json_value(one.example),
                    nearest_feasible=(
                        None if one.nearest_feasible is None else json_value(one.nearest_feasible)
                    ),
                )
                for one in plan.rejected
            ],
        ),
    )


def _entry(entry: Entry) -> PlanEntry:
    return PlanEntry(
        rank=entry.rank,
        id=entry.id,
        labels=list(entry.labels),
        pareto=entry.pareto,
        settings=json_value(entry.settings),
        estimate=estimate_body(entry.estimate),
    )


def _lever(plan: Plan) -> Lever | None:
    """A lever is one of the best entry, so it bears that entry's id."""
    lever = plan.lever
    if lever is None or not plan.entries:
        return None
    return Lever(
        change=str(lever.change.message),
        id=plan.entries[0].id,
        saves=json_value(dict(lever.saves)),
        settings=json_value(dict(lever.change.settings)),
    )
