"""The answer of ``rules`` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.parts import Range
from tuneplan.contract.ruled import RuleAnswer, RulesAnswer, RuleTableRow, TimeRuleAnswer
from tuneplan.language import say
from tuneplan.report.labels import method_label
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    heading,
    number_text,
    paragraph,
    render,
    table,
    value_text,
)
from tuneplan.units import GB, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType


def rules_text(answer: RulesAnswer, page: Page, *, full: bool = False) -> str:
    """The folk table, each rule with its difference by cause, the sayings about time."""
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: RulesAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    yield heading(
        say(
            "Rules of thumb for {model}: {total} parameters",
            model=value_text(answer.job.get("model")),
            total=format_count(answer.total_parameters),
        )
    )
    yield paragraph(
        say(
            "Each as people state it, in GB (10^9 bytes); ours is the allocated peak of one card "
            "that holds everything, with this job's batch and lengths."
        )
    )
    yield _folk_table(answer)
    told: set[tuple[str, bool]] = set()
    for rule in answer.rules:
        key = (rule.method, rule.weights_only)
        yield from _rule(rule, reasons=key not in told)
        told.add(key)
    if answer.petaflop_s_days is not None:
        yield paragraph(
            say(
                "6 x active parameters x tokens: {flop:.3g} operations, {days:.2g} PFLOP/s-days.",
                flop=answer.training_flop or 0.0,
                days=answer.petaflop_s_days,
            )
        )
    if answer.time_rules:
        yield _time_table(answer)
    if full:
        yield from ledger(answer.assumptions, answer.warnings, page, full=full)
    elif answer.warnings:
        yield from ledger((), answer.warnings, page)


def _gb(size_bytes: float) -> str:
    return number_text(size_bytes / GB)


def _signed(size_bytes: float) -> str:
    sign = "+" if size_bytes > 0 else "-" if size_bytes < 0 else ""
    return f"{sign}{number_text(abs(size_bytes) / GB)}"


def _range(found: Range | None) -> str:
    if found is None:
        return UNKNOWN
    parts = [_gb(value) for value in (found.low, found.likely, found.high)]
    return parts[1] if len(set(parts)) == 1 else " \u2013 ".join(parts)


def _folk_table(answer: RulesAnswer) -> RenderableType:
    columns = (
        Column(name=say("Table, {size}B", size=f"{answer.table_parameters / 1e9:g}")),
        Column(name=say("It says, GB"), right=True, keep=True),
        Column(name=say("Cards"), right=True, keep=True),
        Column(name=say("Ours for this model, GB"), right=True, keep=True),
        Column(name=say("80 GB cards"), right=True, keep=True),
    )
    return table(columns, [_folk_row(row) for row in answer.table])


def _folk_row(row: RuleTableRow) -> tuple[str, ...]:
    said = _gb(row.rule_low_bytes)
    if row.rule_high_bytes > row.rule_low_bytes:
        said += f" - {_gb(row.rule_high_bytes)}"
    cards = UNKNOWN if row.our_cards is None else say("at least {count}", count=row.our_cards)
    return method_label(row.method), said, str(row.rule_cards), _range(row.our_bytes), cards


def _rule(rule: RuleAnswer, *, reasons: bool) -> Iterator[RenderableType]:
    """A rule; the reasons of our figures only where they have not been told before."""
    yield heading(rule.statement)
    about = method_label(rule.method)
    if rule.weights_only:
        about += ", " + say("weights alone")
    if rule.our_bytes is None:
        yield paragraph(
            say(
                "It says {rule} GB; no answer of ours for {about}: {reason}",
                rule=_gb(rule.rule_bytes),
                about=about,
                reason=rule.no_answer or "",
            )
        )
        return
    columns = (
        Column(name=about),
        Column(name=say("Rule"), right=True, keep=True),
        Column(name=say("Ours"), right=True, keep=True),
        Column(name=say("Difference"), right=True, keep=True),
        *((Column(name=say("Ours is")),) if reasons else ()),
    )
    rows = [
        (
            _bucket_label(cause.name),
            _gb(cause.rule_bytes),
            _gb(cause.our_bytes),
            _signed(cause.difference_bytes),
            *((cause.reason,) if reasons else ()),
        )
        for cause in rule.causes
    ]
    total = (
        say("together"),
        _gb(rule.rule_bytes),
        _gb(float(rule.our_bytes.likely)),
        _signed(rule.difference_bytes or 0.0),
        *(("" if rule.weights_only else _range(rule.our_bytes),) if reasons else ()),
    )
    yield table(columns, [*rows, total])
    yield paragraph(rule.why)


def _bucket_label(name: str) -> str:
    return {
        "weights": say("weights"),
        "gradients": say("gradients"),
        "optimizer": say("optimizer"),
        "activations": say("activations"),
        "other": say("other"),
    }.get(name, name)


def _time_table(answer: RulesAnswer) -> RenderableType:
    columns = (
        Column(name=say("What is said of time")),
        Column(name=say("Said"), right=True, keep=True),
        Column(name=say("Ours"), right=True, keep=True),
        Column(name=say("Why")),
    )
    rows = [(one.statement, _said(one), _figure(one.ours, one), one.why)
            for one in answer.time_rules]  # fmt: skip
    return table(columns, rows)


def _said(one: TimeRuleAnswer) -> str:
    low, high = _figure(one.said_low, one), _figure(one.said_high, one)
    return low if low == high else f"{low} - {high}"


def _figure(value: float | None, one: TimeRuleAnswer) -> str:
    if value is None:
        return UNKNOWN
    return f"x {value:.2f}" if one.is_factor else f"{value:.0%}"
