"""The answer of ``plan`` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tuneplan.contract.answers import Lever, PlanAnswer, PlanEntry, Rejection, Time
from tuneplan.language import say
from tuneplan.report.labels import cards_text, goal_label, layout_label, method_label
from tuneplan.report.learned import figure_label
from tuneplan.report.learned import range_text as figure_range_text
from tuneplan.report.ledger import ledger
from tuneplan.report.lint import lint_blocks
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bytes_range_text,
    facts,
    heading,
    money_range_text,
    paragraph,
    range_text,
    render,
    stacked,
    table,
    time_range_text,
    value_text,
)
from tuneplan.report.verdict import fit_sentence, percent_text, run_sentences, verdict_text
from tuneplan.units import format_count, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType


_OTHER_BATCH: Final = "other_global_batch"  # rejected for cards and batch, whatever the method
_MOVED: Final = ("step_s", "total_s", "peak_bytes", "peak_device_bytes")
# Key of the job file that each limit is set with.
_RELAXED_BY: Final = {
    "deadline": "limits.deadline",
    "budget": "limits.budget",
    "headroom": "limits.headroom",
    "provider_not_allowed": "limits.providers",
    "currency_without_rate": "limits.budget",
    "residency": "limits.residency",
    "region_unknown": "limits.residency",
    "region_not_allowed": "limits.regions",
    "interruptible": "limits.allow_interruptible",
    "one_machine_only": "hardware.num_nodes",
    "too_few_per_node": "hardware.accelerators_per_node",
}


def plan_text(answer: PlanAnswer, page: Page, *, full: bool = False) -> str:
    """The ranking, the best entry, the next lever, the rejections, the ledger.

    ``full`` shows the settings of every entry and every assumption.
    """
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: PlanAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    yield heading(
        say(
            "{model}: {count} {count:~plan/plans}, {goal} first",
            model=value_text(answer.job.get("model")),
            count=len(answer.entries),
            goal=order_text(answer),
        )
    )
    if answer.entries:
        yield _ranking(answer.entries)
        yield paragraph(_legend(answer.entries), style="dim")
        if (unknown := unknown_sentence(answer)) is not None:
            yield paragraph(unknown)
        yield from _best(answer)
        if answer.lint:
            yield from lint_blocks(answer.lint)
        if full:
            for entry in answer.entries[1:]:
                yield _settings(entry)
    else:
        yield paragraph("\n".join(nothing_sentences(answer.rejected.by_reason)), style="red")
    yield from _moved(answer)
    if answer.next_best_lever is not None:
        yield paragraph(lever_text(answer.next_best_lever))
    yield from _search(answer)
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def order_text(answer: PlanAnswer) -> str:
    """What the first plan is the best at: never the cheapest where no cost is known."""
    if answer.goal != "cheapest" or is_priced(answer):
        return goal_label(answer.goal)
    return say("fewest card-hours") if is_timed(answer) else say("least card-time a step")


def is_priced(answer: PlanAnswer) -> bool:
    """Whether any cost is known; true without entries, of which nothing is said."""
    return not answer.entries or any(one.estimate.cost for one in answer.entries)


def is_timed(answer: PlanAnswer) -> bool:
    """Whether any duration is known: not without the data."""
    return any(one.estimate.time and one.estimate.time.total_s for one in answer.entries)


def unknown_sentence(answer: PlanAnswer) -> str | None:
    """Why durations and costs are missing, what would give them, and what orders instead."""
    if is_priced(answer):
        return None
    if is_timed(answer):
        return say("No offer has a price for these cards, so no cost is known.")
    return say(
        "Duration and cost need the data: a file (--data), or how many samples "
        "(data.num_samples) of how many tokens (data.mean_tokens)."
    )


def _moved(answer: PlanAnswer) -> Iterator[RenderableType]:
    """What the user's own measurements moved, of the figures that decide."""
    shown = [one for one in answer.moved if one.figure in _MOVED]
    if not shown:
        return
    yield heading(say("What your own measurements move"))
    yield table(
        (
            Column(name="#", right=True, keep=True),
            Column(name=say("figure")),
            Column(name=say("before"), right=True),
            Column(name=say("after"), right=True),
        ),
        [
            (
                str(one.rank),
                figure_label(one.figure),
                figure_range_text(one.figure, one.before),
                figure_range_text(one.figure, one.after),
            )
            for one in shown
        ],
    )
    reasons = dict.fromkeys(f"{one.rank}: {one.because}" for one in shown)
    yield paragraph("\n".join(reasons), style="dim")


