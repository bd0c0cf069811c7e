"""What else a project could be rented on: one offer alone, break-even, the price of limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuneplan.economics.break_even import BreakEven, break_even
from tuneplan.economics.money import decimal
from tuneplan.economics.project import Phase
from tuneplan.frozen import dataclass
from tuneplan.planner.budget_calendar import duration_hours
from tuneplan.planner.budget_offers import Rental, cost_by_phase, is_binding, within
from tuneplan.planner.budget_plan import MONTH_HOURS, PlannedJob, that_end, with_factors
from tuneplan.planner.constraints import ConstraintCost, constraint_costs
from tuneplan.spec.offer import Offer

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The whole project on one offer alone, in the median case."""

    offer: Offer
    total: float


def alternatives(planned: PlannedJob) -> tuple[Alternative, ...]:
    """The project on each offer alone, cheapest first."""
    found = [
        Alternative(offer=offer, total=total)
        for offer in planned.offers
        if (total := cheapest(planned, [offer])) is not None
    ]
    found.sort(key=lambda one: (one.total, one.offer.provider, one.offer.name))
    return tuple(found[:_SHOWN])


def cheapest(planned: PlannedJob, offers: Sequence[Offer]) -> float | None:
    """The project in the median case, all of it on the one offer that makes it cheapest."""
    renting = with_factors(planned, offers)
    kept, _, _ = within(offers, duration_hours(planned.job.project))
    totals = []
    for offer in that_end(kept, planned.work, renting):
        if offer.price.currency in renting.factor or not offer.price.amount:
            rental = Rental(offers=dict.fromkeys(Phase, offer))
            costs = cost_by_phase(rental, planned.median, renting, planned.held)
            totals.append(float(sum(amount[0] for amount in costs.values())))
    return min(totals, default=None)


def price_of_limits(planned: PlannedJob) -> tuple[ConstraintCost, ...]:
    """What each limit excludes, and the project without it."""
    cluster = planned.estimate.resolved.cluster
    if cluster is None:
        return ()
    return constraint_costs(
        planned.sources.offers.of(cluster.accelerator.name),
        planned.job.limits,
        num_nodes=cluster.num_nodes,
        accelerators_per_node=cluster.accelerators_per_node,
        cost=lambda offers: cheapest(planned, offers),
    )


def hourly_against_monthly(planned: PlannedJob) -> BreakEven | None:
    """The cheapest offer by the hour against the cheapest that binds, over hours of use."""
    factor = planned.renting.factor
    known = [offer for offer in planned.offers if offer.price.currency in factor]

    def rate(offer: Offer) -> float:
        """Of an hour of the job, on whole instances."""
        hour = float(offer.price.amount) * factor[offer.price.currency]
        return hour * planned.renting.instances(offer)

    hourly = [offer for offer in known if not is_binding(offer) and offer.price.amount]
    binding = [offer for offer in known if is_binding(offer)]
    if not hourly or not binding:
        return None
    first, second = min(hourly, key=rate), min(binding, key=rate)
    longest = max(second.term_hours, second.billing.commitment_hours, MONTH_HOURS)
    return break_even(
        first,
        second,
        num_accelerators=planned.renting.num_accelerators,
        horizon_hours=decimal(2 * longest),
        rates=planned.sources.offers.rates,
    )
