"""Cells of a document from the ranges, sizes, times and money of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuneplan.contract.parts import Money, MoneyRange, Range
from tuneplan.report.tables import UNKNOWN, duration_scale, grouped, joined_text, number_text
from tuneplan.report.view import Amount, Cell
from tuneplan.units import GB, GIB, HOUR_S, format_count

_PARTS = ("low", "likely", "high")


def words(text: str) -> Cell:
    """A cell without a number."""
    return Cell(text=text)


def range_cell(
    estimate: Range | None,
    *,
    unit: str = "",
    scale: float = 1.0,
    key: str = "",
    formulas: Sequence[str] = (),
    decimals: int | None = None,
) -> Cell:
    """Low, likely and high; ``key`` gets ``.low``, ``.likely`` and ``.high`` behind it.

    ``decimals`` makes an addend as fine as its sum is read; without it three digits count.
    """
    if estimate is None:
        return words(UNKNOWN)
    values = [value / scale for value in (estimate.low, estimate.likely, estimate.high)]
    texts = [_read(value, decimals) for value in values]
    return Cell(
        text=joined_text(texts, unit),
        amounts=_amounts(texts, values, unit, key, formulas),
    )


def _read(value: float, decimals: int | None, digits: int = 3) -> str:
    return number_text(value, digits=digits) if decimals is None else f"{value:,.{decimals}f}"


def decimals_of(total: float) -> int:
    """Decimals with which a sum is read in three digits, and its addends too."""
    return max(0, 2 - math.floor(math.log10(abs(total)))) if total else 0


def _amounts(
    texts: Sequence[str],
    values: Sequence[float],
    unit: str,
    key: str,
    formulas: Sequence[str] = (),
) -> tuple[Amount, ...]:
    said = formulas or ("",) * len(texts)
    return tuple(
        Amount(
            text=text,
            value=value,
            unit=unit,
            key=f"{key}.{part}" if key else "",
            formula=formula,
        )
        for text, value, part, formula in zip(texts, values, _PARTS, said, strict=True)
    )


def gib_range_cell(estimate: Range | None, key: str = "") -> Cell:
    """A range of bytes in GiB."""
    return range_cell(estimate, unit="GiB", scale=GIB, key=key)


def hours_range_cell(estimate: Range | None, key: str = "", formulas: Sequence[str] = ()) -> Cell:
    """A range of seconds in hours, so that the rows of a table compare."""
    return range_cell(estimate, unit="h", scale=HOUR_S, key=key, formulas=formulas)


def duration_range_cell(estimate: Range | None, *, same: str = "") -> Cell:
    """A range of seconds in the unit that suits the likely one.

    ``same`` is the key of the same range elsewhere in the document, where days are hours.
    """
    if estimate is None:
        return words(UNKNOWN)
    unit, scale = duration_scale(estimate.likely)
    in_days = " / 24" if unit == "d" else ""
    formulas = tuple(f"{{{same}.{part}}}{in_days}" for part in _PARTS) if same else ()
    return range_cell(estimate, unit=unit, scale=scale, formulas=formulas)


def money_range_cell(
    money: MoneyRange | None, *, key: str = "", formulas: Sequence[str] = ()
) -> Cell:
    """A range of amounts, to the cent as the answer has them."""
    if money is None:
        return words(UNKNOWN)
    amounts = [each.amount for each in (money.low, money.likely, money.high)]
    texts = [grouped(amount) for amount in amounts]
    values = [float(amount) for amount in amounts]
    unit = money.likely.currency
    return Cell(text=joined_text(texts, unit), amounts=_amounts(texts, values, unit, key, formulas))


def money_cell(money: Money, *, key: str = "", per: str = "") -> Cell:
    """One amount; ``per`` is read behind it: ``2.50 USD per hour``."""
    text = grouped(_shortened(money.amount))
    amount = Amount(text=text, value=float(money.amount), unit=money.currency, key=key)
    return Cell(text=f"{text} {money.currency} {per}".rstrip(), amounts=(amount,))


def signed_money_cell(sign: int, amount: str, currency: str) -> Cell:
    """More or less money than before: ``-0.69 USD``."""
    text = ("-" if sign < 0 else "+") + grouped(amount)
    value = Amount(text=text, value=sign * float(amount), unit=currency)
    return Cell(text=f"{text} {currency}", amounts=(value,))


def _shortened(amount: str) -> str:
    """At least two decimals, and no zeros behind them."""
    whole, _, decimals = amount.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def number_cell(
    value: float | None,
    *,
    unit: str = "",
    key: str = "",
    formula: str = "",
    digits: int = 3,
    decimals: int | None = None,
    signed: bool = False,
) -> Cell:
    """One number with ``digits`` significant digits; ``signed`` ones bear a plus too."""
    if value is None:
        return words(UNKNOWN)
    text = _read(abs(value), decimals, digits)
    if value < 0:
        text = f"-{text}"
    elif signed and value > 0:
        text = f"+{text}"
    amount = Amount(text=text, value=value, unit=unit, key=key, formula=formula)
    joined = f"{text}%" if unit == "%" else f"{text} {unit}".rstrip()
    return Cell(text=joined, amounts=(amount,))


def count_cell(value: float | None, *, key: str = "") -> Cell:
    """A whole number."""
    if value is None:
        return words(UNKNOWN)
    text = format_count(value)
    return Cell(text=text, amounts=(Amount(text=text, value=round(value), key=key),))


def gib_cell(
    size_bytes: float | None, *, key: str = "", formula: str = "", decimals: int | None = None
) -> Cell:
    """Bytes in GiB."""
    value = None if size_bytes is None else size_bytes / GIB
    return number_cell(value, unit="GiB", key=key, formula=formula, decimals=decimals)


def gb_cell(size_bytes: float | None, *, key: str = "", formula: str = "") -> Cell:
    """Bytes in GB, as disks are sold."""
    value = None if size_bytes is None else size_bytes / GB
    return number_cell(value, unit="GB", key=key, formula=formula)


def percent_cell(fraction: float | None, *, key: str = "", formula: str = "") -> Cell:
    """A share of one in percent, to a tenth."""
    value = None if fraction is None else 100 * fraction
    return number_cell(value, unit="%", key=key, formula=formula, decimals=1)