def _ranking(entries: Sequence[PlanEntry]) -> RenderableType:
    return table(
        (
            Column(name="#", right=True, keep=True),
            Column(name=say("On, and how")),
            Column(name=say("Memory"), right=True, keep=True),
            Column(name=say("Duration"), right=True, keep=True),
            Column(name=say("Card-hours"), right=True, keep=True),
            Column(name=say("Cost"), right=True, keep=True),
        ),
        [_row(entry) for entry in entries],
    )


def _row(entry: PlanEntry) -> tuple[str, ...]:
    estimate = entry.estimate
    hardware, time = estimate.hardware, estimate.time
    on = UNKNOWN
    if hardware is not None:
        on = cards_text(hardware.accelerator, hardware.count, hardware.nodes)
    fit = estimate.fit
    if fit is not None and not isinstance(fit, list) and fit.verdict != "fits":
        on += f" ({verdict_text(fit.verdict)}, {percent_text(fit.probability_fits)})"
    return (
        f"{entry.rank}{'*' if entry.pareto else ''}",
        f"{on}\n{how_text(entry.settings)}",
        stacked(bytes_range_text(estimate.memory.peak_bytes)),
        _duration(time),
        stacked(range_text(estimate.accelerator_hours, "h")),
        stacked(money_range_text(estimate.cost.total if estimate.cost else None)),
    )


def _duration(time: Time | None) -> str:
    """Duration, its range, and in how many optimizer steps: plans with other batches differ."""
    text = stacked(time_range_text(time.total_s if time else None))
    if time is None or time.steps is None:
        return text
    return f"{text}\n" + say("{count} steps", count=format_count(time.steps))


def how_text(settings: dict[str, Any]) -> str:
    """The settings of a candidate in a few words: method, layout, batch, what it recomputes."""
    words = [method_label(str(settings["method"]))] if settings.get("method") else []
    strategy = settings.get("parallelism.strategy")
    if strategy and strategy != "single":
        words.append(layout_label(str(strategy)))
    rows = settings.get("training.per_device_train_batch_size")
    if rows is not None:
        words.append(
            say(
                "batch {rows} x {times}",
                rows=rows,
                times=settings.get("training.gradient_accumulation_steps", 1),
            )
        )
    if settings.get("training.packing"):
        words.append(say("packed"))
    if settings.get("training.gradient_checkpointing"):
        words.append(say("checkpointing"))
    return ", ".join(words)


def _legend(entries: Sequence[PlanEntry]) -> str:
    labels = [
        say("{rank}: {labels}", rank=one.rank, labels=", ".join(map(goal_label, one.labels)))
        for one in entries
        if one.labels
    ]
    star = say("* none is better in cost, time and head-room together")
    return "; ".join([*labels, star])


def _best(answer: PlanAnswer) -> Iterator[RenderableType]:
    best = answer.entries[0]
    lines = []
    if best.estimate.fit is not None and not isinstance(best.estimate.fit, list):
        lines.append(fit_sentence(best.estimate.fit))
    lines += run_sentences(best.estimate, answer.as_of)
    yield heading(say("Plan {rank}", rank=best.rank))
    if lines:
        yield paragraph("\n".join(lines))
    yield _settings(best)


def _settings(entry: PlanEntry) -> RenderableType:
    return facts(
        [(name, value_text(value)) for name, value in entry.settings.items()],
        title=say("Settings of plan {rank}", rank=entry.rank),
    )


