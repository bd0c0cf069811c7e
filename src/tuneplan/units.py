"""Units: constants, strict parsing of quantities, printing of sizes and times.

Bytes are integers; seconds, rates and counts are floats. GiB = 2**30, GB = 10**9; both exist and
are never mixed in one line of output.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from tuneplan.errors import InvalidQuantity
from tuneplan.language import message

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TIB: Final = 2**40
KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12
TERA: Final = 1e12

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S
MONTH_S: Final = 30 * DAY_S  # 30 x 24 h, an assumption that every answer using it lists
YEAR_S: Final = 365 * DAY_S

_SIZES: Final = {
    "B": 1,
    "kB": KB,
    "KB": KB,
    "MB": MB,
    "GB": GB,
    "TB": TB,
    "PB": 10**15,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
_TIMES: Final = {
    "ms": 1e-3,
    "s": 1.0,
    "min": MINUTE_S,
    "h": HOUR_S,
    "d": DAY_S,
    "day": DAY_S,
    "days": DAY_S,
    "week": WEEK_S,
    "weeks": WEEK_S,
    "month": MONTH_S,
    "months": MONTH_S,
    "year": YEAR_S,
    "years": YEAR_S,
}
_RATES: Final = {
    **{f"{unit}/s": float(factor) for unit, factor in _SIZES.items()},
    **{
        f"{prefix}bit/s": factor / 8
        for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
    },
}
_FLOP_RATES: Final = {"TFLOP/s": 1e12, "GFLOP/s": 1e9, "PFLOP/s": 1e15}
# ISO 4217: the active codes of money in circulation (pycountry 26.2.16).
_CURRENCY_CODES: Final = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN "
    "BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP "
    "GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS "
    "KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR "
    "MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD "
    "RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP "
    "TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW "
    "ZWG "
)
CURRENCIES: Final = frozenset(_CURRENCY_CODES.split())
# Signs that mean one currency and no other ("$" and "kr" mean several, so they are refused).
_CURRENCY_SIGNS: Final = {
    "NT$": "TWD",
    "US$": "USD",
    "HK$": "HKD",
    "€": "EUR",
    "£": "GBP",
    "₩": "KRW",
    "₹": "INR",
}
_QUANTITY: Final = re.compile(
    r"^\s*(?P<number>[+-]?[\d_,]*\.?\d+(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s].*?)?\s*$"
)
_MONEY: Final = re.compile(
    r"^\s*(?P<before>[^\W\d_]{0,3}[$€£¥₩₹]|[A-Za-z]{3}(?=[\s\d]))?\s*"
    r"(?P<number>-?(?:[0-9][0-9_,]*)(?:\.[0-9]+)?)"
    r"\s*(?P<after>[^\W\d_]{0,3}[$€£¥₩₹]|[A-Za-z]{3})?\s*$"
)


_MOST: Final = 1e100  # of anything that is written with a unit


def _parse(text: str | float, units: dict[str, float] | dict[str, int], kind: str) -> float:
    example = {
        "size": "80 GiB",
        "duration": "24 h",
        "bandwidth": "7 GB/s",
        "arithmetic rate": "989 TFLOP/s",
    }[kind]
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    number = float(match["number"].replace("_", "").replace(",", "")) if match else math.inf
    if match is not None and number > _MOST:
        raise InvalidQuantity(
            message(
                "absurd_quantity",
                "{value!r} makes no sense here: it must be more than nothing and real",
                value=text,
            )
        )
    if match is None or match["unit"] is None:
        raise InvalidQuantity(
            message(
                "quantity_without_unit",
                "{value!r} is not a {kind}: write a number, a space and a unit, e.g. {example}",
                value=text,
                kind=kind,
                example=example,
            )
        )
    if match["unit"] not in units:
        raise InvalidQuantity(
            message(
                "unknown_unit",
                "{unit!r} is not a unit of {kind}; use one of {units}",
                unit=match["unit"],
                kind=kind,
                units=", ".join(units),
            )
        )
    return number * units[match["unit"]]


def parse_bytes(text: str | float) -> int:
    """Bytes of a size such as ``"80 GiB"`` or ``"7 GB"``; a bare number raises InvalidQuantity."""
    return round(_parse(text, _SIZES, "size"))


def parse_seconds(text: str | float) -> float:
    """Seconds of a duration such as ``"24 h"``; a month is 30 x 24 h."""
    return _parse(text, _TIMES, "duration")


def parse_bytes_per_s(text: str | float) -> float:
    """Bytes per second of ``"7 GB/s"`` or ``"400 Gbit/s"``."""
    return _parse(text, _RATES, "bandwidth")


def parse_flop_per_s(text: str | float) -> float:
    """Operations per second of ``"989 TFLOP/s"``."""
    return _parse(text, _FLOP_RATES, "arithmetic rate")


def parse_money(text: str | float) -> tuple[Decimal, str]:
    """Amount and ISO 4217 code of ``"500 USD"``, ``"TWD 120"`` or ``"NT$ 120"``.

    Raises:
        InvalidQuantity: A bare number, an unknown currency, or a sign that several countries use.
    """
    match = _MONEY.match(text) if isinstance(text, str) else None
    if match is None or bool(match["before"]) == bool(match["after"]):
        raise InvalidQuantity(
            message(
                "money_without_currency",
                "{value!r} is not an amount of money: write a number, a space and a currency code, "
                "e.g. 500 USD or 120 TWD",
                value=text,
            )
        )
    sign = match["before"] or match["after"]
    currency = _CURRENCY_SIGNS.get(sign, sign.upper())
    if currency not in CURRENCIES:
        raise InvalidQuantity(
            message(
                "unknown_currency",
                "{currency!r} is not a currency code of ISO 4217; write e.g. USD, EUR, TWD or CNY",
                currency=sign,
            )
        )
    return Decimal(re.sub(r"[_,]", "", match["number"])), currency


def format_gib(size_bytes: float) -> str:
    """A size in GiB for people: ``"22.4 GiB"``."""
    gib = size_bytes / GIB
    return f"{gib:.2f} GiB" if abs(gib) < 10 else f"{gib:.1f} GiB"


def format_gb(size_bytes: float) -> str:
    """A decimal size, for disks and transfers: ``"15.2 GB"``."""
    for unit, factor in (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def format_duration(seconds: float) -> str:
    """A duration for people: ``"45 s"``, ``"12 min"``, ``"3.4 h"``, ``"2.1 d"``."""
    if 0 < seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    for unit, factor, limit in (
        ("s", 1.0, 120.0),
        ("min", MINUTE_S, 2 * HOUR_S),
        ("h", HOUR_S, 3 * DAY_S),
    ):
        if seconds < limit:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / DAY_S:.3g} d"


def format_count(number: float) -> str:
    """A count for people, with thousands separators: ``"7,615,616,512"``."""
    return f"{number:,.0f}"


MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_ISO_DATE: Final = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
_NAMED_MONTH: Final = re.compile(
    rf"\b({'|'.join(MONTHS)})[a-z]*\.?[ -]+(20\d\d)\b", flags=re.IGNORECASE
)


def date_in(text: str) -> str | None:
    """The day or month that a text names: ``Feb-Mar 2024`` is ``2024-03``."""
    iso = _ISO_DATE.search(text)
    if iso is not None:
        return "-".join(part for part in iso.groups() if part)
    named = _NAMED_MONTH.search(text)
    if named is not None:
        return f"{named[2]}-{MONTHS.index(named[1].casefold()) + 1:02d}"
    return None
