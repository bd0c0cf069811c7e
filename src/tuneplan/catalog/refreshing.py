"""A snapshot of today's prices: made, checked, and only then put in the place of the old one."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from tuneplan.catalog.gpu_hunt import ListedOffer
from tuneplan.catalog.offers import COLUMNS, bundled_offers, offers_in
from tuneplan.errors import InvalidRequest, Mistake, UnknownName, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.units import GIB

if TYPE_CHECKING:
    from tuneplan.catalog.accelerators import AcceleratorCatalog
    from tuneplan.spec.offer import Offer

SOURCE: Final = "gpuhunt"
_FEWEST_OFFERS: Final = 30
_FEWEST_CHIPS: Final = 4
_SHRUNK: Final = 0.5  # of the offers of the snapshot before
_FAR: Final = 25  # times the median of a chip's known prices, either way
_MOST_PER_CARD: Final = 1000  # USD an hour
_SUSPICIOUS: Final = 5  # times below the median: kept, and not relied on


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Rows of ``offers.csv``, and what was left out of them.

    Attributes:
        left_out: Cards that the catalogue does not have: name and number of offers.
    """

    rows: tuple[Mapping[str, str], ...]
    left_out: tuple[tuple[str, int], ...]

    @property
    def providers(self) -> tuple[str, ...]:
        """Who is in it."""
        return tuple(sorted({row["provider"] for row in self.rows}))

    @property
    def chips(self) -> tuple[str, ...]:
        """Which cards are in it."""
        return tuple(sorted({row["accelerator"] for row in self.rows}))


def snapshot_of(
    listed: Sequence[ListedOffer], accelerators: AcceleratorCatalog, day: date
) -> Snapshot:
    """The offers of cards that the catalogue has, as rows of ``offers.csv``.

    On demand and spot of the same instance and region are one row; of several prices of the same
    the lowest counts.
    """
    left_out: Counter[str] = Counter()
    known: dict[tuple[str, float], tuple[str, bool] | None] = {}
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for offer in listed:
        named = (offer.gpu_name, offer.gpu_memory_gb)
        if named not in known:
            known[named] = _chip(accelerators, *named)
        found = known[named]
        if found is None:
            left_out[f"{offer.gpu_name} {offer.gpu_memory_gb:g} GB"] += 1
            continue
        chip, assumed = found
        key = (offer.provider, offer.name, chip, str(offer.gpu_count), offer.region)
        row = rows.setdefault(key, _row(offer, chip, day, assumed=assumed))
        column = "spot_usd_hour" if offer.spot else "on_demand_usd_hour"
        if offer.price > 0 and (not row[column] or offer.price < float(row[column])):
            row[column] = f"{offer.price:.6f}".rstrip("0").rstrip(".")
    priced = [row for row in rows.values() if row["on_demand_usd_hour"] or row["spot_usd_hour"]]
    _mark_suspicious(priced)
    return Snapshot(rows=tuple(priced), left_out=tuple(left_out.most_common()))


def _chip(accelerators: AcceleratorCatalog, name: str, memory_gb: float) -> tuple[str, bool] | None:
    """The catalogue's name of a card, and whether its form was assumed."""
    try:
        found = accelerators.resolve(name, round(memory_gb * GIB) if memory_gb else None)
    except UnknownName:
        return None
    assumed = any(one.name == "hardware.accelerator" for one in found.assumptions)
    return found.accelerator.name, assumed


def _row(offer: ListedOffer, chip: str, day: date, *, assumed: bool) -> dict[str, str]:
    found = dict.fromkeys(COLUMNS, "")
    found |= {
        "provider": offer.provider,
        "name": offer.name,
        "accelerator": chip,
        "listed_as": f"{offer.gpu_name} {offer.gpu_memory_gb:g} GB",
        "num_accelerators": str(offer.gpu_count),
        "sold_by_card": "n",
        "vcpus": str(offer.vcpus) if offer.vcpus else "",
        "host_memory_gb": f"{offer.host_memory_gb:g}" if offer.host_memory_gb else "",
        "region": offer.region,
        "cautions": "form_usual" if assumed else "",
        "as_of": day.isoformat(),
        "source": SOURCE,
    }
    return found


