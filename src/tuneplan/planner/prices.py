"""Use-cases: prices of today in the place of older ones; two offers over hours of use."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from tuneplan.catalog.gpu_hunt import listed_offers
from tuneplan.catalog.offers import age_days, load_offers
from tuneplan.catalog.refreshing import Snapshot, replace_snapshot, snapshot_of
from tuneplan.contract.values import nearest
from tuneplan.economics.break_even import BreakEven, break_even
from tuneplan.errors import InvalidRequest, Mistake, UnknownName
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.sources import Sources
from tuneplan.spec.offer import Offer

_MONTH_HOURS = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshedPrices:
    """What a refresh brought.

    Attributes:
        num_before: Offers of the refreshed file that was there.
        oldest_days: Age of the oldest price that counts now.
        num_counting: Offers that count now, bundled ones among them.
    """

    path: Path
    snapshot: Snapshot
    num_before: int
    num_counting: int
    oldest_days: int


def refresh_prices(sources: Sources, path: Path, *, timeout_s: float) -> RefreshedPrices:
    """Ask the price services, check what they say, and put it in the place of the old file.

    Raises:
        MissingExtra: gpuhunt is not installed.
        InputError: No service answered, or what came does not pass the checks; the old prices
            stay.
    """
    before = [
        offer
        for offer in load_offers(sources.accelerators, (), path).offers
        if offer.source.startswith("gpuhunt")
    ]
    listed = listed_offers(timeout_s)
    snapshot = snapshot_of(listed, sources.accelerators, sources.today)
    replace_snapshot(snapshot, path, before)
    counting = load_offers(sources.accelerators, (), path).offers
    return RefreshedPrices(
        path=path,
        snapshot=snapshot,
        num_before=len(before),
        num_counting=len(counting),
        oldest_days=max((age_days(offer, sources.today) for offer in counting), default=0),
    )


def compare_offers(
    sources: Sources,
    first: str,
    second: str,
    *,
    num_accelerators: int = 1,
    horizon_hours: int | None = None,
) -> BreakEven:
    """From how many hours on one offer is cheaper than another.

    Args:
        sources: Catalogues with the user's sheets.
        first: ``PROVIDER: NAME`` as ``tuneplan catalog prices`` lists it, or the name alone.
        second: The other one.
        num_accelerators: Cards that are needed.
        horizon_hours: The most hours of use; None for two terms, a month at least.

    Raises:
        UnknownName: No offer has that name, or several have.
        InvalidRequest: The two are in currencies without a rate between them.
    """
    one, two = (offer_named(sources.offers.offers, name) for name in (first, second))
    longest = max(
        *(max(o.term_hours, o.billing.commitment_hours) for o in (one, two)), _MONTH_HOURS
    )
    found = break_even(
        one,
        two,
        num_accelerators=num_accelerators,
        horizon_hours=Decimal(horizon_hours or 2 * longest),
        rates=sources.offers.rates,
    )
    if found is None:
        text = message(
            "no_rate_between",
            "{first} and {second} have no dated rate between them: add it under rates in a price "
            "sheet",
            first=one.price.currency,
            second=two.price.currency,
        )
        raise InvalidRequest([Mistake(message=text, path="rates")])
    return found


def offer_named(offers: tuple[Offer, ...], name: str) -> Offer:
    """The one offer of a name, the user's own before others.

    Raises:
        UnknownName: None has it, or several have.
    """
    wanted = name.strip().casefold()
    full = {f"{offer.provider}: {offer.name}": offer for offer in reversed(offers)}
    found = [offer for offer in offers if f"{offer.provider}: {offer.name}".casefold() == wanted]
    found = found or [offer for offer in offers if offer.name.casefold() == wanted]
    own = [offer for offer in found if offer.from_user]
    found = own or found
    if len(found) == 1:
        return found[0]
    if not found:
        text = message("unknown_offer_name", "no offer is called {name!r}", name=name)
        names = dict.fromkeys((*full, *(offer.name for offer in offers)))
        raise UnknownName(text, name=name, near=nearest(name, tuple(names)))
    text = message(
        "several_offers",
        "{count} offers are called {name!r} (other regions, spot): name one of a price sheet",
        count=len(found),
        name=name,
    )
    raise UnknownName(text, name=name)
