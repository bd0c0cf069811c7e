"""A plan as the page shows it: the picture, a list that sorts, what to change, why not the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tuneplan.contract.answers import Fit, FrontPoint, PlanAnswer, PlanEntry, Rejection
from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    gib_range_cell,
    hours_range_cell,
    money_range_cell,
    range_cell,
    words,
)
from tuneplan.report.labels import cards_text, goal_label
from tuneplan.report.plan import (
    how_text,
    is_priced,
    lever_text,
    nothing_sentences,
    order_text,
    rejected_example,
    unknown_sentence,
)
from tuneplan.report.plan_charts import NARROW, WIDE, Option, cost_time_scatter
from tuneplan.report.sections.alternatives import (
    against_cell,
    full_name,
    option_of,
    short_accelerator,
    short_cards,
    verdict_cell_text,
)
from tuneplan.report.sections.ledger import assumed_section
from tuneplan.report.sections.remarks import remarks_section
from tuneplan.report.tables import UNKNOWN, money_range_text, time_range_text
from tuneplan.report.verdict import fit_sentence, ranges_sentence, run_sentences
from tuneplan.report.view import (
    Cell,
    Chart,
    Column,
    Link,
    Links,
    PageBlock,
    PageSection,
    Paragraph,
    Table,
)
from tuneplan.units import HOUR_S, format_count, format_gib

_LAST: Final = float("inf")
SORTED_BY: Final = ("rank", "memory", "duration", "card_hours", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """Where the page leads, and how its list is sorted.

    Attributes:
        opened: The page of one candidate, by its keys of the job file (None = blank).
        switched: The levers of one candidate.
        compared: Candidates side by side.
        sorted_by: This page sorted by one of ``SORTED_BY``, ascending or descending.
    """

    opened: Callable[[Mapping[str, Any]], str]
    switched: Callable[[Mapping[str, Any]], str]
    compared: Callable[[Sequence[Mapping[str, Any]]], str]
    sorted_by: Callable[[str, str], str]
    sort: str = "rank"
    order: str = "ascending"


def plan_sections(answer: PlanAnswer, page: PlanPage) -> tuple[PageSection, ...]:
    """The plan on top; then the list; then how to do better, and why not otherwise."""
    if not answer.entries:
        found = [_nothing(answer, page)]
    else:
        found = [_best(answer, page), _list(answer, page), _better(answer, page)]
    if answer.rejected.by_reason:
        found.append(_why_not(answer, page))
    for told in (
        remarks_section(answer.lint, answer.warnings),
        assumed_section(answer.assumptions),
    ):
        found.append(PageSection(name=told.name, title=told.title, blocks=told.blocks))
    return tuple(found)


def _nothing(answer: PlanAnswer, page: PlanPage) -> PageSection:
    """What to relax, and what would make a candidate fit that does not."""
    blocks: list[PageBlock] = [
        Paragraph(text=text, tone="plain" if place else "does_not_fit")
        for place, text in enumerate(nothing_sentences(answer.rejected.by_reason))
    ]
    too_large = next(
        (one.example for one in answer.rejected.by_reason if one.code == "does_not_fit"), None
    )
    if too_large is not None:
        levers = Link(text=say("What would make it fit"), address=page.switched(too_large))
        blocks.append(Links(title=say("Go on with"), items=(levers,)))
    return PageSection(name="plan", title=say("Plan"), blocks=tuple(blocks))


def _best(answer: PlanAnswer, page: PlanPage) -> PageSection:
    best = answer.entries[0]
    blocks: list[PageBlock] = [Paragraph(text=full_name(best), tone="loud")]
    fit = best.estimate.fit
    if isinstance(fit, Fit):
        blocks.append(Paragraph(text=fit_sentence(fit), tone=fit.verdict))
    blocks += [Paragraph(text=text) for text in run_sentences(best.estimate, answer.as_of)]
    if (unknown := unknown_sentence(answer)) is not None:
        blocks.append(Paragraph(text=unknown))
    chart = _scatter(answer, page)
    if chart is not None:
        blocks.append(chart)
    return PageSection(name="plan", title=_title(answer), blocks=tuple(blocks))


def _title(answer: PlanAnswer) -> str:
    if not is_priced(answer) and answer.goal != "fastest":
        return say("The first plan: {order}", order=order_text(answer))
    return {
        "cheapest": say("The cheapest plan"),
        "fastest": say("The fastest plan"),
        "balanced": say("The plan that balances time and cost"),
    }.get(answer.goal, say("Plan"))


def _scatter(answer: PlanAnswer, page: PlanPage) -> Chart | None:
    """The shortlist with its ranges among all that nothing beats; each point leads somewhere."""
    options = [
        replace(option, address=page.opened(entry.settings), remark=full_name(entry))
        for entry in answer.entries
        if (option := option_of(entry)) is not None
    ]
    currencies = {
        entry.estimate.cost.total.likely.currency for entry in answer.entries if entry.estimate.cost
    }
    if len(options) < 2 or len(currencies) != 1:
        return None
    currency = currencies.pop()
    listed = {entry.id for entry in answer.entries}
    others = [
        option
        for one in answer.front
        if one.id not in listed and (option := _dot(one, currency, page)) is not None
    ]
    drawn = {"currency": currency, "others": others}
    return Chart(
        name="cost_time",
        title=say("Cost against time"),
        caption=say(
            "Each numbered point is a plan by its rank, its lines run from low to high. Small "
            "points are others that none beats in cost, time and head-room together; the dashed "
            "line joins those that no other beats in cost and time. A click opens a plan."
        ),
        specification=cost_time_scatter(options, width=WIDE, **drawn),  # type: ignore[arg-type]
        narrow=cost_time_scatter(options, width=NARROW, **drawn),  # type: ignore[arg-type]
    )


def _dot(point: FrontPoint, currency: str, page: PlanPage) -> Option | None:
    if point.total_s is None or point.cost is None or point.cost.currency != currency:
        return None
    hours, money = point.total_s / HOUR_S, float(point.cost.amount)
    return Option(
        name="",
        hours=(hours, hours, hours),
        money=(money, money, money),
        address=page.opened(point.settings),
        remark=candidate_text(point.settings),
    )


def candidate_text(settings: Mapping[str, Any]) -> str:
    """A candidate in a few words: ``8 x GH200 96GB, LoRA, ZeRO-2, batch 2 x 1``."""
    name = settings.get("hardware.accelerator")
    nodes, cards = (
        settings.get("hardware.num_nodes"),
        settings.get("hardware.accelerators_per_node"),
    )
    on = ""
    if name and isinstance(nodes, int) and isinstance(cards, int):
        on = cards_text(short_accelerator(str(name)), nodes * cards, nodes)
    return ", ".join(part for part in (on, how_text(dict(settings))) if part)


def _list(answer: PlanAnswer, page: PlanPage) -> PageSection:
    currency = next(
        (one.estimate.cost.total.likely.currency for one in answer.entries if one.estimate.cost),
        "",
    )
    columns = (
        _sortable(Column(name=say("Rank"), amounts=1), "rank", page),
        Column(name=say("On, and how")),
        Column(name=say("Verdict")),
        _sortable(Column(name=say("Memory"), amounts=3, unit="GiB"), "memory", page),
        _sortable(Column(name=say("Duration"), amounts=3, unit="h"), "duration", page),
        _sortable(Column(name=say("Card-hours"), amounts=3, unit="h"), "card_hours", page),
        _sortable(Column(name=say("Cost"), amounts=3, unit=currency), "cost", page),
        Column(name=say("Against plan 1"), amounts=1, unit="%"),
    )
    entries = sorted(
        answer.entries,
        key=lambda entry: _place(entry, page.sort),
        reverse=page.order == "descending",
    )
    table = Table(
        title=say("The shortlist"),
        columns=columns,
        rows=tuple(_row(entry, answer.entries[0], page) for entry in entries),
        note=say("* none is better in cost, time and head-room together"),
    )
    together = [entry.settings for entry in answer.entries[:4]]
    links = Links(
        title=say("Go on with"),
        items=(
            Link(text=say("Plan 1 in Fit"), address=page.opened(answer.entries[0].settings)),
            Link(text=say("Levers of plan 1"), address=page.switched(answer.entries[0].settings)),
            *(
                [Link(text=say("Compare the first plans"), address=page.compared(together))]
                if len(together) > 1
                else []
            ),
        ),
    )
    searched = say(
        "{evaluated:,} of {candidates:,} candidates evaluated in {elapsed:.2f} s",
        evaluated=answer.search.num_evaluated,
        candidates=answer.search.num_candidates,
        elapsed=answer.search.elapsed_s,
    )
    return PageSection(
        name="shortlist",
        title=say("Shortlist"),
        blocks=(
            table,
            links,
            Paragraph(text=searched, tone="quiet"),
            Paragraph(text=ranges_sentence(), tone="quiet"),
        ),
    )


def _sortable(column: Column, name: str, page: PlanPage) -> Column:
    """A second click turns the order round."""
    here = page.sort == name
    other = "descending" if here and page.order == "ascending" else "ascending"
    return replace(column, link=page.sorted_by(name, other), order=page.order if here else "")


def _place(entry: PlanEntry, sort: str) -> float:
    estimate = entry.estimate
    if sort == "memory":
        return float(estimate.memory.peak_bytes.likely)
    if sort == "duration":
        total = estimate.time.total_s if estimate.time else None
        return float(total.likely) if total else _LAST
    if sort == "card_hours":
        hours = estimate.accelerator_hours
        return float(hours.likely) if hours else _LAST
    if sort == "cost":
        return float(estimate.cost.total.likely.amount) if estimate.cost else _LAST
    return float(entry.rank)


def _row(entry: PlanEntry, first: PlanEntry, page: PlanPage) -> tuple[Cell, ...]:
    estimate = entry.estimate
    hardware, time, fit = estimate.hardware, estimate.time, estimate.fit
    on = UNKNOWN
    if hardware is not None:
        on = short_cards(hardware)
    how = how_text(entry.settings)
    if entry.labels:
        labels = ", ".join(map(goal_label, entry.labels))
        how = say("{how} ({labels})", how=how, labels=labels)
    against = against_cell(entry, first)
    if entry is not first:
        address = page.compared([first.settings, entry.settings])
        text = against.text if against.amounts else say("compare")
        against = replace(against, text=text, link=address)
    return (
        count_cell(entry.rank),
        Cell(
            text=f"{on}{'*' if entry.pareto else ''}",
            link=page.opened(entry.settings),
            remark=how,
        ),
        Cell(text=verdict_cell_text(fit), tone=fit.verdict if isinstance(fit, Fit) else ""),
        gib_range_cell(estimate.memory.peak_bytes),
        hours_range_cell(time.total_s if time else None),
        range_cell(estimate.accelerator_hours, unit="h"),
        money_range_cell(estimate.cost.total if estimate.cost else None),
        against,
    )


def _better(answer: PlanAnswer, page: PlanPage) -> PageSection:
    """The next lever, and the smallest configuration that holds the job with its head-room."""
    blocks: list[PageBlock] = []
    best, lever = answer.entries[0], answer.next_best_lever
    if lever is not None:
        blocks.append(Paragraph(text=lever_text(lever)))
        if lever.settings:
            address = page.opened({**best.settings, **lever.settings})
            applied = Link(text=say("Apply it to plan 1"), address=address)
            blocks.append(Links(title=say("Next lever"), items=(applied,)))
    else:
        text = say("No single change of plan 1 saves much.")
        blocks.append(Paragraph(text=text, tone="quiet"))
    smallest = next((one for one in answer.entries if "smallest" in one.labels), None)
    if smallest is not None:
        blocks.append(Paragraph(text=_smallest_text(smallest)))
        opened = Link(text=say("The smallest in Fit"), address=page.opened(smallest.settings))
        blocks.append(Links(title=say("Smallest"), items=(opened,)))
    return PageSection(name="better", title=say("How to do better"), blocks=tuple(blocks))


def _smallest_text(entry: PlanEntry) -> str:
    estimate, fit = entry.estimate, entry.estimate.fit
    free = format_gib(fit.headroom_bytes) if isinstance(fit, Fit) else UNKNOWN
    return say(
        "The smallest that holds it with the head-room: {how}: {free} stay free, {duration}, "
        "{cost}.",
        how=candidate_text(entry.settings),
        free=free,
        duration=time_range_text(estimate.time.total_s if estimate.time else None),
        cost=money_range_text(estimate.cost.total if estimate.cost else None),
    )


def _why_not(answer: PlanAnswer, page: PlanPage) -> PageSection:
    table = Table(
        title=say("{count} candidates were left out", count=format_count(answer.rejected.total)),
        columns=(
            Column(name=say("Rejected"), amounts=1),
            Column(name=say("Because")),
            Column(name=say("For example")),
            Column(name=say("The nearest that would do")),
        ),
        rows=tuple(tuple(_rejected(one, page)) for one in answer.rejected.by_reason),
    )
    return PageSection(name="why_not", title=say("Why not the others"), blocks=(table,))


def _rejected(one: Rejection, page: PlanPage) -> Iterator[Cell]:
    yield count_cell(one.count)
    yield words(one.message)
    example = one.example
    whole = example is not None and bool(example.get("hardware.accelerators_per_node"))
    link = page.opened(example) if example is not None and whole else ""
    yield Cell(text=rejected_example(one), link=link)
    near = one.nearest_feasible
    if near is None:
        yield words(UNKNOWN)
    else:
        yield Cell(text=candidate_text(near), link=page.opened(near))
