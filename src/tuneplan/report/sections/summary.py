"""The first page: the verdict in sentences, four figures, and their ranges as a picture."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.contract.answers import EstimateBody, Fit, PlanAnswer
from tuneplan.language import say
from tuneplan.report.amounts import (
    duration_range_cell,
    gib_cell,
    money_range_cell,
    range_cell,
    words,
)
from tuneplan.report.plan import nothing_sentences
from tuneplan.report.plan_charts import NARROW, WIDE, Interval, interval_bars
from tuneplan.report.sections.alternatives import entry_name, full_name
from tuneplan.report.tables import duration_scale
from tuneplan.report.verdict import (
    fit_sentence,
    percent_text,
    ranges_sentence,
    run_sentences,
    smallest_sentence,
    verdict_text,
)
from tuneplan.report.view import Block, Chart, Fact, Facts, Paragraph, Section
from tuneplan.units import HOUR_S


def estimate_summary(answer: EstimateBody, as_of: str | None, *, cards: int = 1) -> Section:
    """Of one configuration; ``cards`` where the accelerator is not stated."""
    blocks: list[Block] = [*_verdict(answer, as_of, cards)]
    tiles = tuple(_tiles(answer))
    if tiles:
        blocks.append(Facts(title=say("At a glance"), rows=tiles, tiles=True))
    chart = _intervals(answer)
    if chart is not None:
        blocks.append(chart)
    blocks.append(Paragraph(text=ranges_sentence(), tone="quiet"))
    return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))


def _verdict(answer: EstimateBody, as_of: str | None, cards: int) -> Iterator[Paragraph]:
    fit = answer.fit
    if isinstance(fit, list):
        yield Paragraph(text=smallest_sentence(fit, cards))
        return
    if fit is not None:
        yield Paragraph(text=fit_sentence(fit), tone=fit.verdict)
    if _runs(answer):
        for sentence in run_sentences(answer, as_of):
            yield Paragraph(text=sentence)


def _runs(answer: EstimateBody) -> bool:
    """Whether duration and cost say anything: what does not fit has none."""
    return not isinstance(answer.fit, Fit) or answer.fit.verdict != "does_not_fit"


def _tiles(answer: EstimateBody) -> Iterator[Fact]:
    fit, time = answer.fit, answer.time
    if isinstance(fit, Fit):
        yield Fact(
            name=say("Verdict"),
            cell=words(verdict_text(fit.verdict)),
            remark=say("probability {chance}", chance=percent_text(fit.probability_fits)),
        )
        need = fit.capacity_bytes - fit.headroom_bytes
        yield Fact(
            name=say("Memory of each card"),
            cell=gib_cell(need, formula="{memory.needed}"),
            remark=say("of {capacity}", capacity=gib_cell(fit.capacity_bytes).text),
        )
    if not _runs(answer):
        return
    if time is not None and time.total_s is not None:
        cell = duration_range_cell(time.total_s, same="time.total")
        yield Fact(name=say("Duration"), cell=cell)
    if answer.accelerator_hours is not None:
        yield Fact(
            name=say("Card-hours"),
            cell=range_cell(
                answer.accelerator_hours,
                unit="h",
                formulas=tuple(f"{{time.card_hours.{part}}}" for part in ("low", "likely", "high")),
            ),
        )
    if answer.cost is not None:
        yield Fact(
            name=say("Cost"),
            cell=money_range_cell(
                answer.cost.total,
                formulas=tuple(f"{{cost.total.{part}}}" for part in ("low", "likely", "high")),
            ),
            remark=answer.cost.offer.provider,
        )


def _intervals(answer: EstimateBody) -> Chart | None:
    """Duration and cost as ranges, under each other, each on an axis of its own."""
    panels = list(_panels(answer)) if _runs(answer) else []
    if not panels:
        return None
    return Chart(
        name="intervals",
        title=say("Low, likely, high"),
        caption="; ".join(
            say("{name}: {low:.3g} to {high:.3g}", name=title, low=row.low, high=row.high)
            for title, row in panels
        ),
        specification=_stacked(panels, WIDE),
        narrow=_stacked(panels, NARROW),
    )


def _stacked(panels: list[tuple[str, Interval]], width: int) -> dict[str, object]:
    drawn = [interval_bars([row], title=title, width=width) for title, row in panels]
    schema = drawn[0]["$schema"]
    bare = [{key: value for key, value in one.items() if key != "$schema"} for one in drawn]
    return {"$schema": schema, "vconcat": bare, "spacing": 18}


def _panels(answer: EstimateBody) -> Iterator[tuple[str, Interval]]:
    time, cost = answer.time, answer.cost
    if time is not None and time.total_s is not None:
        unit, scale = duration_scale(time.total_s.likely)
        total = time.total_s
        yield (
            say("duration in {unit}", unit=unit),
            Interval(
                name="", low=total.low / scale, likely=total.likely / scale, high=total.high / scale
            ),
        )
    if cost is not None:
        yield (
            say("cost in {currency}", currency=cost.total.likely.currency),
            Interval(
                name="",
                low=float(cost.total.low.amount),
                likely=float(cost.total.likely.amount),
                high=float(cost.total.high.amount),
            ),
        )


def plan_summary(answer: PlanAnswer) -> Section:
    """Of a shortlist: the first plan in words and figures, the durations of all as ranges."""
    if not answer.entries:
        return Section(
            name="summary",
            title=say("Summary"),
            blocks=tuple(
                Paragraph(text=text, tone="plain" if place else "does_not_fit")
                for place, text in enumerate(nothing_sentences(answer.rejected.by_reason))
            ),
        )
    best = answer.entries[0].estimate
    head = full_name(answer.entries[0])
    first = estimate_summary(best, answer.as_of)
    blocks: list[Block] = [block for block in first.blocks if not isinstance(block, Chart)]
    blocks.insert(0, Paragraph(text=head, tone="loud"))
    chart = _durations(answer)
    if chart is not None:
        blocks.insert(len(blocks) - 1, chart)
    return Section(name="summary", title=say("Summary"), blocks=tuple(blocks))


def _durations(answer: PlanAnswer) -> Chart | None:
    rows = []
    for entry in answer.entries:
        time = entry.estimate.time
        if time is not None and time.total_s is not None:
            total = time.total_s
            rows.append(
                Interval(
                    name=entry_name(entry),
                    low=total.low / HOUR_S,
                    likely=total.likely / HOUR_S,
                    high=total.high / HOUR_S,
                )
            )
    if not rows:
        return None
    title = say("hours until it is done")
    return Chart(
        name="intervals",
        title=say("How long each plan takes: low, likely, high"),
        caption="; ".join(
            say("{name}: {low:.3g} to {high:.3g} h", name=row.name, low=row.low, high=row.high)
            for row in rows
        ),
        specification=interval_bars(rows, title=title, width=WIDE),
        narrow=interval_bars(rows, title=title, width=NARROW),
    )