def _mark_suspicious(rows: Sequence[dict[str, str]]) -> None:
    """Prices on demand far below the others of their card are kept, and not relied on."""
    for chip in {row["accelerator"] for row in rows}:
        priced = [row for row in rows if row["accelerator"] == chip and row["on_demand_usd_hour"]]
        middle = median(_per_card(row) for row in priced) if priced else 0.0
        for row in priced:
            if _per_card(row) * _SUSPICIOUS < middle:
                row["cautions"] = f"{row['cautions']} suspicious_price".strip()


def _per_card(row: Mapping[str, str]) -> float:
    return float(row["on_demand_usd_hour"]) / int(row["num_accelerators"])


def check_snapshot(snapshot: Snapshot, before: Sequence[Offer] = ()) -> tuple[Message, ...]:
    """What is wrong with a snapshot; nothing if it may take the place of the one before.

    The rows read as the bundled ones do; there are enough of them, of enough cards, and not half
    as many as before; every price lies within reach of what is known of its card.
    """
    found: list[Message] = []
    try:
        offers = offers_in(snapshot.rows, {SOURCE: "gpuhunt"})
    except (ValueError, KeyError, ArithmeticError) as error:
        return (message("snapshot_does_not_read", "a row does not read: {why}", why=str(error)),)
    if len(offers) < _FEWEST_OFFERS:
        found.append(
            message("too_few_offers", "{count} offers are too few ({least} at least)",
                    count=len(offers), least=_FEWEST_OFFERS)
        )  # fmt: skip
    if len(snapshot.chips) < _FEWEST_CHIPS:
        found.append(
            message("too_few_cards", "{count} cards are too few ({least} at least)",
                    count=len(snapshot.chips), least=_FEWEST_CHIPS)
        )  # fmt: skip
    if len(offers) < _SHRUNK * len(before):
        found.append(
            message("snapshot_shrank", "{count} offers, and {before} before",
                    count=len(offers), before=len(before))
        )  # fmt: skip
    return (*found, *_prices_out_of_reach(offers))


def _prices_out_of_reach(offers: Sequence[Offer]) -> list[Message]:
    known: dict[str, list[float]] = {}
    for offer in bundled_offers():
        if not offer.interruptible:
            known.setdefault(offer.accelerator, []).append(_hourly(offer))
    found = []
    for offer in offers:
        price, others = _hourly(offer), known.get(offer.accelerator)
        middle = median(others) if others else None
        far = middle is not None and not middle / _FAR <= price <= middle * _FAR
        if price > _MOST_PER_CARD or far:
            found.append(
                message(
                    "price_out_of_reach",
                    "{price:.4g} USD an hour for a {name} at {provider} ({instance}) is out of "
                    "reach of what is known",
                    price=price,
                    name=offer.accelerator,
                    provider=offer.provider,
                    instance=offer.name,
                )
            )
    return found


def _hourly(offer: Offer) -> float:
    return float(offer.price_per_accelerator_hour.amount)


def replace_snapshot(snapshot: Snapshot, path: Path, before: Sequence[Offer] = ()) -> None:
    """Check a snapshot and put it in the place of the old file, in one go.

    Raises:
        InvalidRequest: It does not pass; the old file stays.
        UnreadableFile: The file cannot be written; the old one stays.
    """
    wrong = check_snapshot(snapshot, before)
    if wrong:
        raise InvalidRequest(
            [
                Mistake(
                    message=text,
                    path=str(path),
                    how_to_fix=message(
                        "old_prices_stay", "nothing was replaced: try again another day"
                    ),
                )
                for text in wrong
            ]
        )
    text = io.StringIO()
    text.write("# Made by `tuneplan prices refresh` with gpuhunt. USD per hour for the instance.\n")
    writer = csv.DictWriter(text, fieldnames=list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(snapshot.rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text.getvalue(), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        told = message("cannot_write", "{path} cannot be written: {reason}",
                       path=str(path), reason=why)  # fmt: skip
        raise UnreadableFile(told, path=str(path)) from None
