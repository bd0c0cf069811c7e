"""The answers of ``prices`` as text, and as the contract describes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.catalog.offers import offer_notices
from tuneplan.contract.answers import header
from tuneplan.contract.budgeted import BreakEven
from tuneplan.contract.priced import BreakEvenAnswer, LeftOutCard, PricesRefreshAnswer
from tuneplan.economics import break_even as core
from tuneplan.language import say
from tuneplan.planner.prices import RefreshedPrices
from tuneplan.report.budget import break_even_sentence, money_text
from tuneplan.report.budget_answer import break_even_model
from tuneplan.report.dates import date_text
from tuneplan.report.estimate_answer import notice_models
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import Column, facts, heading, number_text, paragraph, render, table

if TYPE_CHECKING:
    from datetime import date

    from rich.console import RenderableType

_ROWS = 10  # of the table over hours


def refresh_answer(found: RefreshedPrices, *, as_of: str) -> PricesRefreshAnswer:
    """The answer of ``prices refresh``."""
    return PricesRefreshAnswer(
        **header("prices refresh", as_of=as_of),
        file=str(found.path),
        num_offers=len(found.snapshot.rows),
        num_before=found.num_before,
        providers=list(found.snapshot.providers),
        accelerators=list(found.snapshot.chips),
        left_out=[LeftOutCard(card=c, num_offers=n) for c, n in found.snapshot.left_out],
        num_counting=found.num_counting,
        oldest_days=found.oldest_days,
        warnings=[],
    )


def break_even_answer(
    found: core.BreakEven, *, num_accelerators: int, day: date
) -> BreakEvenAnswer:
    """The answer of ``prices break-even``."""
    notices = [note for offer in (found.first, found.second) for note in offer_notices(offer, day)]
    return BreakEvenAnswer(
        **header("prices break-even", as_of=day.isoformat()),
        num_accelerators=num_accelerators,
        horizon_hours=float(found.horizon_hours),
        currency=found.currency,
        break_even=break_even_model(found),
        warnings=notice_models(tuple(notices)),
    )


def refresh_text(answer: PricesRefreshAnswer, page: Page) -> str:
    """What came, and what counts now."""
    left_out = sum(one.num_offers for one in answer.left_out)
    rows = [
        (say("Offers"), say("{count} ({before} before)", count=f"{answer.num_offers:,}",
                            before=f"{answer.num_before:,}")),
        (say("Providers"), ", ".join(answer.providers)),
        (say("Accelerators"), ", ".join(answer.accelerators)),
        (say("Left out"), say("{count} offers of {cards} cards that the catalogue does not have",
                              count=f"{left_out:,}", cards=len(answer.left_out))),
        (say("Counting now"), say("{count} offers, the oldest {days} days old",
                                  count=f"{answer.num_counting:,}", days=answer.oldest_days)),
        (say("Written to"), answer.file),
    ]  # fmt: skip
    return render([heading(say("Prices of {day}", day=date_text(answer.as_of))), facts(rows)], page)


def break_even_text(answer: BreakEvenAnswer, page: Page) -> str:
    """From how many hours on which offer is cheaper, and both over hours."""
    return render(list(_break_even(answer, page)), page)


def _break_even(answer: BreakEvenAnswer, page: Page) -> Iterator[RenderableType]:
    found = answer.break_even
    yield heading(break_even_sentence(found))
    if len(found.crossings) > 1:
        yield paragraph(
            say(
                "Up to {hours:,.0f} h it changes at {all} h.",
                hours=answer.horizon_hours,
                all=", ".join(f"{one.hours:,.1f}" for one in found.crossings),
            )
        )
    yield _table(found)
    yield from ledger((), answer.warnings, page)


def _table(found: BreakEven) -> RenderableType:
    every = max(1, len(found.points) // _ROWS)
    names = [f"{offer.provider}: {offer.name}" for offer in (found.first, found.second)]
    columns = (
        Column(name=say("Hours of use"), right=True, keep=True),
        Column(name=names[0], right=True),
        Column(name=names[1], right=True),
    )
    rows = [
        (number_text(point.hours), money_text(point.first), money_text(point.second))
        for point in found.points[every - 1 :: every]
    ]
    return table(columns, rows)
