"""Time in a document: the optimizer step and the whole run, as sums that can be followed."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.contract.answers import EstimateBody, Fit, Time
from tuneplan.contract.parts import Range
from tuneplan.language import say, translate
from tuneplan.report.amounts import (
    count_cell,
    decimals_of,
    number_cell,
    percent_cell,
    range_cell,
    words,
)
from tuneplan.report.labels import time_term_label
from tuneplan.report.tables import duration_scale
from tuneplan.report.view import Block, Cell, Column, Fact, Facts, Paragraph, Section, Table
from tuneplan.units import HOUR_S

_SAME = 0.002  # a formula stands where it gives the figure to this share


def time_section(answer: EstimateBody) -> Section:
    """The run as a sum, the rates, the terms of a step."""
    time = answer.time
    blocks: list[Block] = []
    if time is None:
        blocks.append(Paragraph(text=say("unknown without an accelerator"), tone="quiet"))
    else:
        blocks += if_it_fitted(answer)
        if time.total_s is not None:
            blocks += [_run(answer, time), Paragraph(text=_no_sum(), tone="quiet")]
        blocks += [_rates(time), _terms(time)]
    return Section(name="time", title=say("Time"), blocks=tuple(blocks))


def if_it_fitted(answer: EstimateBody) -> tuple[Paragraph, ...]:
    """What stands over figures of a run that cannot be made."""
    if not isinstance(answer.fit, Fit) or answer.fit.verdict != "does_not_fit":
        return ()
    text = say("It does not fit: these are the figures that it would have if it did.")
    return (Paragraph(text=text, tone="quiet"),)


def _no_sum() -> str:
    return say(
        "The likely figures add up. The lows and highs do not: it is unlikely that everything is "
        "slow at once."
    )


def _run(answer: EstimateBody, time: Time) -> Facts:
    rows = []
    if time.steps is not None:
        rows.append(
            Fact(name=say("Optimizer steps"), cell=count_cell(time.steps, key="time.steps"))
        )
    unit, scale = duration_scale(time.step_s.likely)
    rows.append(
        Fact(
            name=say("Optimizer step"),
            cell=range_cell(time.step_s, unit=unit, scale=scale, key="time.step"),
        )
    )
    rows += _parts(time, scale)
    hours = answer.accelerator_hours
    if hours is not None and answer.hardware is not None:
        count = answer.hardware.count
        rows.append(Fact(name=say("Cards"), cell=count_cell(count, key="time.cards")))
        rows.append(Fact(name=say("Card-hours"), cell=_card_hours(time, hours, count)))
    return Facts(title=say("The run"), rows=tuple(rows))


def _parts(time: Time, step_scale: float) -> Iterator[Fact]:
    """Training, evaluation, checkpoints, the rest, and their sum, in one unit."""
    total = time.total_s
    if total is None:
        return
    named = (
        ("train", say("Training"), time.train_s),
        ("eval", say("Evaluation"), time.eval_s),
        ("checkpoint", say("Writing checkpoints"), time.checkpoint_s),
    )
    keys, rest = [], total.likely
    unit, scale = run_scale(total)
    decimals = decimals_of(total.likely / scale)
    for key, name, figure in named:
        if figure is None:
            continue
        rest -= figure.likely
        keys.append(f"{{time.{key}.likely}}")
        remark = ""
        formulas: tuple[str, ...] = ()
        if key == "train":
            formulas = _train_formulas(time, scale / step_scale)
            remark = say("steps x step") if any(formulas) else ""
        yield Fact(
            name=name,
            cell=range_cell(
                figure,
                unit=unit,
                scale=scale,
                key=f"time.{key}",
                formulas=formulas,
                decimals=decimals,
            ),
            remark=remark,
        )
    if rest > -_SAME * total.likely:
        keys.append("{time.start_up}")
        yield Fact(
            name=say("Start-up, and what a restart repeats"),
            cell=number_cell(
                max(0.0, rest) / scale, unit=unit, key="time.start_up", decimals=decimals
            ),
        )
    else:
        keys = []
    yield Fact(
        name=say("Whole run"),
        cell=range_cell(
            total,
            unit=unit,
            scale=scale,
            key="time.total",
            formulas=("", " + ".join(keys), ""),
            decimals=decimals,
        ),
        remark=say("the sum of the above") if keys else "",
    )


def run_scale(total: Range) -> tuple[str, float]:
    """The unit of the run and of its parts; never days, since prices are by the hour."""
    unit, scale = duration_scale(total.likely)
    return ("h", HOUR_S) if unit == "d" else (unit, scale)


def _train_formulas(time: Time, steps_per_unit: float) -> tuple[str, str, str]:
    train = time.train_s
    if train is None or not time.steps or train.likely <= 0:
        return ("", "", "")
    product = time.steps * time.step_s.likely
    if abs(product - train.likely) > _SAME * train.likely:
        return ("", "", "")
    return ("", f"{{time.steps}} * {{time.step.likely}} / {steps_per_unit:.12g}", "")


def _card_hours(time: Time, hours: Range, count: int) -> Cell:
    total = time.total_s
    formulas: tuple[str, ...] = ()
    if total is not None and all(
        abs(getattr(total, part) * count / HOUR_S - getattr(hours, part))
        <= _SAME * getattr(hours, part)
        for part in ("low", "likely", "high")
    ):
        _, scale = run_scale(total)
        in_hours = "" if scale == HOUR_S else f" / {HOUR_S / scale:.12g}"
        formulas = tuple(
            f"{{time.total.{part}}} * {{time.cards}}{in_hours}"
            for part in ("low", "likely", "high")
        )
    return range_cell(hours, unit="h", key="time.card_hours", formulas=formulas)


def _rates(time: Time) -> Facts:
    rows = [
        Fact(
            name=say("Tokens/s per card"),
            cell=range_cell(time.tokens_per_s_per_accelerator),
            remark=say("(padding included)"),
        )
    ]
    if time.real_tokens_per_s_per_accelerator is not None:
        rows.append(
            Fact(
                name=say("without padding"),
                cell=range_cell(time.real_tokens_per_s_per_accelerator),
            )
        )
    if time.samples_per_s is not None:
        rows.append(Fact(name=say("Samples/s, whole job"), cell=range_cell(time.samples_per_s)))
    if time.mfu_fraction is not None:
        rows.append(
            Fact(
                name=say("Use of the card's arithmetic"),
                cell=percent_cell(time.mfu_fraction),
                remark="MFU",
            )
        )
    return Facts(title=say("Rates, sustained after warm-up"), rows=tuple(rows))


def _terms(time: Time) -> Table:
    unit, scale = duration_scale(time.step_s.likely)
    decimals = decimals_of(time.step_s.likely / scale)
    rows: list[tuple[Cell, ...]] = []
    keys = []
    for place, term in enumerate(time.terms, start=1):
        key = f"time.term_{place}"
        keys.append(f"{{{key}}}")
        rows.append(
            (
                words(time_term_label(term.kind)),
                number_cell(term.time_s / scale, unit=unit, key=key, decimals=decimals),
                percent_cell(
                    term.time_s / time.step_s.likely,
                    formula=f"{{{key}}} / {{time.step_sum}} * 100",
                ),
                words(translate(term.formula)),
            )
        )
    rows.append(
        (
            words(say("one step")),
            number_cell(
                time.step_s.likely / scale,
                unit=unit,
                key="time.step_sum",
                formula=" + ".join(keys),
                decimals=decimals,
            ),
            percent_cell(1.0, formula="{time.step_sum} / {time.step_sum} * 100"),
            words(""),
        )
    )
    return Table(
        title=say("Time of an optimizer step"),
        columns=(
            Column(name=say("What")),
            Column(name=say("Time"), amounts=1, unit=unit),
            Column(name=say("of the step"), amounts=1, unit="%"),
            Column(name=say("Formula")),
        ),
        rows=tuple(rows),
        folded=True,
    )
