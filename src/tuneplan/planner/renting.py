"""A run on an offer: what it costs there, and what the reader should know of interruptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tuneplan.catalog.offers import offer_notices, rate_notices
from tuneplan.economics.billing import Cost, compare, cost_of
from tuneplan.economics.interruptions import SpotRun, spot_run
from tuneplan.language import message
from tuneplan.planner.constraints import constraint_costs
from tuneplan.planner.offering import allowed_offers, compared_currency
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.offer import Offer
from tuneplan.spec.stated import StatedJob
from tuneplan.units import HOUR_S, format_duration

_MANY = 100  # interruptions of one run, from where on it is better not begun


def on_spot(
    offer: Offer, num_accelerators: int, hours: Estimate, *, checkpoint_hours: float
) -> SpotRun | None:
    """A run with the offer's interruptions; None where it has none, or says nothing of them."""
    return spot_run(
        offer,
        num_instances=math.ceil(num_accelerators / offer.num_accelerators),
        hours=hours,
        checkpoint_hours=checkpoint_hours,
    )


def cost_on(
    offer: Offer, num_accelerators: int, hours: Estimate, *, checkpoint_hours: float
) -> Cost:
    """The cost of a run on an offer, with what interruptions add where they are known."""
    spot = on_spot(offer, num_accelerators, hours, checkpoint_hours=checkpoint_hours)
    return cost_of(
        offer,
        num_accelerators=num_accelerators,
        hours=hours,
        charged_hours=spot.paid_hours if spot is not None else None,
    )


def cheapest_cost(
    job: StatedJob,
    cluster: Cluster,
    sources: Sources,
    hours: Estimate,
    *,
    checkpoint_hours: float,
) -> tuple[Cost | None, list[Notice]]:
    """The cost on the cheapest offer that the limits leave, and what there is to tell of it.

    None without such an offer. What the limits exclude is told with what that costs.
    """
    limits, rates = job.limits, sources.offers.rates
    listed = sources.offers.of(cluster.accelerator.name)
    allowed = allowed_offers(listed, cluster, limits)
    notices = list(allowed.notices)
    currency = compared_currency(sources.offers.offers, limits)

    def likely(offers: Sequence[Offer]) -> float | None:
        costs = [
            cost_on(offer, cluster.num_accelerators, hours, checkpoint_hours=checkpoint_hours)
            for offer in offers
        ]
        ranked = compare(costs, currency=currency, rates=rates).ranked
        return float(ranked[0][1].likely.amount) if ranked else None

    notices += _limit_notices(job, cluster, listed, likely, currency)
    if not allowed.offers:
        text = message(
            "no_offer",
            "no offer for {name} is known (or allowed by the limits): cost is unknown",
            name=cluster.accelerator.name,
        )
        return None, [*notices, Notice(message=text)]
    costs = [
        cost_on(offer, cluster.num_accelerators, hours, checkpoint_hours=checkpoint_hours)
        for offer in allowed.offers
    ]
    ranked = compare(costs, currency=currency, rates=rates)
    if ranked.ranked:
        chosen = ranked.ranked[0][0]
    else:
        chosen = costs[0]
        notices += [Notice(message=aside.reason) for aside in ranked.incomparable]
    notices += offer_notices(chosen.offer, sources.today)
    if chosen.offer.price.currency != currency:
        notices += rate_notices(rates, sources.today)
    notices += interruption_notices(
        chosen.offer, cluster.num_accelerators, hours, checkpoint_hours=checkpoint_hours
    )
    return chosen, notices


def _limit_notices(
    job: StatedJob,
    cluster: Cluster,
    listed: Sequence[Offer],
    likely: Callable[[Sequence[Offer]], float | None],
    currency: str,
) -> list[Notice]:
    """What each limit excludes, where the run would cost less without it."""
    found = []
    for one in constraint_costs(
        listed,
        job.limits,
        num_nodes=cluster.num_nodes,
        accelerators_per_node=cluster.accelerators_per_node,
        cost=likely,
    ):
        now, without = one.cheapest, one.cheapest_without
        if without is None or (now is not None and now <= without * 1.001):
            continue
        if now is None:
            text = message(
                "limit_leaves_nothing",
                "limits.{limit} excludes {count} offers and leaves none; without it the run costs "
                "{without:.2f} {currency}",
                limit=one.limit,
                count=one.excluded,
                without=without,
                currency=currency,
            )
        else:
            text = message(
                "limit_costs",
                "limits.{limit} excludes {count} offers; without it the run costs {without:.2f} "
                "instead of {now:.2f} {currency}",
                limit=one.limit,
                count=one.excluded,
                without=without,
                now=now,
                currency=currency,
            )
        found.append(Notice(message=text, path=f"limits.{one.limit}"))
    return found


def interruption_notices(
    offer: Offer, num_accelerators: int, hours: Estimate, *, checkpoint_hours: float
) -> tuple[Notice, ...]:
    """How often a run on a spot offer is interrupted, or that nobody said."""
    if not offer.interruptible:
        return ()
    spot = on_spot(offer, num_accelerators, hours, checkpoint_hours=checkpoint_hours)
    if spot is None:
        text = message(
            "interruptions_not_stated",
            "how often {name} at {provider} is interrupted is not known: lost work and restarts "
            "are not in the cost; interrupted_every and restart in a price sheet put them in",
            name=offer.name,
            provider=offer.provider,
        )
    elif spot.interruptions > _MANY:
        text = message(
            "interrupted_too_often",
            "with a checkpoint every {segment} and an interruption every {every} the run hardly "
            "ever ends: save more often",
            segment=format_duration(checkpoint_hours * HOUR_S),
            every=format_duration(offer.interruptions.every_hours * HOUR_S)
            if offer.interruptions
            else "",
        )
    else:
        text = message(
            "interruptions_expected",
            "the run is interrupted {count:.1f} times on average: {paid} charged and {clock} on "
            "the clock instead of {alone}, with a checkpoint every {segment}",
            count=spot.interruptions,
            paid=format_duration(spot.paid_hours.likely * HOUR_S),
            clock=format_duration(spot.clock_hours.likely * HOUR_S),
            alone=format_duration(hours.likely * HOUR_S),
            segment=format_duration(checkpoint_hours * HOUR_S),
        )
    return (Notice(message=text),)
