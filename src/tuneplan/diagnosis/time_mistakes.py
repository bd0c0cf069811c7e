"""Mistakes about time: peak rates, evaluation forgotten, cards that are to save GPU-hours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.language import Message, message
from tuneplan.units import format_duration

_MUCH: Final = 0.10  # of the run spent on evaluation and checkpoints
_LITTLE: Final = 0.05
_MORE_HOURS: Final = 0.02  # GPU-hours that count as more
_MANY_MORE_HOURS: Final = 0.15


def peak_throughput(case: Case) -> Iterator[Finding]:
    """A deadline or budget that only the datasheet's peak could keep."""
    now, limits = case.now, case.job.limits
    if not (case.flop and case.peak_flop_per_s and now.total_s and now.train_s):
        return
    ideal_s = case.flop / (case.peak_flop_per_s * case.ranks)
    reached = ideal_s / now.train_s
    figures = {
        "ideal_s": ideal_s,
        "total_s": now.total_s,
        "mfu_fraction": reached,
        "peak_flop_per_s": case.peak_flop_per_s,
    }
    fix = message(
        "lint_sustained",
        "plan with the sustained rate: {duration}; the datasheet's peak is never reached over a "
        "run",
        duration=format_duration(now.total_s),
    )
    if limits.deadline_s is not None and ideal_s <= limits.deadline_s < now.total_s:
        yield Finding(
            rule="peak_throughput",
            severity=Severity.WARNING,
            keys=("limits.deadline",),
            message=message(
                "lint_peak_deadline",
                "the deadline of {deadline} asks for {wanted:.0%} of the card's datasheet peak; "
                "this job sustains {reached:.0%} and takes {duration}",
                deadline=format_duration(limits.deadline_s),
                wanted=ideal_s / limits.deadline_s,
                reached=reached,
                duration=format_duration(now.total_s),
            ),
            evidence={**figures, "deadline_s": limits.deadline_s},
            fix=fix,
        )
    if limits.budget is None or now.cost is None or now.currency != limits.budget_currency:
        return
    cost = float(now.cost)
    if cost * ideal_s / now.total_s <= float(limits.budget) < cost:
        yield Finding(
            rule="peak_throughput",
            severity=Severity.WARNING,
            keys=("limits.budget",),
            message=message(
                "lint_peak_budget",
                "the budget of {budget} {currency} is enough at the card's datasheet peak only; "
                "this job sustains {reached:.0%} of it and costs {cost:,.2f} {currency}",
                budget=str(limits.budget),
                currency=limits.budget_currency,
                reached=reached,
                cost=cost,
            ),
            evidence={**figures, "budget": float(limits.budget), "cost": cost},
            fix=fix,
        )


def evaluation_forgotten(case: Case) -> Iterator[Finding]:
    """Evaluation and checkpoints take a good part of the run, or break the deadline alone."""
    now, deadline_s = case.now, case.job.limits.deadline_s
    if now.total_s is None or now.train_s is None:
        return
    evaluation, saving = now.eval_s or 0.0, now.checkpoint_s or 0.0
    share = (evaluation + saving) / now.total_s
    breaks = deadline_s is not None and now.train_s <= deadline_s < now.total_s
    if share < _MUCH and not (breaks and evaluation + saving > 0):
        return
    first = "training.eval_steps" if evaluation >= saving else "training.save_steps"
    last = "training.save_steps" if evaluation >= saving else "training.eval_steps"
    yield Finding(
        rule="evaluation_forgotten",
        severity=Severity.WARNING,
        keys=(first, first.replace("_steps", "_strategy"), last),
        message=message(
            "lint_evaluation_forgotten",
            "evaluation takes {evaluation} and writing checkpoints {saving}: {share:.0%} of the "
            "{total} that the run takes; training alone takes {train}{deadline}",
            evaluation=format_duration(evaluation),
            saving=format_duration(saving),
            share=share,
            total=format_duration(now.total_s),
            train=format_duration(now.train_s),
            deadline=message("lint_breaks_deadline", " and would meet the deadline")
            if breaks
            else "",
        ),
        evidence={
            "eval_s": evaluation,
            "checkpoint_s": saving,
            "train_s": now.train_s,
            "total_s": now.total_s,
            "deadline_s": deadline_s,
        },
        fix=_rarer(case, evaluates=evaluation >= saving),
    )


def _rarer(case: Case, *, evaluates: bool) -> Message:
    """The interval that brings the larger of the two under a twentieth of the run."""
    steps = case.eval_steps if evaluates else case.save_steps
    took = (case.now.eval_s if evaluates else case.now.checkpoint_s) or 0.0
    if not steps or not case.now.train_s or case.now.steps is None:
        return message("lint_less_often", "evaluate and save less often")
    rarer = min(math.ceil(steps * took / (_LITTLE * case.now.train_s)), case.now.steps)
    name = "eval_steps" if evaluates else "save_steps"
    return message("lint_interval", "write {name}: {steps}", name=name, steps=rarer)


def more_cards(case: Case) -> Iterator[Finding]:
    """More cards shorten the clock, not the GPU-hours: fewer that hold the job need fewer."""
    variant = case.variants.get("fewer_cards")
    now = case.now
    if case.ranks == 1 or variant is None or not now.accelerator_hours:
        return
    then = variant.outcome
    if not then.accelerator_hours or not then.keeps(case.headroom_fraction) or then.does_not_fit:
        return
    more = now.accelerator_hours / then.accelerator_hours - 1
    if more < _MORE_HOURS or now.total_s is None or then.total_s is None:
        return
    fewer = variant.settings["hardware.accelerators_per_node"]
    yield Finding(
        rule="more_cards",
        severity=Severity.WARNING if more >= _MANY_MORE_HOURS else Severity.ADVICE,
        keys=("hardware.accelerators_per_node", "hardware.num_nodes"),
        message=message(
            "lint_more_cards",
            "{count} cards take {now} and {hours} GPU-hours, {fewer} of them {then} and "
            "{fewer_hours}: more cards shorten the clock, not the GPU-hours",
            count=case.ranks,
            now=format_duration(now.total_s),
            hours=_hours(now.accelerator_hours),
            fewer=fewer,
            then=format_duration(then.total_s),
            fewer_hours=_hours(then.accelerator_hours),
        ),
        evidence={
            "accelerators": case.ranks,
            "accelerator_hours": now.accelerator_hours,
            "total_s": now.total_s,
            "accelerators_then": fewer,
            "accelerator_hours_then": then.accelerator_hours,
            "total_s_then": then.total_s,
        },
        fix=message(
            "lint_fewer_cards",
            "take {fewer} where {duration} is soon enough: {share:.0%} of the GPU-hours less",
            fewer=fewer,
            duration=format_duration(then.total_s),
            share=1 - then.accelerator_hours / now.accelerator_hours,
        ),
    )


def _hours(hours: float) -> str:
    """GPU-hours with three digits that count, so that two of a short run differ."""
    return f"{hours:#.3g}" if hours < 100 else f"{hours:,.0f}"
