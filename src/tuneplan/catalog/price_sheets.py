"""The user's own prices: YAML or CSV as documented in ``docs/reference/prices.md``."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuneplan.catalog import values
from tuneplan.catalog.documents import (
    Located,
    Mistakes,
    Section,
    check_top_level,
    read_text,
    read_yaml,
    sections,
)
from tuneplan.catalog.offers import PriceSheet
from tuneplan.catalog.sheet_terms import (
    names,
    nested,
    read_billing,
    read_interruptions,
    read_owned,
)
from tuneplan.economics.owned import hourly_price
from tuneplan.errors import InvalidQuantity, UnknownName, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.answer import Notice
from tuneplan.spec.offer import ExchangeRate, Money, Offer
from tuneplan.units import CURRENCIES, HOUR_S, parse_money, parse_seconds

if TYPE_CHECKING:
    from tuneplan.catalog.accelerators import AcceleratorCatalog

_PERIODS_H: Final = {"hour": 1, "h": 1, "day": 24, "week": 168, "month": 720, "year": 8760}
_PER: Final = re.compile(r"^(?P<amount>.*\S)\s*(?:/|\bper\b)\s*(?P<period>[a-z]+)\s*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Price:
    amount: Decimal
    currency: str
    hours: int | None  # of the period named beside the amount


def read_price_sheet(path: Path, accelerators: AcceleratorCatalog) -> PriceSheet:
    """Offers and exchange rates of one sheet.

    Args:
        path: ``.csv`` is read as CSV, anything else as YAML.
        accelerators: Resolves the chip names.

    Raises:
        InvalidRequest: Everything that is wrong with the sheet, each with its line.
        UnreadableFile: The sheet is absent, empty or broken.
    """
    mistakes = Mistakes(str(path))
    notices: list[Notice] = []
    rates: list[ExchangeRate] = []
    if path.suffix.lower() == ".csv":
        entries = _csv_sections(path, mistakes)
    else:
        document = read_yaml(path)
        check_top_level(document, ("offers", "rates"), mistakes)
        entries = sections(document, "offers", mistakes)
        for section in sections(document, "rates", mistakes):
            rates.append(_rate(section))
            section.finish()
    offers: dict[tuple[Any, ...], Offer] = {}
    for section in entries:
        offer = _offer(section, accelerators, notices)
        section.finish()
        key = (offer.provider, offer.name, offer.accelerator, offer.num_accelerators,
               offer.region, offer.interruptible, offer.term_hours)  # fmt: skip
        if key in offers:
            mistakes.add(
                message("offer_twice", "{name} of {provider} stands twice",
                        name=offer.name, provider=offer.provider),
                section.at,
            )  # fmt: skip
        offers[key] = offer
    mistakes.raise_if_any()
    return PriceSheet(offers=tuple(offers.values()), rates=tuple(rates), notices=tuple(notices))


def _csv_sections(path: Path, mistakes: Mistakes) -> list[Section]:
    head: list[str] = []
    found = []
    for line, cells in _csv_rows(path):
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not head:
            head = cells
            for name in sorted({name for name in head if head.count(name) > 1}):
                text = message("column_twice", "the head names {name} twice", name=name)
                mistakes.add(text, Located(name, f"line {line}", line))
            continue
        at = f"line {line}"
        if len(cells) != len(head):
            mistakes.add(
                message("wrong_cell_count", "{found} cells, but the head has {wanted}",
                        found=len(cells), wanted=len(head)),
                Located(None, at, line),
            )  # fmt: skip
            continue
        entry = {
            key: Located(cell, f"{at}: {key}", line) for key, cell in zip(head, cells, strict=True)
        }
        found.append(Section(Located(nested(entry), at, line), mistakes))
    if not found and not mistakes.found:
        mistakes.add(message("no_rows", "the sheet has no rows"), Located(None, "", 1))
    return found


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the line where it ends."""
    reader = csv.reader(read_text(path).splitlines(), skipinitialspace=True)
    try:
        for row in reader:
            yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        text = message("broken_csv", "the row is not CSV: {problem}", problem=str(error))
        raise UnreadableFile(text, path=str(path), line=reader.line_num) from None


