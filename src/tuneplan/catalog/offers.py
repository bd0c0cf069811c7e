"""What can be rented: the user's price sheets first, then the bundled dated snapshots."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuneplan.catalog.tables import read_table
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.answer import Notice
from tuneplan.spec.offer import ExchangeRate, Money, Offer
from tuneplan.units import GB

if TYPE_CHECKING:
    from tuneplan.catalog.accelerators import AcceleratorCatalog

STALE_DAYS: Final = 90
COLUMNS: Final = (
    *("provider", "name", "accelerator", "listed_as", "num_accelerators", "sold_by_card", "vcpus"),
    *("host_memory_gb", "region", "on_demand_usd_hour", "spot_usd_hour", "cautions", "as_of"),
    "source",
)
_ONE_DAY: Final = timedelta(days=1)
_CARDS_IN_A_MACHINE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCatalog:
    """Every offer that counts, the user's first.

    Attributes:
        offers: In a fixed order that does not depend on the files' order.
        rates: The user's exchange rates.
        notices: What was left aside, and how often.
    """

    offers: tuple[Offer, ...]
    rates: tuple[ExchangeRate, ...] = ()
    notices: tuple[Notice, ...] = ()

    def of(self, accelerator: str) -> tuple[Offer, ...]:
        """The offers of one chip, by catalogue name."""
        return tuple(offer for offer in self.offers if offer.accelerator == accelerator)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSheet:
    """What one price sheet of the user holds."""

    offers: tuple[Offer, ...]
    rates: tuple[ExchangeRate, ...] = ()
    notices: tuple[Notice, ...] = ()


def load_offers(
    accelerators: AcceleratorCatalog,
    user_files: Iterable[str | Path] = (),
    refreshed: Path | None = None,
) -> OfferCatalog:
    """The user's price sheets and the bundled offers.

    A sheet's offer takes the place of every bundled one of the same provider and chip. Of the
    bundled ones only current prices count: of a provider and chip the newest snapshot, and of a
    chip nothing more than 90 days older than its newest price.

    Args:
        accelerators: Resolves the chip names of the sheets.
        user_files: YAML or CSV as documented in ``docs/reference/prices.md``.
        refreshed: What ``tuneplan prices refresh`` wrote; counts as one more snapshot.

    Raises:
        InvalidRequest: Every mistake of every sheet, with path and line.
        UnreadableFile: A sheet that is absent, empty or broken.
        CatalogError: The bundled table is wrong.
    """
    sheets = _read_sheets(accelerators, list(user_files))
    own = [offer for sheet in sheets for offer in sheet.offers]
    replaced = {(offer.provider.lower(), offer.accelerator) for offer in own}
    newer, broken = _refreshed_offers(refreshed)
    bundled = (*bundled_offers(), *newer)
    current = current_offers(bundled)
    kept = [o for o in current if (o.provider.lower(), o.accelerator) not in replaced]
    notices = [*broken, *(notice for sheet in sheets for notice in sheet.notices)]
    if len(current) < len(bundled):
        notices.append(
            Notice(
                message=message(
                    "offers_superseded",
                    "{count} bundled prices are left aside: newer ones are known",
                    count=len(bundled) - len(current),
                )
            )
        )
    if len(kept) < len(current):
        notices.append(
            Notice(
                message=message(
                    "offers_overridden",
                    "{count} bundled prices are left aside: your price sheet has that provider "
                    "and card",
                    count=len(current) - len(kept),
                )
            )
        )
    return OfferCatalog(
        offers=(*sorted(own, key=_order), *sorted(kept, key=_order)),
        rates=tuple(rate for sheet in sheets for rate in sheet.rates),
        notices=tuple(notices),
    )


def bundled_offers() -> tuple[Offer, ...]:
    """Every bundled offer whose chip is in the catalogue, old ones too."""
    sources = {row["source"]: row["citation"] for row in read_table("offer_sources.csv")}
    return offers_in(read_table("offers.csv"), sources)


def offers_in(rows: Iterable[Mapping[str, str]], sources: Mapping[str, str]) -> tuple[Offer, ...]:
    """The offers in rows of ``offers.csv``: on demand and spot; cards without a name are skipped.

    Raises:
        ValueError: A number, a date or a price that is none.
    """
    found = []
    for row in rows:
        if not row["accelerator"]:
            continue
        for column, interruptible in (("on_demand_usd_hour", False), ("spot_usd_hour", True)):
            if row[column]:
                found.append(_offer(row, row[column], sources, interruptible=interruptible))
    return tuple(found)


def _refreshed_offers(path: Path | None) -> tuple[tuple[Offer, ...], tuple[Notice, ...]]:
    """The offers of a refreshed file; one that does not read is told of and left aside."""
    if path is None or not path.is_file():
        return (), ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return offers_in(rows, {"gpuhunt": f"gpuhunt (dstack), {path.name}"}), ()
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
        text = message(
            "refreshed_prices_broken",
            "the refreshed prices do not read and are left aside: {why}; tuneplan prices refresh "
            "writes them anew",
            why=str(error),
        )
        return (), (Notice(message=text, path=str(path)),)


def refreshed_file() -> Path:
    """``$XDG_CACHE_HOME/tuneplan/prices/offers.csv``, else under ``~/.cache``."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(stated) if Path(stated).is_absolute() else Path.home() / ".cache"
    return base / "tuneplan" / "prices" / "offers.csv"


