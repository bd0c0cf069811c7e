"""Which offer each phase of a project is rented on, and what that costs in every case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from tuneplan.economics.interruptions import likely_paid_hours
from tuneplan.economics.money import convert, decimal
from tuneplan.economics.project import Hours, Phase
from tuneplan.economics.tariff import charge, charges
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Notice
from tuneplan.spec.offer import ExchangeRate, Money, Offer
from tuneplan.units import HOUR_S, format_duration

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renting:
    """How a job's machines are rented.

    Attributes:
        num_accelerators: Cards of one run.
        in_parallel: Runs at the same time, each on machines of its own.
        segment_hours: Work between two checkpoints.
        factor: What one unit of an offer's currency is in the budget's, by currency.
    """

    num_accelerators: int
    in_parallel: int
    segment_hours: float
    factor: Mapping[str, float]

    def instances(self, offer: Offer) -> int:
        """Instances of one run."""
        return math.ceil(self.num_accelerators / offer.num_accelerators)

    def likely_lost(self, offer: Offer, hours: Hours) -> Floats:
        """Hours that interruptions of a spot offer add to the runs of a phase, as expected."""
        training = hours.training + hours.lost
        segment = np.full_like(training, self.segment_hours)
        with np.errstate(invalid="ignore", divide="ignore"):
            paid = likely_paid_hours(offer, training, segment, num_instances=self.instances(offer))
        return np.where(training > 0, paid - training, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """The offer of every phase; phases in a row on the same offer are one rental."""

    offers: Mapping[Phase, Offer]

    def key(self) -> tuple[str, ...]:
        """For a fixed order of rentals that cost the same."""
        return tuple(f"{o.provider}/{o.name}/{o.region}" for o in self.offers.values())


def cost_by_phase(
    rental: Rental,
    hours: Mapping[Phase, Hours],
    renting: Renting,
    held_hours: Mapping[Phase, float],
    *,
    added: Mapping[Phase, Floats] | None = None,
) -> dict[Phase, Floats]:
    """What every phase costs, one entry a case, in the budget's currency.

    A phase that goes on with the rental of the one before pays what it adds to it.

    Args:
        rental: Offers.
        hours: Of every phase.
        renting: Cards, runs in parallel, currencies.
        held_hours: Hours of the calendar that a phase holds what is rented by the month.
        added: Hours that interruptions add, by phase; None for what is expected.
    """
    found: dict[Phase, Floats] = {}
    before: Offer | None = None
    so_far = paid = np.zeros(1)
    held = 0.0
    for phase in Phase:
        part = hours[phase]
        offer = rental.offers.get(phase)
        if offer is None:
            found[phase] = np.zeros_like(part.training)
            continue
        lost = renting.likely_lost(offer, part) if added is None else added[phase]
        rented = part.rented(lost) / renting.in_parallel
        if offer is not before:
            before, held = offer, 0.0
            so_far = paid = np.zeros_like(rented)
        so_far = so_far + rented
        held += held_hours.get(phase, 0.0)
        each = charges(offer, so_far, least_hours=held)
        scale = (
            renting.in_parallel
            * renting.instances(offer)
            * renting.factor.get(offer.price.currency, math.nan if offer.price.amount else 0.0)
        )
        found[phase] = (each - paid) * scale
        paid = each
    return found


def paid_hours(
    rental: Rental,
    hours: Mapping[Phase, Hours],
    renting: Renting,
    held_hours: Mapping[Phase, float],
) -> dict[Phase, float]:
    """Machine hours that are paid for in a single case, those of terms that are not used too."""
    found = dict.fromkeys(Phase, 0.0)
    before: Offer | None = None
    so_far = paid = held = Decimal(0)
    for phase, offer in rental.offers.items():
        if offer is not before:
            before, so_far, paid, held = offer, Decimal(0), Decimal(0), Decimal(0)
        rented = hours[phase].rented(renting.likely_lost(offer, hours[phase]))
        so_far += decimal(float(rented[0])) / renting.in_parallel
        held += decimal(held_hours.get(phase, 0.0))
        now = charge(offer, so_far, least_hours=held).paid_hours
        found[phase], paid = float(now - paid) * renting.in_parallel, now
    return found


def choose(
    offers: Sequence[Offer],
    hours: Mapping[Phase, Hours],
    renting: Renting,
    held_hours: Mapping[Phase, float],
) -> Rental | None:
    """The cheapest way to rent: by the hour where that is cheaper, by the month where that is.

    Proof of concept and hand-over are by the hour, or on the rental of the main phase where going
    on with it costs less. None without an offer in a known currency.
    """
    working = [phase for phase in Phase if _any(hours[phase])]
    known = [o for o in offers if o.price.currency in renting.factor or not o.price.amount]
    hourly = [offer for offer in known if not is_binding(offer)]

    def cost(rental: Rental) -> float:
        found = cost_by_phase(rental, hours, renting, held_hours)
        return float(sum(amount[0] for amount in found.values()))

    best: tuple[float, int, tuple[str, ...], Rental] | None = None
    singles = {
        phase: min(
            (Rental(offers={phase: offer}) for offer in hourly),
            key=lambda rental: (cost(rental), rental.key()),
            default=None,
        )
        for phase in working
    }
    for offer in known:
        for early in (False, True):
            for late in (False, True):
                chosen: dict[Phase, Offer] = {}
                for phase in working:
                    single = singles[phase]
                    with_main = {Phase.PROOF_OF_CONCEPT: early, Phase.HAND_OVER: late}
                    if with_main.get(phase, True) or single is None:
                        chosen[phase] = offer
                    else:
                        chosen[phase] = single.offers[phase]
                rental = Rental(offers=chosen)
                ranked = (cost(rental), early + late, rental.key(), rental)
                if best is None or ranked[:3] < best[:3]:
                    best = ranked
    return best[3] if best else None


def is_binding(offer: Offer) -> bool:
    """Whether hours are paid that are not used: a term, a commitment, something at once."""
    billing = offer.billing
    return bool(
        (offer.term_hours and offer.term_hours > 24)
        or billing.commitment_hours
        or billing.upfront is not None
    )


def within(
    offers: Sequence[Offer], duration_hours: float | None
) -> tuple[list[Offer], list[tuple[Offer, Message]], list[Notice]]:
    """Offers that do not bind for longer than the project lasts.

    Returns:
        Those that remain, with discounts for longer terms taken away; those that bind too long,
        each with its reason; what the reader should know.
    """
    if duration_hours is None:
        return list(offers), [], []
    kept, aside, notices = [], [], []
    for offer in offers:
        bound = max(offer.billing.commitment_hours, offer.term_hours)
        if bound > duration_hours:
            aside.append((offer, _too_long(offer, bound, duration_hours)))
            continue
        discounts = tuple(d for d in offer.billing.discounts if d[0] <= duration_hours)
        if discounts != offer.billing.discounts:
            offer = replace(offer, billing=replace(offer.billing, discounts=discounts))
            notices.append(_located(offer, _discount_too_long(offer, duration_hours)))
        kept.append(offer)
    notices += [_located(offer, text) for offer, text in aside]
    return kept, aside, notices


def refuse_all(aside: Sequence[tuple[Offer, Message]]) -> InvalidRequest:
    """Every offer binds for longer than the project: each with the line of its sheet."""
    return InvalidRequest(
        [
            Mistake(
                message=text,
                path=offer.place[0] if offer.place else f"{offer.provider}: {offer.name}",
                line=offer.place[1] if offer.place else None,
                how_to_fix=message(
                    "shorter_term",
                    "give the price of a shorter term, or a longer project.duration",
                ),
            )
            for offer, text in aside
        ]
    )


def factors(
    currencies: Iterable[str], currency: str, rates: Sequence[ExchangeRate]
) -> dict[str, float]:
    """What one unit of every currency is in ``currency``, where a rate is known."""
    found = {}
    for other in set(currencies):
        money = convert(Money(amount=Decimal(1), currency=other), currency, rates)
        if money is not None:
            found[other] = float(money.amount)
    return found


def _too_long(offer: Offer, bound: int, duration_hours: float) -> Message:
    return message(
        "term_longer_than_project",
        "{name} at {provider} binds for {term}, the project lasts {duration}: it is left aside",
        name=offer.name,
        provider=offer.provider,
        term=format_duration(bound * HOUR_S),
        duration=format_duration(duration_hours * HOUR_S),
    )


def _discount_too_long(offer: Offer, duration_hours: float) -> Message:
    return message(
        "discount_longer_than_project",
        "discounts of {name} at {provider} for longer than {duration} are not counted: the project "
        "ends before",
        name=offer.name,
        provider=offer.provider,
        duration=format_duration(duration_hours * HOUR_S),
    )


def _located(offer: Offer, text: Message) -> Notice:
    if offer.place is None:
        return Notice(message=text)
    return Notice(message=text, path=offer.place[0], line=offer.place[1])


def _any(hours: Hours) -> bool:
    return bool((hours.busy + hours.waiting > 0).any())
