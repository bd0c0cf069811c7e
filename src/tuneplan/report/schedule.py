"""The answer of ``schedule`` as text, with a Gantt chart of letters, and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tuneplan.contract.scheduled import ScheduleAnswer, ScheduledJob, Totals
from tuneplan.language import say
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    grouped,
    heading,
    paragraph,
    points,
    render,
    table,
    time_range_text,
)
from tuneplan.units import format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

_FULL: Final = "█"
_DEADLINE: Final = "|"
_NARROWEST: Final = 12  # columns of a bar
_BESIDE: Final = 46  # columns of what stands beside the bars


def schedule_text(answer: ScheduleAnswer, page: Page, *, full: bool = False) -> str:
    """The verdict, the bars, the machines, and how a queue would do.

    ``full`` shows every assumption.
    """
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: ScheduleAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    yield heading(title_text(answer))
    if answer.jobs:
        yield paragraph("\n".join(sentences(answer)), style="bold")
        yield _gantt(answer, page)
        yield _machines(answer)
    else:
        yield paragraph(why_none(answer), style="bold red")
        if answer.infeasible:
            yield points([one.message for one in answer.infeasible], mark="!")
    if answer.written:
        yield paragraph(say("Written: {files}", files=", ".join(answer.written)))
    if full:
        yield from ledger(answer.assumptions, answer.warnings, page, full=True)
        return
    if answer.warnings:
        yield heading(say("Warnings"))
        yield points([one.message for one in answer.warnings], mark="!")
    if answer.assumptions:
        yield heading(say("Assumed"))
        yield points([one.reason for one in answer.assumptions])


def title_text(answer: ScheduleAnswer) -> str:
    """How much is to be done, on how much."""
    jobs = len(answer.jobs) or len({one.name for one in answer.infeasible})
    cards = sum(machine.cards for machine in answer.machines)
    if not answer.jobs:
        return say("No schedule on {cards} accelerators", cards=cards)
    return say(
        "{jobs} {jobs:~job/jobs} on {cards} accelerators in {machines} "
        "{machines:~machine/machines}",
        jobs=jobs,
        cards=cards,
        machines=len(answer.machines),
    )


def why_none(answer: ScheduleAnswer) -> str:
    """That there is no schedule, and why."""
    if answer.status == "infeasible":
        return say("NOT ALL DEADLINES CAN BE KEPT on this pool. What makes it impossible:")
    return say("No schedule was found in the time given: raise --time-limit.")


def sentences(answer: ScheduleAnswer) -> Iterator[str]:
    """What the schedule comes to, how good it is, and what a queue would do."""
    total = answer.total
    if total is None or answer.makespan_s is None:
        return
    yield say("All done after {time}.", time=time_range_text(answer.makespan_s))
    yield _goodness(answer)
    if total.num_late:
        yield say(
            "{count} {count:~job ends after its deadline/jobs end after their deadlines}.",
            count=total.num_late,
        )
    if total.cost is not None:
        yield say(
            "Costs {amount} {currency}.",
            amount=grouped(total.cost.amount),
            currency=total.cost.currency,
        )
    if answer.idle_fraction is not None:
        yield say("{share:.0%} of the cards' time stands idle.", share=answer.idle_fraction)
    yield say("First come, first served: {queue}.", queue=", ".join(_queue(answer.first_come)))


def _goodness(answer: ScheduleAnswer) -> str:
    if answer.status == "optimal":
        return {
            "makespan": say("Proven the best: no schedule is done sooner."),
            "cost": say("Proven the best: no schedule costs less."),
            "lateness": say("Proven the best: no schedule is less late."),
        }[answer.objective]
    gap = f"{answer.gap_fraction or 0.0:.1%}"
    return {
        "makespan": say("Not proven the best: done sooner by {gap} at most is possible.", gap=gap),
        "cost": say("Not proven the best: {gap} less cost at most is possible.", gap=gap),
        "lateness": say("Not proven the best: {gap} less late at most is possible.", gap=gap),
    }[answer.objective]


def _queue(queue: Totals) -> Iterator[str]:
    yield format_duration(queue.makespan_s)
    if queue.cost is not None:
        yield f"{grouped(queue.cost.amount)} {queue.cost.currency}"
    if queue.num_late:
        yield say("{count} late", count=queue.num_late)


def _gantt(answer: ScheduleAnswer, page: Page) -> RenderableType:
    longest = max(len(job.name) for job in answer.jobs)
    width = max(_NARROWEST, page.width - _BESIDE - min(longest, 20))
    end = max(
        [job.end_s for job in answer.jobs]
        + [job.deadline_s for job in answer.jobs if job.deadline_s is not None]
    )
    last = max(job.end_s for job in answer.jobs)
    whole = min(end, 1.25 * last)
    return table(
        (
            Column(name=say("Job")),
            Column(name=say("On")),
            Column(name=say("Starts"), right=True, keep=True),
            Column(name=say("Ends"), right=True, keep=True),
            Column(name=say("0 to {end}", end=format_duration(whole)), style="cyan", keep=True),
        ),
        [
            (
                job.name,
                on_text(job),
                format_duration(job.start_s) if job.start_s else "0",
                format_duration(job.end_s) + ("!" if job.late_s else ""),
                bar_text(job, whole, width),
            )
            for job in sorted(answer.jobs, key=lambda one: (one.start_s, one.end_s))
        ],
    )


def on_text(job: ScheduledJob) -> str:
    """Machine and how many of its cards: ``dgx #1: 4``."""
    return ", ".join(f"{one.machine}: {len(one.cards)}" for one in job.on)


def bar_text(job: ScheduledJob, whole_s: float, width: int) -> str:
    """A line of ``width`` signs: dots, the job as a bar, its deadline where it is within."""
    first = min(width - 1, int(width * job.start_s / whole_s))
    last = max(first + 1, min(width, round(width * job.end_s / whole_s)))
    signs = ["·"] * first + [_FULL] * (last - first) + ["·"] * (width - last)
    if job.deadline_s is not None and job.deadline_s <= whole_s:
        place = min(width - 1, max(0, round(width * job.deadline_s / whole_s)))
        signs[place] = _DEADLINE
    return "".join(signs)


def _machines(answer: ScheduleAnswer) -> RenderableType:
    return table(
        (
            Column(name=say("Machine")),
            Column(name=say("Cards"), right=True, keep=True),
            Column(name=say("Busy card-hours"), right=True, keep=True),
            Column(name=say("Idle"), right=True, keep=True),
            Column(name=say("Price per hour"), right=True, keep=True),
        ),
        [
            (
                machine.name,
                str(machine.cards),
                f"{machine.busy_card_hours:,.1f}",
                f"{machine.idle_fraction:.0%}",
                UNKNOWN
                if machine.price is None
                else f"{float(machine.price.amount):,.2f} {machine.price.currency}",
            )
            for machine in answer.machines
        ],
    )