def current_offers(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Those that no newer price supersedes (see ``load_offers``)."""
    newest: dict[tuple[str, str, bool], date] = {}
    newest_of_chip: dict[str, date] = {}
    for offer in offers:
        key = (offer.provider, offer.accelerator, offer.interruptible)
        newest[key] = max(newest.get(key, offer.as_of), offer.as_of)
        chip = offer.accelerator
        newest_of_chip[chip] = max(newest_of_chip.get(chip, offer.as_of), offer.as_of)
    limit = timedelta(days=STALE_DAYS)
    return tuple(
        offer
        for offer in offers
        if offer.as_of == newest[offer.provider, offer.accelerator, offer.interruptible]
        and newest_of_chip[offer.accelerator] - offer.as_of <= limit
    )


def age_days(offer: Offer, as_of: date) -> int:
    """Days from the date of the price to ``as_of``; 0 for a price of the future."""
    return max(0, (as_of - offer.as_of).days)


def is_stale(offer: Offer, as_of: date) -> bool:
    """Whether the price is more than 90 days old."""
    return age_days(offer, as_of) > STALE_DAYS


def rate_notices(rates: Iterable[ExchangeRate], as_of: date) -> tuple[Notice, ...]:
    """Exchange rates that are more than 90 days old."""
    found = []
    for rate in rates:
        days = (as_of - rate.as_of).days
        if days > STALE_DAYS:
            text = message(
                "stale_rate",
                "the exchange rate {base} to {quote} is {days} days old ({date})",
                base=rate.base,
                quote=rate.quote,
                days=days,
                date=rate.as_of.isoformat(),
            )
            found.append(Notice(message=text))
    return tuple(found)


def offer_notices(offer: Offer, as_of: date) -> tuple[Notice, ...]:
    """What the reader should know of a price: its age, and what its source leaves open."""
    found = [_CAUTIONS[code] for code in offer.cautions if code in _CAUTIONS]
    if is_stale(offer, as_of):
        found.insert(
            0,
            message(
                "stale_price",
                "the price of {name} at {provider} is {days} days old ({date})",
                name=offer.name,
                provider=offer.provider,
                days=age_days(offer, as_of),
                date=offer.as_of.isoformat(),
            ),
        )
    if offer.as_of > as_of + _ONE_DAY:  # a day ahead is today in another time zone
        found.insert(
            0,
            message(
                "price_of_the_future",
                "the price of {name} at {provider} is dated {date}, which is still to come: check "
                "its as_of",
                name=offer.name,
                provider=offer.provider,
                date=offer.as_of.isoformat(),
            ),
        )
    return tuple(Notice(message=text) for text in found)


_CAUTIONS: Final[dict[str, Message]] = {
    "form_assumed": message(
        "form_assumed",
        "the source does not say whether the card is SXM or PCIe: the slower one is assumed",
    ),
    "form_usual": message(
        "form_usual",
        "the source does not say whether the card is SXM or PCIe: the usual form is assumed",
    ),
    "suspicious_price": message(
        "suspicious_price", "the price is far below the market: check it before you rely on it"
    ),
    "marketplace_minimum": message(
        "marketplace_minimum", "the lowest offer of a marketplace on that day"
    ),
    "median_offer": message("median_offer", "the median of many offers of a marketplace"),
    "sold_by_card": message(
        "sold_by_card", "priced by the card: up to eight in one machine are assumed"
    ),
    "month_of_30_days": message("month_of_30_days", "a month is taken as 30 x 24 hours"),
    "no_internal_price": message(
        "no_internal_price", "own cards without an internal price: their use costs nothing here"
    ),
}


def _read_sheets(accelerators: AcceleratorCatalog, files: list[str | Path]) -> list[PriceSheet]:
    if not files:
        return []
    from tuneplan.catalog.price_sheets import read_price_sheet

    sheets: list[PriceSheet] = []
    mistakes: list[Mistake] = []
    for file in files:
        try:
            sheets.append(read_price_sheet(Path(file), accelerators))
        except InvalidRequest as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise InvalidRequest(mistakes)
    return sheets


def _offer(
    row: Mapping[str, str], price: str, sources: Mapping[str, str], *, interruptible: bool
) -> Offer:
    count = int(row["num_accelerators"])
    cautions = row["cautions"].split()
    by_card = row["sold_by_card"] == "y"
    if by_card:
        cautions.append("sold_by_card")
    return Offer(
        provider=row["provider"],
        name=row["name"] or f"{count} x {row['listed_as']}",
        accelerator=row["accelerator"],
        num_accelerators=count,
        price=Money(amount=Decimal(price), currency="USD"),
        region=row["region"] or None,
        interruptible=interruptible,
        as_of=date.fromisoformat(row["as_of"]),
        source=sources[row["source"]],
        host_memory_bytes=round(float(row["host_memory_gb"]) * GB)
        if row["host_memory_gb"]
        else None,
        vcpus=round(float(row["vcpus"])) if row["vcpus"] else None,
        max_per_node=_CARDS_IN_A_MACHINE if by_card else 0,
        cautions=tuple(cautions),
    )


def _order(offer: Offer) -> tuple[str, int, bool, Decimal, str, str]:
    return (
        offer.accelerator,
        offer.num_accelerators,
        offer.interruptible,
        offer.price.amount,
        offer.provider,
        offer.name,
    )
