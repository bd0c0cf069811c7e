"""Parsers of single values in the user's own fact files; each raises an error for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from tuneplan.catalog.documents import Located
from tuneplan.errors import InvalidQuantity
from tuneplan.language import message
from tuneplan.units import parse_bytes, parse_bytes_per_s, parse_flop_per_s

_YES: Final = frozenset({"true", "yes", "y", "1"})
_NO: Final = frozenset({"false", "no", "n", "0"})
_MOST_BYTES: Final = 1e15
_MOST_FLOP_PER_S: Final = 1e18
_MOST_WATTS: Final = 1e5
_MOST_COUNTED: Final = 1_000_000


def text(value: Any) -> str:
    """Non-empty text."""
    if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
        return str(value).strip()
    raise InvalidQuantity(message("not_text", "{value!r} is not text", value=value))


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise InvalidQuantity(message("not_a_list_of_texts", "this must be a list"))
    return tuple(text(item.value if isinstance(item, Located) else item) for item in value)


def yes_or_no(value: Any) -> bool:
    """A truth value; ``true``/``false`` and ``yes``/``no`` as text too (CSV has only text)."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise InvalidQuantity(
        message("not_yes_or_no", "{value!r} is neither true nor false", value=value)
    )


def whole(value: Any) -> int:
    """A whole number above zero."""
    try:
        count = int(str(value).strip()) if not isinstance(value, bool) else 0
    except ValueError:
        count = 0
    if not 1 <= count <= _MOST_COUNTED:
        raise InvalidQuantity(
            message(
                "not_a_count", "{value!r} is not a whole number from 1 to a million", value=value
            )
        )
    return count


def real(value: Any) -> float:
    """A number above zero."""
    try:
        found = float(str(value).strip()) if not isinstance(value, bool) else 0.0
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise InvalidQuantity(
            message("not_a_number", "{value!r} is not a number above zero", value=value)
        )
    return found


def day(value: Any) -> date:
    """A date: ``2026-11-30``."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        raise InvalidQuantity(
            message("not_a_date", "{value!r} is not a date such as 2026-11-30", value=value)
        ) from None


def day_text(value: Any) -> str:
    """A date as text."""
    return day(value).isoformat()


def size(value: Any) -> int:
    """Bytes above zero: ``80 GiB``."""
    return round(_believed(parse_bytes(value), value, _MOST_BYTES, "1 PB"))


def bandwidth(value: Any) -> float:
    """Bytes per second above zero: ``450 GB/s``."""
    return _believed(parse_bytes_per_s(value), value, _MOST_BYTES, "1 PB/s")


def flop_rate(value: Any) -> float:
    """Operations per second above zero: ``989 TFLOP/s``."""
    return _believed(parse_flop_per_s(value), value, _MOST_FLOP_PER_S, "1,000 PFLOP/s")


def watts(value: Any) -> float:
    """Watts above zero: ``700 W`` or ``1.2 kW``."""
    if isinstance(value, str):
        for unit, factor in (("kW", 1e3), ("W", 1.0)):
            if value.strip().endswith(unit):
                found = real(value.strip().removesuffix(unit)) * factor
                return _believed(found, value, _MOST_WATTS, "100 kW")
    raise InvalidQuantity(
        message("not_a_power", "{value!r} is not a power such as '700 W'", value=value)
    )


def rates(value: Any) -> Mapping[str, float]:
    """Operations per second by dtype: ``{bfloat16: 989 TFLOP/s}``."""
    known = ("float32", "tf32", "float16", "bfloat16", "float8")
    if not isinstance(value, dict) or not value:
        raise InvalidQuantity(
            message("not_rates", "this must be a mapping such as {example}",
                    example="{bfloat16: 989 TFLOP/s}")
        )  # fmt: skip
    found = {}
    for dtype, rate in value.items():
        if dtype not in known:
            raise InvalidQuantity(
                message("unknown_rate_dtype", "{dtype!r} is none of {known}",
                        dtype=dtype, known=", ".join(known))
            )  # fmt: skip
        found[dtype] = flop_rate(rate.value)
    return found


def _believed(found: float, value: Any, most: float, written: str) -> float:
    """A quantity of one card or machine, above zero and below what none will have for long."""
    if not found > 0:
        raise InvalidQuantity(
            message("not_above_zero", "{value!r} must be above zero", value=value)
        )
    if found > most:
        raise InvalidQuantity(
            message(
                "beyond_belief",
                "{value!r} is more than {most}, which no card or machine has: check the unit",
                value=value,
                most=written,
            )
        )
    return found
