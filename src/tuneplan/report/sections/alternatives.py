"""The other ways to run a job, set beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuneplan.contract.answers import EstimateBody, Fit, FitOn, Hardware, PlanAnswer, PlanEntry
from tuneplan.contract.checked import BestChange
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    gib_cell,
    gib_range_cell,
    hours_range_cell,
    money_range_cell,
    number_cell,
    range_cell,
    signed_money_cell,
    words,
)
from tuneplan.report.labels import cards_text
from tuneplan.report.plan import how_text, lever_text, rejected_example
from tuneplan.report.plan_charts import NARROW, WIDE, Option, cost_time_scatter, memory_bar
from tuneplan.report.sections.memory import memory_chart
from tuneplan.report.tables import UNKNOWN
from tuneplan.report.verdict import percent_text, verdict_text
from tuneplan.report.view import Block, Cell, Chart, Column, Paragraph, Section, Table
from tuneplan.units import GIB, HOUR_S


def plan_alternatives(answer: PlanAnswer) -> Section:
    """The shortlist with its chart, the next lever, and why not the others."""
    blocks: list[Block] = []
    chart = scatter(answer)
    if chart is not None:
        blocks.append(chart)
    if answer.entries:
        bars = [memory_bar(entry_name(entry), entry.estimate) for entry in answer.entries]
        blocks += [_shortlist(answer), memory_chart(bars)]
    if answer.next_best_lever is not None:
        blocks.append(Paragraph(text=lever_text(answer.next_best_lever)))
    if answer.rejected.by_reason:
        blocks.append(_rejected(answer))
    return Section(name="alternatives", title=say("Alternatives"), blocks=tuple(blocks))


def entry_name(entry: PlanEntry) -> str:
    """``1: 2 x NVIDIA L4``."""
    hardware = entry.estimate.hardware
    if hardware is None:
        return str(entry.rank)
    return f"{entry.rank}: {short_cards(hardware)}"


def full_name(entry: PlanEntry) -> str:
    """``Plan 1: 2 x NVIDIA L4, LoRA, ZeRO-2, batch 1 x 8``."""
    hardware = entry.estimate.hardware
    on = cards_text(hardware.accelerator, hardware.count, hardware.nodes) if hardware else ""
    how = ", ".join(part for part in (on, how_text(entry.settings)) if part)
    return say("Plan {rank}: {how}", rank=entry.rank, how=how)


def short_accelerator(accelerator: str) -> str:
    """A card without its maker, as charts have room for: ``RTX 4090``."""
    return accelerator.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("AMD ")


def short_cards(hardware: Hardware) -> str:
    """What a plan runs on, the card without its maker: ``2 x L4``."""
    return cards_text(short_accelerator(hardware.accelerator), hardware.count, hardware.nodes)


def scatter(answer: PlanAnswer) -> Chart | None:
    """Hours against cost of the shortlist; None with fewer than two that have both."""
    options = [option for entry in answer.entries if (option := option_of(entry)) is not None]
    currencies = {
        entry.estimate.cost.total.likely.currency for entry in answer.entries if entry.estimate.cost
    }
    if len(options) < 2 or len(currencies) != 1:
        return None
    currency = currencies.pop()
    return Chart(
        name="cost_time",
        title=say("Cost against time"),
        caption=say(
            "Each point is a plan by its rank, its lines run from low to high; the dashed line "
            "joins those that no other beats in both."
        ),
        specification=cost_time_scatter(options, currency=currency, width=WIDE),
        narrow=cost_time_scatter(options, currency=currency, width=NARROW),
    )


def option_of(entry: PlanEntry) -> Option | None:
    """A plan as a point of cost and time; None where one of them is not known."""
    time, cost = entry.estimate.time, entry.estimate.cost
    if time is None or time.total_s is None or cost is None:
        return None
    total = time.total_s
    money = cost.total
    return Option(
        name=str(entry.rank),
        hours=(total.low / HOUR_S, total.likely / HOUR_S, total.high / HOUR_S),
        money=(
            float(money.low.amount),
            float(money.likely.amount),
            float(money.high.amount),
        ),
    )


def _shortlist(answer: PlanAnswer) -> Table:
    currency = next(
        (one.estimate.cost.total.likely.currency for one in answer.entries if one.estimate.cost),
        "",
    )
    return Table(
        title=say("The shortlist"),
        columns=(
            Column(name=say("Rank"), amounts=1),
            Column(name=say("On, and how")),
            Column(name=say("Verdict")),
            Column(name=say("Memory"), amounts=3, unit="GiB"),
            Column(name=say("Duration"), amounts=3, unit="h"),
            Column(name=say("Card-hours"), amounts=3, unit="h"),
            Column(name=say("Cost"), amounts=3, unit=currency),
            Column(name=say("Against plan 1"), amounts=1, unit="%"),
        ),
        rows=tuple(_row(entry, answer.entries[0]) for entry in answer.entries),
        note=say("* none is better in cost, time and head-room together"),
    )


def _row(entry: PlanEntry, first: PlanEntry) -> tuple[Cell, ...]:
    estimate = entry.estimate
    hardware, time, fit = estimate.hardware, estimate.time, estimate.fit
    on = UNKNOWN
    if hardware is not None:
        on = cards_text(hardware.accelerator, hardware.count, hardware.nodes)
    key = f"alternatives.plan_{entry.rank}"
    return (
        count_cell(entry.rank),
        words(f"{on}{'*' if entry.pareto else ''}: {how_text(entry.settings)}"),
        words(verdict_cell_text(fit)),
        gib_range_cell(estimate.memory.peak_bytes),
        hours_range_cell(time.total_s if time else None),
        range_cell(estimate.accelerator_hours, unit="h"),
        money_range_cell(estimate.cost.total if estimate.cost else None, key=f"{key}.cost"),
        against_cell(entry, first),
    )


def verdict_cell_text(fit: Fit | list[FitOn] | None) -> str:
    """A verdict, with its probability where it is not a plain yes."""
    if not isinstance(fit, Fit):
        return UNKNOWN
    if fit.verdict == "fits":
        return verdict_text(fit.verdict)
    return f"{verdict_text(fit.verdict)} ({percent_text(fit.probability_fits)})"


def against_cell(entry: PlanEntry, first: PlanEntry) -> Cell:
    """How much more the likely cost is than that of the first plan."""
    own, best = entry.estimate.cost, first.estimate.cost
    if own is None or best is None or own.total.likely.currency != best.total.likely.currency:
        return words(UNKNOWN)
    base = float(best.total.likely.amount)
    if base <= 0:
        return words(UNKNOWN)
    more = float(own.total.likely.amount) / base - 1
    mine, its = (f"{{alternatives.plan_{one.rank}.cost.likely}}" for one in (entry, first))
    return number_cell(
        100 * more, unit="%", formula=f"({mine} / {its} - 1) * 100", digits=2, signed=True
    )


def _rejected(answer: PlanAnswer) -> Table:
    return Table(
        title=say("Why not the others"),
        columns=(
            Column(name=say("Rejected"), amounts=1),
            Column(name=say("Because")),
            Column(name=say("For example")),
        ),
        rows=tuple(
            (count_cell(one.count), words(one.message), words(rejected_example(one)))
            for one in answer.rejected.by_reason
        ),
        folded=True,
    )


def estimate_alternatives(answer: EstimateBody, changes: Sequence[BestChange]) -> Section:
    """What could be changed, each change estimated on this job; the cards where none is stated."""
    blocks: list[Block] = []
    if isinstance(answer.fit, list):
        blocks.append(_cards(answer.fit))
    if changes:
        blocks.append(
            Table(
                title=say("What would help most, each change alone"),
                columns=(
                    Column(name=say("Change")),
                    Column(name=say("Time"), amounts=1, unit="%"),
                    Column(name=say("Cost"), amounts=1, unit=_currency(changes)),
                    Column(name=say("Peak memory"), amounts=1, unit="GiB"),
                    Column(name=say("Then")),
                ),
                rows=tuple(tuple(_change(one)) for one in changes),
            )
        )
    if not blocks:
        blocks.append(Paragraph(text=say("No single change helps."), tone="quiet"))
    return Section(name="alternatives", title=say("Alternatives"), blocks=tuple(blocks))


def _cards(rows: Sequence[FitOn]) -> Table:
    return Table(
        title=say("Every card of the catalogue"),
        columns=(
            Column(name=say("Card")),
            Column(name=say("Verdict")),
            Column(name=say("Capacity"), amounts=1, unit="GiB"),
            Column(name=say("Stays free"), amounts=1, unit="GiB"),
        ),
        rows=tuple(
            (
                words(row.accelerator),
                words(verdict_cell_text(row)),
                gib_cell(row.capacity_bytes),
                gib_cell(row.headroom_bytes),
            )
            for row in rows
        ),
        folded=True,
    )


def _currency(changes: Sequence[BestChange]) -> str:
    for change in changes:
        for amounts in (change.saves, change.costs):
            money = amounts.get("money")
            if isinstance(money, dict):
                return str(money["currency"])
    return ""


def _change(one: BestChange) -> Iterator[Cell]:
    yield words(one.change + (f" ({one.note})" if one.note else ""))
    share = _signed(one, "time_fraction")
    yield number_cell(None if share is None else 100 * share, unit="%", digits=2, signed=True)
    yield _money(one)
    size = _signed(one, "peak_bytes")
    yield number_cell(None if size is None else size / GIB, unit="GiB", signed=True)
    yield words(verdict_text(one.fit_after.verdict) if one.fit_after else UNKNOWN)


def _signed(one: BestChange, name: str) -> float | None:
    for sign, amounts in ((-1, one.saves), (1, one.costs)):
        value = amounts.get(name)
        if isinstance(value, int | float):
            return sign * float(value)
    return None


def _money(one: BestChange) -> Cell:
    for sign, amounts in ((-1, one.saves), (1, one.costs)):
        money = amounts.get("money")
        if isinstance(money, dict):
            return signed_money_cell(sign, str(money["amount"]), str(money["currency"]))
    return words(UNKNOWN)
