"""The keys of a price sheet beyond the price: how time is charged, spot, place, own hardware."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from tuneplan.catalog import values
from tuneplan.catalog.documents import Located, Section
from tuneplan.economics.owned import OwnedHardware, hourly_items
from tuneplan.errors import InvalidQuantity
from tuneplan.language import message
from tuneplan.spec.offer import Billing, Interruptions, Money
from tuneplan.units import HOUR_S, parse_money, parse_seconds

_INCREMENTS: Final = {"second": 1, "minute": 60, "hour": 3600}
_PERCENT: Final = re.compile(r"^\s*(?P<number>\d+(?:\.\d+)?)\s*%\s*$")
_LONGEST_HOURS: Final = 20 * 8760
_WHOLE: Final = Decimal(1)


def read_billing(section: Section) -> Billing:
    """Least charge, increments, minimum term, what is paid at once, discounts by length."""
    upfront = section.read("upfront", _money, default=None)
    price = section.get("price")
    if upfront is not None and price is not None:
        _same_currency(section, "upfront", upfront, str(price.value))
    return Billing(
        minimum_s=round(section.read("minimum_charge", _seconds, default=0.0)),
        increment_s=section.read("charged_by", _increment, default=0),
        commitment_hours=section.read("minimum_term", whole_hours, default=0),
        upfront=upfront,
        discounts=section.read("discounts", _discounts, default=()),
    )


def read_interruptions(section: Section, *, interruptible: bool) -> Interruptions | None:
    """How often a spot instance goes, where the sheet says so."""
    found = section.get("interrupted_every")
    restart = section.read("restart", _seconds, default=None)
    wait = section.read("wait", _seconds, default=0.0)
    for key in ("restart", "wait"):
        other = section.get(key)
        if other is not None and found is None:
            text = message("needs_interrupted_every", "{key} needs interrupted_every", key=key)
            section.mistakes.add(text, other)
    if found is None:
        return None
    if not interruptible:
        text = message(
            "interrupted_but_not_interruptible",
            "interrupted_every is of an offer with interruptible: true",
        )
        section.mistakes.add(text, found)
    if restart is None and section.get("restart") is None:
        text = message(
            "needs_restart",
            "interrupted_every needs restart: how long a new instance takes until training goes on",
        )
        section.mistakes.add(text, found)
    every = section.parsed(found, _seconds, HOUR_S)
    return Interruptions(
        every_hours=every / HOUR_S,
        restart_hours=(restart or 0.0) / HOUR_S,
        wait_hours=wait / HOUR_S,
    )


def names(value: Any) -> tuple[str, ...]:
    """A list of names, or text with ``;`` between them (CSV has only text)."""
    if isinstance(value, list):
        return values.texts(value)
    parts = tuple(part.strip() for part in values.text(value).split(";"))
    return tuple(part for part in parts if part)


def read_owned(section: Section) -> tuple[tuple[str, Money], ...]:
    """Cost of an hour of own hardware by item; empty where the entry has no ``owned``."""
    found = section.get("owned")
    if found is None:
        return ()
    if not isinstance(found.value, dict):
        text = message("owned_not_a_mapping", "owned must be a mapping: purchase, lifetime, ...")
        section.mistakes.add(text, found)
        return ()
    price = section.get("price")
    if price is not None:
        text = message("owned_and_price", "an offer has a price or owned, not both")
        section.mistakes.add(text, price)
    inner = Section(found, section.mistakes)
    before = len(section.mistakes.found)
    owned = _owned(inner)
    inner.finish()
    return hourly_items(owned) if len(section.mistakes.found) == before else ()


def _owned(inner: Section) -> OwnedHardware:
    unit = Money(amount=Decimal(1), currency="USD")
    stated: Money | None = inner.require("purchase", _money, default=None)
    purchase = stated or unit

    def amount(key: str, *, needed: bool = False) -> Decimal:
        take = inner.require if needed else inner.read
        money: Money | None = take(key, _money, default=None)
        if money is not None and stated is not None:
            _same_currency(inner, key, money, f"1 {stated.currency}")
        return money.amount if money is not None else Decimal(0)

    electricity = Money(amount=amount("electricity", needed=True), currency=purchase.currency)
    resale = amount("resale")
    if stated is not None and resale > stated.amount:
        text = message("resale_above_purchase", "resale is more than purchase")
        inner.mistakes.add(text, inner.get("resale") or inner.at)
    staff = amount("staff")
    share = inner.read("staff_share", _share, default=None)
    if staff and share is None:
        text = message("staff_without_share", "staff needs staff_share, such as 20 %")
        inner.mistakes.add(text, inner.get("staff") or inner.at)
    return OwnedHardware(
        purchase=purchase,
        lifetime_hours=inner.require("lifetime", whole_hours, default=1),
        power_kw=inner.require("power", _kilowatts, default=_WHOLE),
        electricity_per_kwh=electricity,
        utilization=inner.require("utilization", _share, default=_WHOLE),
        resale=resale,
        idle_power_kw=inner.read("idle_power", _kilowatts, default=Decimal(0)),
        pue=inner.read("pue", _pue, default=_WHOLE),
        cooling_per_month=amount("cooling"),
        rack_per_month=amount("rack"),
        staff_per_month=staff,
        staff_share=share or Decimal(0),
    )


def nested(entry: dict[str, Located]) -> dict[str, Located]:
    """A row of a CSV, with its columns ``owned.purchase``, ... as the mapping ``owned``."""
    found: dict[str, Located] = {}
    parts: dict[str, Located] = {}
    for key, located in entry.items():
        head, dot, rest = key.partition(".")
        if head == "owned" and dot:
            if located.value != "":
                parts[rest] = located
        else:
            found[key] = located
    if parts:
        first = next(iter(parts.values()))
        found["owned"] = Located(parts, first.path.rpartition(":")[0] + ": owned", first.line)
    return found


def whole_hours(value: Any) -> int:
    """Whole hours of a duration: ``6 month``, ``1 year``."""
    hours = _seconds(value) / HOUR_S
    if hours < 1 or hours != int(hours) or hours > _LONGEST_HOURS:
        text = message(
            "not_whole_hours", "{value!r} is not a length of whole hours up to 20 years",
            value=value,
        )  # fmt: skip
        raise InvalidQuantity(text)
    return int(hours)


def _same_currency(section: Section, key: str, money: Money, other: str) -> None:
    currency = _currency_in(other)
    if currency is not None and money.currency != currency:
        text = message(
            "currencies_mixed",
            "{key} is in {currency}, the rest of this offer in {other}",
            key=key,
            currency=money.currency,
            other=currency,
        )
        section.mistakes.add(text, section.get(key) or section.at)


def _currency_in(price: str) -> str | None:
    try:
        return parse_money(re.split(r"/|\bper\b", price)[0])[1]
    except InvalidQuantity:
        return None  # told where the price is read


def _money(value: Any) -> Money:
    amount, currency = parse_money(value)
    if amount < 0:
        raise InvalidQuantity(message("negative_price", "{value!r} is below zero", value=value))
    return Money(amount=amount, currency=currency)


def _seconds(value: Any) -> float:
    seconds = parse_seconds(value)
    if not 0 < seconds < float("inf"):
        text = message("not_above_zero", "{value!r} must be above zero", value=value)
        raise InvalidQuantity(text)
    return seconds


def _increment(value: Any) -> int:
    word = str(value).strip().lower()
    if word not in _INCREMENTS:
        text = message(
            "unknown_increment", "{value!r} is none of {words}",
            value=value, words=", ".join(_INCREMENTS),
        )  # fmt: skip
        raise InvalidQuantity(text)
    return _INCREMENTS[word]


def _percent(value: Any) -> Decimal:
    match = _PERCENT.match(value) if isinstance(value, str) else None
    if match is None:
        text = message(
            "not_a_percentage", "{value!r} is not a percentage: write e.g. 10 %", value=value
        )
        raise InvalidQuantity(text)
    return Decimal(match["number"]) / 100


def _share(value: Any) -> Decimal:
    return _bounded(_percent(value), value, above=Decimal(0), most=Decimal(1))


def _bounded(found: Decimal, value: Any, *, above: Decimal, most: Decimal) -> Decimal:
    if not above < found <= most:
        text = message(
            "out_of_range", "{value!r} must be above {above} and at most {most}",
            value=value, above=f"{100 * above:f} %", most=f"{100 * most:f} %",
        )  # fmt: skip
        raise InvalidQuantity(text)
    return found


def _discounts(value: Any) -> tuple[tuple[int, Decimal], ...]:
    """``{6 month: 10 %}``, or ``6 month: 10 %; 12 month: 20 %`` as text."""
    pairs: list[tuple[Any, Any]]
    if isinstance(value, dict):
        pairs = [(key, found.value) for key, found in value.items()]
    elif isinstance(value, str):
        pairs = [
            (length.strip(), share.strip())
            for length, _, share in (part.partition(":") for part in value.split(";"))
        ]
    else:
        text = message(
            "not_discounts", "{value!r} are not discounts: write e.g. {example}",
            value=value, example="{6 month: 10 %}",
        )  # fmt: skip
        raise InvalidQuantity(text)
    found = tuple(sorted((whole_hours(length), _share(share)) for length, share in pairs))
    if any(share == 1 for _, share in found):
        text = message("free_of_charge", "a discount of 100 % would make the offer free of charge")
        raise InvalidQuantity(text)
    return found


def _kilowatts(value: Any) -> Decimal:
    return Decimal(repr(values.watts(value))) / 1000


def _pue(value: Any) -> Decimal:
    found = Decimal(str(values.real(value)))
    if not 1 <= found <= 5:
        text = message("not_a_pue", "{value!r} is not a PUE: it lies between 1 and 5", value=value)
        raise InvalidQuantity(text)
    return found
