"""What the limits that are not technical exclude, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.planner.offering import certified, rejection
from tuneplan.spec.offer import Offer
from tuneplan.spec.stated import Limits

_OPEN: Final = Limits()
_EXAMPLES: Final = 3
LIMITS: Final = ("residency", "regions", "providers", "certifications", "single_tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintCost:
    """One limit: what it takes away and what it costs.

    Attributes:
        limit: Key of ``limits``.
        value: As stated.
        excluded: Offers of this card that it excludes, and that no technical reason does.
        only_by_this: Those of them that no other limit excludes.
        unknown: Those of them whose source does not say (no region, no certificate).
        examples: ``provider: name`` of some: those that no other limit excludes first, then the
            user's own, the cheapest first.
        cheapest: Cost with all limits; None where nothing is left.
        cheapest_without: Cost with this limit alone taken away; None where nothing is left.
    """

    limit: str
    value: Any
    excluded: int
    only_by_this: int
    unknown: int
    examples: tuple[str, ...]
    cheapest: float | None
    cheapest_without: float | None


def constraint_costs(
    offers: Sequence[Offer],
    limits: Limits,
    *,
    num_nodes: int,
    accelerators_per_node: int,
    cost: Callable[[Sequence[Offer]], float | None],
) -> tuple[ConstraintCost, ...]:
    """Every stated limit, with what it excludes and what the cheapest offer is without it.

    Args:
        offers: Of the job's card.
        limits: Of the job.
        num_nodes: Machines of a run.
        accelerators_per_node: Cards of a machine.
        cost: Of the job on the cheapest of some offers; None where there is none.
    """

    def allowed(some: Limits) -> list[Offer]:
        return [
            offer
            for offer in offers
            if rejection(offer, num_nodes, accelerators_per_node, some) is None
        ]

    stated = [name for name in LIMITS if getattr(limits, name)]
    if not stated:
        return ()
    opened = replace(limits, **{name: getattr(_OPEN, name) for name in LIMITS})
    runnable = allowed(opened)
    cheapest = cost(allowed(limits))
    found = []
    for name in stated:
        alone = replace(opened, **{name: getattr(limits, name)})
        without = replace(limits, **{name: getattr(_OPEN, name)})
        kept = {id(offer) for offer in allowed(alone)}
        excluded = [offer for offer in runnable if id(offer) not in kept]
        left = allowed(without)
        others = {id(offer) for offer in left}
        telling = sorted(
            excluded,
            key=lambda o: (
                id(o) not in others,
                not o.from_user,
                o.price_per_accelerator_hour.amount,
                o.provider,
                o.name,
            ),
        )
        found.append(
            ConstraintCost(
                limit=name,
                value=getattr(limits, name),
                excluded=len(excluded),
                only_by_this=sum(id(offer) in others for offer in excluded),
                unknown=sum(_is_unknown(offer, name, limits) for offer in excluded),
                examples=tuple(f"{o.provider}: {o.name}" for o in telling[:_EXAMPLES]),
                cheapest=cheapest,
                cheapest_without=cost(left),
            )
        )
    return tuple(found)


def _is_unknown(offer: Offer, limit: str, limits: Limits) -> bool:
    if limit in ("residency", "regions"):
        return offer.region is None
    if limit == "certifications":
        return not offer.certifications and not certified(offer, limits.certifications)
    return limit == "single_tenant" and offer.single_tenant is None
