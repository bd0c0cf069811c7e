"""What each switch of a configuration buys, as a picture and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from tuneplan.contract.levered import LeverEffect, LeverFigures, LeversAnswer
from tuneplan.contract.parts import MoneyRange, Range
from tuneplan.language import say
from tuneplan.report.amounts import (
    duration_range_cell,
    gib_range_cell,
    money_range_cell,
    words,
)
from tuneplan.report.lever_charts import Bar, lever_bars
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.tables import UNKNOWN, number_text
from tuneplan.report.verdict import fit_sentence, percent_text, verdict_text
from tuneplan.report.view import (
    Amount,
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Paragraph,
    Section,
    Table,
)
from tuneplan.units import GIB, HOUR_S

# The page of a job with some of its keys said anew; None means blank.
Address: TypeAlias = Callable[[Mapping[str, Any]], str]
_MOST_BARS: Final = 14
_LONGEST_NAME: Final = 34


def levers_sections(answer: LeversAnswer, *, address: Address | None = None) -> tuple[Section, ...]:
    """Where the job stands, what helps, and what does not with the reason."""
    helping = [one for one in answer.levers if one.cannot_help_because is None]
    idle = [one for one in answer.levers if one.cannot_help_because is not None]
    blocks: list[Block] = []
    if answer.now.fit is not None:
        fit = answer.now.fit
        blocks.append(Paragraph(text=fit_sentence(fit), tone=fit.verdict))
    blocks.append(_now(answer.now))
    if helping:
        blocks += [_table(answer, helping, address), _chart(answer, helping, address)]
    else:
        blocks.append(Paragraph(text=say("No single change helps."), tone="quiet"))
    found = [Section(name="levers", title=say("What each change buys"), blocks=tuple(blocks))]
    if idle:
        found.append(
            Section(name="no_help", title=say("What cannot help"), blocks=(_idle(idle, address),))
        )
    return tuple(found)


def _now(now: LeverFigures) -> Facts:
    rows = [
        Fact(name=say("Memory"), cell=gib_range_cell(now.peak_bytes)),
        Fact(name=say("Duration"), cell=duration_range_cell(now.total_s)),
        Fact(name=say("Cost"), cell=money_range_cell(now.cost)),
    ]
    if now.fit is not None:
        chance = percent_text(now.fit.probability_fits)
        verdict = Fact(
            name=say("Verdict"),
            cell=words(verdict_text(now.fit.verdict)),
            remark=say("probability {chance}", chance=chance),
        )
        rows.insert(0, verdict)
    return Facts(title=say("As it is now"), rows=tuple(rows), tiles=True)


def _table(answer: LeversAnswer, rows: Sequence[LeverEffect], address: Address | None) -> Table:
    return Table(
        title=say("Each change alone"),
        columns=(
            Column(name=say("Change")),
            Column(name=say("Memory"), amounts=3, unit="GiB"),
            Column(name=say("Duration"), amounts=3, unit="h"),
            Column(name=say("of the run"), amounts=1, unit="%"),
            Column(name=say("Cost"), amounts=3, unit=_currency(answer)),
            Column(name=say("Then")),
            Column(name=say("Asks for")),
        ),
        rows=tuple(_row(answer, one, address) for one in rows),
        note=say(
            "Minus is saved, plus is what it costs; each change is estimated in full on this job."
        ),
    )


def _row(answer: LeversAnswer, one: LeverEffect, address: Address | None) -> tuple[Cell, ...]:
    return (
        _name(one, address),
        _difference(one.saves_bytes, scale=GIB, unit="GiB"),
        _difference(one.saves_s, scale=HOUR_S, unit="h"),
        _share(one.time_fraction),
        _money(one.saves_money),
        _then(answer.now, one),
        Cell(text=asks_label(one.asks_for), tone="quiet"),
    )


def _name(one: LeverEffect, address: Address | None) -> Cell:
    link = address(one.settings) if address is not None and one.settings else ""
    return Cell(text=one.change, link=link, remark=one.note or "")


def _difference(saves: Range | None, *, scale: float, unit: str) -> Cell:
    """What it changes: the opposite of what it saves, so low and high change places."""
    if saves is None:
        return words(UNKNOWN)
    values = [-saves.high / scale, -saves.likely / scale, -saves.low / scale]
    return _signed(values, [signed_text(value) for value in values], unit)


def _money(saves: MoneyRange | None) -> Cell:
    if saves is None:
        return words(UNKNOWN)
    values = [-float(one.amount) for one in (saves.high, saves.likely, saves.low)]
    texts = [_with_sign(f"{value:+,.2f}") if abs(value) >= 0.005 else "0.00" for value in values]
    return _signed(values, texts, saves.likely.currency)


def _share(saves: Range | None) -> Cell:
    if saves is None:
        return words(UNKNOWN)
    value = -100 * saves.likely
    text = _with_sign(f"{value:+.0f}") if abs(value) >= 0.5 else "0"
    amount = Amount(text=text, value=value, unit="%")
    return Cell(text=f"{text}%", amounts=(amount,), tone=_tone(value, small=0.5))


def _signed(values: Sequence[float], texts: Sequence[str], unit: str) -> Cell:
    amounts = tuple(
        Amount(text=text, value=value, unit=unit) for text, value in zip(texts, values, strict=True)
    )
    same = texts[1] if len(set(texts)) == 1 else say("{low} to {high}", low=texts[0], high=texts[2])
    return Cell(text=f"{same} {unit}", amounts=amounts, tone=_tone(values[1]))


def _tone(value: float, *, small: float = 0.005) -> str:
    if abs(value) < small:
        return "quiet"
    return "better" if value < 0 else "worse"


def signed_text(value: float) -> str:
    """A difference with its sign; what hardly differs is 0."""
    if abs(value) < 0.005:
        return "0"
    size = number_text(abs(value)) if abs(value) >= 1 else f"{abs(value):.2f}"
    return _with_sign(("-" if value < 0 else "+") + size)


def _with_sign(text: str) -> str:
    """With a minus that is no dash, which stands between low and high."""
    return text.replace("-", "\N{MINUS SIGN}")


def _then(now: LeverFigures, one: LeverEffect) -> Cell:
    """The verdict then, and from which it came where it is another one."""
    fit = one.after.fit if one.after else None
    if fit is None:
        return words(UNKNOWN)
    verdict = verdict_text(fit.verdict)
    if fit.verdict == "tight":
        verdict = f"{verdict} ({percent_text(fit.probability_fits)})"
    before = ""
    if now.fit is not None and now.fit.verdict != fit.verdict:
        before = say("now: {verdict}", verdict=verdict_text(now.fit.verdict))
    return Cell(text=verdict, tone=fit.verdict, remark=before)


def asks_label(price: str) -> str:
    """What a change asks for besides the figures."""
    return {
        "nothing": say("nothing"),
        "speed": say("work of the host"),
        "numerics": say("coarser numbers"),
        "data": say("part of the data"),
        "method": say("another method"),
        "money": say("other hardware"),
    }.get(price, price)


def _currency(answer: LeversAnswer) -> str:
    return answer.now.cost.likely.currency if answer.now.cost else ""


def _chart(answer: LeversAnswer, rows: Sequence[LeverEffect], address: Address | None) -> Chart:
    bars = [_bar(one, address) for one in rows[:_MOST_BARS]]
    currency = _currency(answer)
    return Chart(
        name="levers",
        title=say("What each change saves (left) and costs (right)"),
        caption=say(
            "Bars to the left of the line are saved, bars to the right are what it costs; the "
            "same figures stand in the table."
        ),
        specification=lever_bars(bars, currency=currency, width=WIDE),
        narrow=lever_bars(bars, currency=currency, width=NARROW),
    )


def _bar(one: LeverEffect, address: Address | None) -> Bar:
    money = one.saves_money
    return Bar(
        name=_shortened(one.change),
        gib=None if one.saves_bytes is None else -one.saves_bytes.likely / GIB,
        hours=None if one.saves_s is None else -one.saves_s.likely / HOUR_S,
        money=None if money is None else -float(money.likely.amount),
        address=address(one.settings) if address is not None else "",
    )


def _shortened(text: str) -> str:
    """A change in few words: what stands in parentheses or behind a colon is left to the table."""
    for mark in (" (", ": ", ", ", "（", "：", "，"):
        text = text.partition(mark)[0]
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1].rstrip() + "…"


def _idle(rows: Sequence[LeverEffect], address: Address | None) -> Table:
    return Table(
        title=say("What cannot help, and why"),
        columns=(
            Column(name=say("Change")),
            Column(name=say("Cannot help because")),
            Column(name=say("Memory"), amounts=3, unit="GiB"),
            Column(name=say("Duration"), amounts=3, unit="h"),
        ),
        rows=tuple(
            (
                _name(one, address),
                words(one.cannot_help_because or ""),
                replace(_difference(one.saves_bytes, scale=GIB, unit="GiB"), tone="quiet"),
                replace(_difference(one.saves_s, scale=HOUR_S, unit="h"), tone="quiet"),
            )
            for one in rows
        ),
    )
