"""Money in a document: hours times price, and what else the run takes."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.contract.answers import Cost, EstimateBody
from tuneplan.frozen import dataclass
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    money_cell,
    money_range_cell,
    range_cell,
    words,
)
from tuneplan.report.dates import date_text
from tuneplan.report.estimate import no_cost
from tuneplan.report.labels import cost_item_label, per_label
from tuneplan.report.sections.time import if_it_fitted, run_scale
from tuneplan.report.verdict import age_days
from tuneplan.report.view import Block, Fact, Facts, Paragraph, Section
from tuneplan.units import HOUR_S

_PARTS = ("low", "likely", "high")
_CENT = 0.0051


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """How a cost follows from hours: ``instances`` times ``price``, in whole terms or not.

    Attributes:
        term_hours: Length of a term; 0 = as used.
    """

    instances: int
    term_hours: int = 0


def billed(answer: EstimateBody) -> Billed | None:
    """What is rented, as the amounts of the cost tell; None where no such product gives them."""
    cost, time = answer.cost, answer.time
    if cost is None or time is None or time.total_s is None:
        return None
    if cost.offer.price.currency != cost.total.likely.currency:
        return None
    price = float(cost.offer.price.amount)
    words_of_per = cost.offer.per.split()
    term = int(words_of_per[0]) if len(words_of_per) == 2 and words_of_per[0].isdigit() else 0
    if price <= 0 or (not term and cost.offer.per != "hour"):
        return None
    used = [_units(getattr(time.total_s, part) / HOUR_S, term) for part in _PARTS]
    paid = [float(getattr(cost.total, part).amount) for part in _PARTS]
    instances = round(paid[2] / (used[2] * price))
    fits = all(
        abs(instances * units * price - amount) <= max(_CENT, 1e-5 * amount)
        for units, amount in zip(used, paid, strict=True)
    )
    return Billed(instances=instances, term_hours=term) if fits and instances >= 1 else None


def _units(hours: float, term_hours: int) -> float:
    """Hours, or whole terms begun."""
    return max(1.0, -(-hours // term_hours)) if term_hours else hours


def cost_section(answer: EstimateBody, as_of: str | None) -> Section:
    """The bill, its price, and energy."""
    cost = answer.cost
    blocks: list[Block] = []
    if cost is None:
        blocks.append(Paragraph(text=say("The run") + ": " + no_cost(answer), tone="quiet"))
    else:
        blocks += if_it_fitted(answer)
        blocks.append(Facts(title=say("The bill"), rows=tuple(_bill(answer, cost, as_of))))
    rest = tuple(_rest(answer))
    if rest:
        blocks.append(Facts(title=say("Energy"), rows=rest))
    return Section(name="cost", title=say("Cost"), blocks=tuple(blocks))


def _bill(answer: EstimateBody, cost: Cost, as_of: str | None) -> Iterator[Fact]:
    offer, time = cost.offer, answer.time
    how = billed(answer)
    formulas: tuple[str, ...] = ()
    per = per_label(offer.per)
    if time is not None and time.total_s is not None:
        _, scale = run_scale(time.total_s)
        in_hours = "" if scale == HOUR_S else f" / {HOUR_S / scale:.12g}"
        yield Fact(
            name=say("Hours of the run"),
            cell=range_cell(
                time.total_s,
                unit="h",
                scale=HOUR_S,
                key="cost.hours",
                formulas=tuple(f"{{time.total.{part}}}{in_hours}" for part in _PARTS),
            ),
        )
    if how is not None:
        yield Fact(
            name=say("Instances rented"),
            cell=count_cell(how.instances, key="cost.instances"),
            remark=offer.name,
        )
        formulas = tuple(_formula(part, how) for part in _PARTS)
    yield Fact(
        name=say("Price"),
        cell=money_cell(offer.price, key="cost.price", per=say("per {per}", per=per)),
        remark=f"{offer.provider}, {offer.name}, {offer.region or say('region unknown')}",
    )
    days = age_days(offer.as_of, as_of)
    aged = "" if days is None else say(", {days} days ago", days=days)
    yield Fact(
        name=say("Price seen"),
        cell=words(say("{date}{aged}", date=date_text(offer.as_of), aged=aged)),
        remark=offer.source,
    )
    if len(cost.items) > 1:
        for item in cost.items:
            yield Fact(name=cost_item_label(item.name), cell=money_range_cell(item.amount))
    yield Fact(
        name=say("Cost of the run"),
        cell=money_range_cell(cost.total, key="cost.total", formulas=formulas),
        remark=_how(how),
    )


def _formula(part: str, how: Billed) -> str:
    hours = f"{{cost.hours.{part}}}"
    if how.term_hours:
        hours = f"MAX(1, ROUNDUP({hours} / {how.term_hours}, 0))"
    return f"ROUND({hours} * {{cost.price}} * {{cost.instances}}, 2)"


def _how(how: Billed | None) -> str:
    if how is None:
        return ""
    if how.term_hours:
        return say("whole terms of {hours} h x price x instances", hours=how.term_hours)
    return say("hours x price x instances")


def _rest(answer: EstimateBody) -> Iterator[Fact]:
    if answer.energy_kwh is not None:
        yield Fact(name=say("Energy"), cell=range_cell(answer.energy_kwh, unit="kWh"))
    if answer.co2_kg is not None:
        yield Fact(name=say("CO2"), cell=range_cell(answer.co2_kg, unit="kg"))