def _offer(section: Section, accelerators: AcceleratorCatalog, notices: list[Notice]) -> Offer:
    chip = _chip(section, accelerators, notices)
    on_hand = section.read("on_hand", values.yes_or_no, default=False)
    count = section.require("num_accelerators", values.whole, default=1)
    owned = read_owned(section)
    free = on_hand and section.get("price") is None
    hour, term, hours = _money(section, count, free=free or section.get("owned") is not None)
    if owned:
        hour, on_hand, free = hourly_price(owned), True, False
    provider = section.require("provider", values.text, default="")
    interruptible = section.read("interruptible", values.yes_or_no, default=False)
    cautions = []
    if free:
        cautions.append("no_internal_price")
    if hours == _PERIODS_H["month"]:
        cautions.append("month_of_30_days")
    return Offer(
        provider=provider,
        name=section.read("name", values.text, default=f"{count} x {chip}"),
        accelerator=chip,
        num_accelerators=count,
        price=hour,
        region=section.read("region", values.text, default=None),
        interruptible=interruptible,
        as_of=section.require("as_of", values.day, default=values.day("1970-01-01")),
        source=section.read("source", values.text, default=section.mistakes.file),
        host_memory_bytes=section.read("host_memory", values.size, default=None),
        vcpus=section.read("vcpus", values.whole, default=None),
        on_hand=on_hand,
        from_user=True,
        max_per_node=section.read("max_per_node", values.whole, default=0),
        term_hours=hours if term else 0,
        term_price=term,
        cautions=tuple(cautions),
        billing=read_billing(section),
        interruptions=read_interruptions(section, interruptible=interruptible),
        price_items=owned,
        certifications=section.read("certifications", names, default=()),
        single_tenant=section.read("single_tenant", values.yes_or_no, default=None),
        place=(section.mistakes.file, section.at.line),
    )


def _chip(section: Section, accelerators: AcceleratorCatalog, notices: list[Notice]) -> str:
    written = section.require("accelerator", values.text, default="")
    found = section.get("accelerator")
    if not written or found is None:
        return ""
    memory = section.read("accelerator_memory", values.size, default=None)
    try:
        resolved = accelerators.resolve(written, memory)
    except UnknownName as error:
        section.mistakes.add(error.message, found, near=error.near)
        return ""
    notices.extend(
        Notice(
            message=message(
                "offer_chip_taken_as",
                "{written} is taken as {name}: {reason}",
                written=written,
                name=choice.value,
                reason=choice.reason,
            ),
            path=f"{section.mistakes.file}: {found.path}",
            line=found.line,
        )
        for choice in resolved.assumptions
        if choice.name == "hardware.accelerator"
    )
    return resolved.accelerator.name


def _money(section: Section, count: int, *, free: bool) -> tuple[Money, Money | None, int]:
    """Price per hour of the whole instance, the exact price of a longer term, and its hours."""
    nothing = Money(amount=Decimal(0), currency="USD")
    by_card = section.read("per_accelerator", values.yes_or_no, default=False)
    period = section.read("per", _period, default=None)
    if free:
        return nothing, None, 0
    price = section.require("price", _price, default=_Price(Decimal(1), "USD", 1))
    hours = price.hours or period
    found = section.get("price")
    if hours is None:
        section.mistakes.add(
            message(
                "price_without_period",
                "a price needs its period: per: hour, day, week, month or year",
            ),
            found or section.at,
        )
        hours = 1
    elif price.hours and period and price.hours != period:
        section.mistakes.add(
            message("two_periods", "price and per name different periods"), found or section.at
        )
    total = Money(amount=price.amount * (count if by_card else 1), currency=price.currency)
    if hours == 1:
        return total, None, 1
    return Money(amount=total.amount / hours, currency=total.currency), total, hours


def _price(value: Any) -> _Price:
    """``12.5 USD``, ``NT$120``, ``120 TWD/h``; a bare number is refused."""
    written = str(value) if isinstance(value, str) else value
    hours = None
    match = _PER.match(written.lower()) if isinstance(written, str) else None
    if match:
        hours = _period(match["period"])
        written = written[: match.end("amount")]
    amount, currency = parse_money(written)
    if amount < 0:
        raise InvalidQuantity(message("negative_price", "{value!r} is below zero", value=value))
    return _Price(amount, currency, hours)


def _period(value: Any) -> int:
    """Whole hours of ``hour``, ``month``, ... or of a duration such as ``30 d``."""
    word = str(value).strip().lower()
    if word.removesuffix("s") in _PERIODS_H or word in _PERIODS_H:
        return _PERIODS_H.get(word) or _PERIODS_H[word.removesuffix("s")]
    try:
        hours = parse_seconds(word) / HOUR_S
    except InvalidQuantity:
        hours = 0.0
    if hours < 1 or hours != int(hours):
        raise InvalidQuantity(
            message(
                "unknown_period",
                "{value!r} is not a period: use hour, day, week, month or year",
                value=value,
            )
        )
    return int(hours)


def _rate(section: Section) -> ExchangeRate:
    found = ExchangeRate(
        base=section.require("from", _currency, default="USD"),
        quote=section.require("to", _currency, default="USD"),
        rate=Decimal(str(section.require("rate", values.real, default=1.0))),
        as_of=section.require("as_of", values.day, default=values.day("1970-01-01")),
        source=section.read("source", values.text, default=section.mistakes.file),
    )
    if found.base == found.quote and section.get("from") and section.get("to"):
        text = message("rate_to_itself", "a rate from {name} to itself", name=found.base)
        section.mistakes.add(text, section.at)
    return found


def _currency(value: Any) -> str:
    code = str(value).strip().upper()
    if code not in CURRENCIES:
        raise InvalidQuantity(
            message(
                "unknown_currency",
                "{currency!r} is not a currency code of ISO 4217; write e.g. USD, EUR, TWD or CNY",
                currency=value,
            )
        )
    return code
