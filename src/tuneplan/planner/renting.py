"""A run on an offer: what it costs there, and what the reader should know of interruptions."""

from __future__ import annotations

import math

from tuneplan.economics.billing import Cost, cost_of
from tuneplan.economics.interruptions import SpotRun, spot_run
from tuneplan.language import message
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.spec.offer import Offer
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