def lever_text(lever: Lever) -> str:
    """The change that would help most, and what it saves."""
    return say(
        "Next lever for plan 1: {change}: {saves}.",
        change=lever.change,
        saves=", ".join(_saving(name, value) for name, value in lever.saves.items()),
    )


def _saving(name: str, value: Any) -> str:
    more = isinstance(value, int | float) and value < 0
    amount = abs(value) if isinstance(value, int | float) else 0.0
    if name == "peak_bytes":
        size = format_gib(amount)
        return (
            say("{size} more memory", size=size) if more else say("{size} less memory", size=size)
        )
    share = f"{amount:.1%}"
    if name == "hours_fraction":
        return (
            say("{share} more time", share=share) if more else say("{share} less time", share=share)
        )
    if name == "cost_fraction":
        return (
            say("{share} more cost", share=share) if more else say("{share} less cost", share=share)
        )
    return f"{name} {value_text(value)}"


def _search(answer: PlanAnswer) -> Iterator[RenderableType]:
    yield paragraph(
        say(
            "{evaluated:,} of {candidates:,} candidates evaluated in {elapsed:.2f} s",
            evaluated=answer.search.num_evaluated,
            candidates=answer.search.num_candidates,
            elapsed=answer.search.elapsed_s,
        ),
        style="dim",
    )
    if answer.rejected.by_reason:
        yield table(
            (
                Column(name=say("Rejected"), right=True, keep=True),
                Column(name=say("Because")),
                Column(name=say("For example")),
            ),
            [
                (f"{one.count:,}", one.message, _example(one.code, one.example))
                for one in answer.rejected.by_reason
            ],
        )


def nothing_sentences(reasons: Sequence[Rejection]) -> Iterator[str]:
    """That nothing is left, and which limit took away most, with what would come nearest."""
    yield say("Nothing fits within the limits.")
    near = [one for one in reasons if one.nearest_feasible]
    limits = [one for one in reasons if one.code in _RELAXED_BY]
    of_cards = [one for one in reasons if one.code != _OTHER_BATCH]  # another batch fits no better
    foremost = max(
        near or limits or of_cards or list(reasons), key=lambda one: one.count, default=None
    )
    if foremost is None:
        return
    yield say(
        "To relax first: {key}, for {count} candidates fail there ({reason}).",
        key=_relaxed_by(foremost.code),
        count=format_count(foremost.count),
        reason=foremost.message,
    )
    if foremost.nearest_feasible:
        example = _example(foremost.code, foremost.nearest_feasible)
        yield say("The nearest that would do: {example}", example=example)


def _relaxed_by(code: str) -> str:
    return _RELAXED_BY.get(code) or {
        "does_not_fit": say("the cards (larger or more of them) or the method (qlora)"),
        _OTHER_BATCH: "training.global_batch_size",
    }.get(code, say("what the job states"))


def rejected_example(rejection: Rejection) -> str:
    """One of the candidates that were left out, in a few words."""
    return _example(rejection.code, rejection.example)


def _example(code: str, settings: dict[str, Any] | None) -> str:
    if not settings:
        return UNKNOWN
    name, cards = (settings.get("hardware.accelerator"), _num_cards(settings))
    on = str(name or "")
    if name and cards:
        on = cards_text(on, cards, settings["hardware.num_nodes"])
    if code != _OTHER_BATCH:
        return ", ".join(part for part in (on, how_text(settings)) if part)
    rows = settings.get("training.per_device_train_batch_size")
    if rows is None:
        return on
    return say("{on}, batch {rows} on each", on=on, rows=rows)


def _num_cards(settings: dict[str, Any]) -> int | None:
    """Cards of a candidate, where the number of machines is known too."""
    nodes = settings.get("hardware.num_nodes")
    cards = settings.get("hardware.accelerators_per_node")
    return nodes * cards if isinstance(nodes, int) and isinstance(cards, int) else None
