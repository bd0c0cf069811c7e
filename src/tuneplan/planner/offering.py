"""Which offers a job's limits leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Notice
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.offer import Offer
from tuneplan.spec.stated import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Offers that remain, and how many each reason took away."""

    offers: tuple[Offer, ...]
    rejected: tuple[tuple[str, int], ...]
    notices: tuple[Notice, ...]


REASONS: dict[str, Message] = {
    "provider_not_allowed": message(
        "provider_not_allowed", "the provider is not among limits.providers"
    ),
    "region_unknown": message(
        "region_unknown", "the offer does not say where it stands, so it meets no residency limit"
    ),
    "residency": message("residency", "the offer stands outside limits.residency"),
    "region_not_allowed": message("region_not_allowed", "the region is not among limits.regions"),
    "not_certified": message(
        "not_certified", "the offer does not name every certificate of limits.certifications"
    ),
    "not_single_tenant": message(
        "not_single_tenant", "the offer does not say that nobody else is on the machine"
    ),
    "interruptible": message(
        "interruptible", "an interruptible offer, and limits.allow_interruptible is not set"
    ),
    "suspicious_price": message(
        "suspicious_offer", "the price is far below the market and not relied on"
    ),
    "one_machine_only": message(
        "one_machine_only",
        "the offer is by the card, in one machine: nothing is known about a link between machines",
    ),
    "currency_without_rate": message(
        "no_rate_into_budget",
        "the prices are in a currency without an exchange rate into that of limits.budget: add "
        "the rate to a price sheet (rates:), or state the budget in the currency of the prices",
    ),
    "too_few_per_node": message("too_few_per_node", "the offer has fewer cards in one machine"),
}


def allowed_offers(offers: Iterable[Offer], cluster: Cluster, limits: Limits) -> Allowed:
    """Filter offers by provider, place, interruptions and cards per machine."""
    kept, rejected = [], Counter[str]()
    unknown_region = False
    for offer in offers:
        reason = rejection(offer, cluster.num_nodes, cluster.accelerators_per_node, limits)
        if reason is not None:
            rejected[reason] += 1
            continue
        unknown_region |= bool(limits.regions) and offer.region is None
        kept.append(offer)
    notices: tuple[Notice, ...] = ()
    if unknown_region:
        text = message(
            "region_preference_unknown",
            "some offers do not say where they stand; they are kept, as limits.regions is only a "
            "preference (use limits.residency to exclude them)",
        )
        notices = (Notice(message=text),)
    return Allowed(offers=tuple(kept), rejected=tuple(sorted(rejected.items())), notices=notices)


def compared_currency(offers: Iterable[Offer], limits: Limits) -> str:
    """The currency costs are compared in: the budget's, or that of the user's own prices."""
    own = {offer.price.currency for offer in offers if offer.from_user}
    return own.pop() if limits.budget is None and len(own) == 1 else limits.budget_currency


def rejection(
    offer: Offer, num_nodes: int, accelerators_per_node: int, limits: Limits
) -> str | None:
    """Why an offer is not allowed, or None."""
    if "suspicious_price" in offer.cautions:
        return "suspicious_price"
    if limits.providers and not _named(offer.provider, limits.providers):
        return "provider_not_allowed"
    place = _place_rejection(offer.region, limits)
    if place is not None:
        return place
    if not certified(offer, limits.certifications):
        return "not_certified"
    if limits.single_tenant and not (offer.single_tenant or offer.on_hand):
        return "not_single_tenant"
    if offer.interruptible and not limits.allow_interruptible:
        return "interruptible"
    if offer.accelerators_per_node < accelerators_per_node:
        return "too_few_per_node"
    if num_nodes > 1 and offer.max_per_node:
        return "one_machine_only"
    return None


def _place_rejection(region: str | None, limits: Limits) -> str | None:
    """A residency limit needs a known place; a preference only excludes known others."""
    if region is None:
        return "region_unknown" if limits.residency else None
    if limits.residency and not _inside(region, limits.residency):
        return "residency"
    if limits.regions and not any(_inside(region, wanted) for wanted in limits.regions):
        return "region_not_allowed"
    return None


def certified(offer: Offer, wanted: Iterable[str]) -> bool:
    """Whether the offer names every certificate, spaces and hyphens aside."""
    held = {_plain(name) for name in offer.certifications}
    return all(_plain(name) in held for name in wanted)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _named(name: str, wanted: Iterable[str]) -> bool:
    return any(word.lower() in name.lower() for word in wanted)


def _inside(region: str, place: str) -> bool:
    """Whether a region's name begins with, or holds as a word, the place that is asked for."""
    written, asked = region.lower(), place.lower()
    words = written.replace("_", "-").replace(" ", "-").split("-")
    return written.startswith(asked) or asked in words
