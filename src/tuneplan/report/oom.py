"""The answer of ``oom`` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tuneplan.contract.diagnosed import OomAnswer, OomCosts, OomFix
from tuneplan.contract.parts import Range
from tuneplan.language import say
from tuneplan.report.labels import method_label
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bytes_range_text,
    facts,
    heading,
    paragraph,
    points,
    render,
    stacked,
    table,
    value_text,
)
from tuneplan.units import format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType


_SAME_TIME: Final = 0.005


def oom_text(answer: OomAnswer, page: Page, *, full: bool = False) -> str:
    """What ran out, which tensor it was, the fixes in order, the ledger.

    ``full`` shows what cannot help and every assumption.
    """
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: OomAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    yield heading(oom_title(answer))
    yield paragraph(oom_verdict(answer), style="red" if answer.card_too_small else "")
    yield facts(list(oom_figures(answer)))
    evidence = [*answer.stage.evidence, *answer.cause_evidence]
    if evidence:
        yield heading(say("What shows it"))
        yield points(evidence)
    if answer.matches:
        yield _matches(answer)
    helping = [fix for fix in answer.fixes if fix.cannot_help_because is None]
    if helping:
        yield _fixes(helping)
        yield from _settings(helping)
    hindered = [fix for fix in answer.fixes if fix.cannot_help_because is not None]
    if hindered:
        yield heading(say("What cannot help"))
        yield points(list(hindered_lines(hindered)))
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def oom_title(answer: OomAnswer) -> str:
    """What was diagnosed."""
    if answer.job is None:
        return say("Out of memory, by the log alone")
    parts = [value_text(answer.job.get("model"))]
    method = answer.job.get("method")
    if isinstance(method, str):
        parts.append(method_label(method))
    return say("Out of memory: {job}", job=", ".join(parts))


def cause_label(cause: str | None) -> str:
    """A cause in words."""
    return {
        "shortage": say("The card has too little memory for this job"),
        "fragmentation": say("The card's memory is in pieces that are too small"),
        "host": say("Main memory ran out, not the card's"),
        "paged_spill": say("Paged optimizer states do not fit beside the rest"),
    }.get(cause or "", say("Nothing shows what ran out"))


def _doubted_label(answer: OomAnswer) -> str | None:
    """Causes that a log makes likely, or that lie outside the job."""
    if answer.cause == "host" and answer.cause_confidence == "medium":
        return say("A process was killed, most likely because main memory ran out")
    others, requested = answer.other_processes_bytes, answer.requested_bytes
    if answer.cause == "shortage" and others and requested and others >= requested:
        return say("Other processes leave too little of the card")
    return None


def stage_label(stage: str) -> str:
    """A stage in words."""
    return {
        "load": say("while the model was loaded"),
        "first_forward": say("in the first forward pass"),
        "first_backward": say("in the first backward pass"),
        "optimizer_step": say("in the first optimizer step"),
        "later": say("after some steps had gone well"),
        "eval": say("in an evaluation"),
        "save": say("while a checkpoint was saved"),
    }.get(stage, say("at a moment that nothing shows"))


def oom_verdict(answer: OomAnswer) -> str:
    """What ran out and when, and what is enough: a sentence a line."""
    lines = [
        say(
            "{cause}, {stage}.",
            cause=_doubted_label(answer) or cause_label(answer.cause),
            stage=stage_label(answer.stage.name),
        )
    ]
    if answer.card_too_small:
        lines.append(
            say(
                "THE CARD IS TOO SMALL: no change of the job on the cards at hand leaves the "
                "head-room."
            )
        )
    elif answer.smallest_combination:
        lines.append(
            say(
                "It fits with: {changes}.",
                changes="; ".join(one.change for one in answer.smallest_combination),
            )
        )
        lines.append(_with_combination(answer))
    return "\n".join(lines)


def _with_combination(answer: OomAnswer) -> str:
    needs, costs = answer.combination_needs_bytes, answer.combination_costs
    text = say("Then it needs {need}", need=bytes_range_text(needs))
    if answer.capacity_bytes:
        text += say(" of {capacity}", capacity=format_gib(answer.capacity_bytes))
    cost = cost_text(costs) if costs else ""
    return f"{text}; {cost}." if cost else f"{text}."


def cost_text(costs: OomCosts) -> str:
    """Time and money that a fix costs; empty where neither is known."""
    parts = [_time_text(costs.time_fraction)] if costs.time_fraction else []
    if costs.money is not None:
        amount = float(costs.money.amount)
        if amount:
            parts.append(f"{amount:+.2f} {costs.money.currency}")
    return ", ".join(parts)


def _time_text(fraction: Range) -> str:
    if abs(fraction.likely) < _SAME_TIME:
        return say("no time")
    return say("{share:+.0%} time", share=fraction.likely)


def _size_text(size_bytes: int) -> str:
    if size_bytes >= 2**28:
        return format_gib(size_bytes)
    if size_bytes >= 2**14:
        return f"{size_bytes / 2**20:.4g} MiB"
    return say("{count} bytes", count=size_bytes)


def oom_figures(answer: OomAnswer) -> Iterator[tuple[str, str]]:
    """What the log and the estimate tell, each with its name."""
    if answer.message is not None:
        yield say("Line {line}", line=answer.message.line), answer.message.text
    sizes = (
        (say("Asked for"), answer.requested_bytes),
        (say("Capacity of the card"), answer.capacity_bytes),
        (say("Allocated by then"), answer.allocated_bytes),
        (say("Reserved by then"), answer.reserved_bytes),
        (say("Free by then"), answer.free_bytes),
        (say("Held by other processes"), answer.other_processes_bytes),
    )
    for name, size in sizes:
        if size:
            yield name, _size_text(size)
    if answer.needed_bytes is not None:
        yield say("The job needs"), bytes_range_text(answer.needed_bytes)
    yield (
        say("How sure of the stage"),
        {
            "high": say("high: the log shows it"),
            "medium": say("medium: the log makes it likely"),
            "low": say("low: only the estimate says so"),
        }.get(answer.stage.confidence, say("nothing shows it")),
    )


def _matches(answer: OomAnswer) -> RenderableType:
    return table(
        (
            Column(name=say("What has the size that was asked for")),
            Column(name=say("How it is made"), keep=True),
            Column(name=say("Off by"), right=True, keep=True),
        ),
        [
            (
                match.tensor if match.fits_stage else say("{name} (not there)", name=match.tensor),
                match.formula,
                say("nothing") if not match.error_fraction else f"{match.error_fraction:.2%}",
            )
            for match in answer.matches
        ],
    )


def _fixes(fixes: list[OomFix]) -> RenderableType:
    return table(
        (
            Column(name="#", right=True, keep=True),
            Column(name=say("Fix, in the order to try")),
            Column(name=say("Saves"), right=True, keep=True),
            Column(name=say("Costs"), right=True, keep=True),
            Column(name=say("Enough"), keep=True),
        ),
        [
            (
                str(fix.rank),
                fix.change,
                UNKNOWN if fix.id == "larger_card" else _saved_text(fix.saves_bytes),
                cost_text(fix.costs).replace(", ", "\n") or UNKNOWN,
                enough_text(fix),
            )
            for fix in fixes
        ],
    )


def enough_text(fix: OomFix) -> str:
    """The verdict on the job with the fix, in the words of the other commands."""
    if fix.enough_alone is None:
        return UNKNOWN
    verdict = fix.fit_after.verdict if fix.fit_after else ""
    if fix.enough_alone or verdict == "tight":
        return say("yes") if fix.enough_alone else say("tight")
    return say("no head-room") if verdict == "fits" else say("no")


def hindered_lines(fixes: Sequence[OomFix]) -> Iterator[str]:
    """Each with its reason; those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for fix in fixes:
        by_reason.setdefault(fix.cannot_help_because or "", []).append(fix.change)
    for reason, changes in by_reason.items():
        if len(changes) == 1:
            yield say("{change}: {reason}", change=changes[0], reason=reason)
        else:
            yield say("{reason}: {changes}", reason=reason, changes="; ".join(changes))


def _saved_text(saves: Range | None) -> str:
    return UNKNOWN if saves is None else stacked(bytes_range_text(saves))


def written_value(value: Any) -> str:
    """A value as it is written in a job file."""
    return say("(blank)") if value is None else value_text(value)


def _settings(fixes: list[OomFix]) -> Iterator[RenderableType]:
    """What to write for each fix that a job key says."""
    rows = [
        (f"{fix.rank}", ", ".join(f"{key}: {written_value(v)}" for key, v in fix.settings.items()))
        for fix in fixes
        if fix.settings
    ]
    if rows:
        yield facts(rows, title=say("What to write in the job file"))
