"""The answer of ``check`` as text: the verdict, what is wrong, what would help most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.contract.checked import BestChange, CheckAnswer, ImportAnswer, Key
from tuneplan.language import say
from tuneplan.report.estimate import figure_blocks, verdict_blocks
from tuneplan.report.ledger import ledger
from tuneplan.report.lint import lint_blocks
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    facts,
    hanging,
    heading,
    paragraph,
    render,
    table,
    value_text,
)
from tuneplan.report.verdict import needed_text, title, verdict_text
from tuneplan.units import format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

_LONGEST_VALUE: Final = 40
_NAMES: Final = {
    "trl": "TRL",
    "transformers": "Transformers",
    "llamafactory": "LLaMA-Factory",
    "axolotl": "Axolotl",
    "litgpt": "LitGPT",
    "deepspeed": "DeepSpeed",
    "accelerate": "Accelerate",
    "unsloth": "Unsloth",
    "qwen": "Qwen",
    "fastchat": "FastChat",
    "nemo": "NeMo",
    "megatron": "Megatron",
    "colossalai": "Colossal-AI",
}


def check_text(answer: CheckAnswer, page: Page, *, full: bool = False) -> str:
    """The report of a check.

    Args:
        answer: The answer.
        page: Width and colours.
        full: Every card, term, key and assumption.
    """
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: CheckAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    estimate = answer.estimate
    yield heading(title(estimate))
    yield paragraph(read_sentence(answer))
    yield from verdict_blocks(estimate, answer.as_of, full=full, ranges_follow=full)
    yield from lint_blocks(answer.lint)
    yield from _not_judged(answer.not_judged)
    if answer.silenced:
        names = ", ".join(answer.silenced)
        yield paragraph(say("Silenced, though they had something: {names}.", names=names))
    yield from _changes(answer.best_changes)
    if full:
        yield from figure_blocks(estimate, page, answer.as_of, full=full)
    else:
        need = needed_text(estimate)
        if need:
            yield facts([(say("Needed to fit"), need)])
    yield from key_blocks(answer, full=full)
    yield from ledger(estimate.assumptions, answer.warnings, page, full=full)
    if not full:
        yield paragraph(say("--all shows what memory, time and cost are made of."), style="dim")


def read_sentence(answer: CheckAnswer | ImportAnswer) -> str:
    """What was read, as what, and how much of it counts."""
    files = ", ".join(answer.files)
    if answer.format == "tuneplan":
        return say("Read as a job file: {files}.", files=files)
    name = _NAMES.get(answer.format, answer.format)
    version = f" {answer.format_version}" if answer.format_version else ""
    return say(
        "Read as {format}{version}: {files}. Its {all} keys: {carried} carried over, {irrelevant} "
        "irrelevant to memory, time and cost, {lost} not carried over, {unknown} not understood.",
        format=name,
        version=version,
        files=files,
        all=sum(len(keys) for keys in _fates(answer)),
        carried=len(answer.carried),
        irrelevant=len(answer.irrelevant),
        lost=len(answer.not_carried),
        unknown=len(answer.not_understood),
    )


def _fates(answer: CheckAnswer | ImportAnswer) -> tuple[Sequence[Key], ...]:
    return answer.carried, answer.irrelevant, answer.not_carried, answer.not_understood


def _not_judged(rules: Mapping[str, str]) -> Iterator[RenderableType]:
    if rules:
        yield paragraph(not_judged_sentence(rules), style="dim")


def not_judged_sentence(rules: Mapping[str, str]) -> str:
    """Which rules could say nothing, and for want of what."""
    why = {
        "accelerator": say("no accelerator is stated"),
        "data": say("nothing is said about the data"),
        "run": say("its duration is not known"),
    }
    parts = []
    for need in dict.fromkeys(rules.values()):
        names = ", ".join(name for name, of in rules.items() if of == need)
        parts.append(say("{names} ({why})", names=names, why=why.get(need, need)))
    return say("Not looked for: {rules}.", rules="; ".join(parts))


def _changes(changes: Sequence[BestChange]) -> Iterator[RenderableType]:
    if not changes:
        return
    yield table(
        (
            Column(name=say("Change")),
            Column(name=say("Time"), right=True, keep=True),
            Column(name=say("Cost"), right=True, keep=True),
            Column(name=say("Peak memory"), right=True, keep=True),
            Column(name=say("Then"), keep=True),
        ),
        [
            (
                one.change + (f" ({one.note})" if one.note else ""),
                _time(one),
                _money(one),
                _memory(one),
                verdict_text(one.fit_after.verdict) if one.fit_after else UNKNOWN,
            )
            for one in changes
        ],
        title=say("What would help most, each change alone"),
    )


def _time(change: BestChange) -> str:
    for sign, amounts in (("-", change.saves), ("+", change.costs)):
        share = amounts.get("time_fraction")
        if isinstance(share, float):
            seconds = amounts.get("time_s")
            text = f"\n{sign}{format_duration(seconds)}" if isinstance(seconds, float) else ""
            return f"{sign}{share:.0%}{text}"
    return UNKNOWN


def _money(change: BestChange) -> str:
    for sign, amounts in (("-", change.saves), ("+", change.costs)):
        money = amounts.get("money")
        if isinstance(money, dict):
            return f"{sign}{money['amount']}\n{money['currency']}"
    return UNKNOWN


def _memory(change: BestChange) -> str:
    for sign, amounts in (("-", change.saves), ("+", change.costs)):
        size = amounts.get("peak_bytes")
        if isinstance(size, int):
            return f"{sign}{format_gib(size)}"
    return UNKNOWN


def key_blocks(answer: CheckAnswer | ImportAnswer, *, full: bool) -> Iterator[RenderableType]:
    """Keys that are not carried over and not understood; with ``full`` the irrelevant ones too."""
    lists = [
        (say("Not carried over"), answer.not_carried),
        (say("Not understood"), answer.not_understood),
    ]
    if full:
        lists.append((say("Irrelevant to memory, time and cost"), answer.irrelevant))
    several = len(answer.files) > 1
    for name, keys in lists:
        if keys:
            yield heading(name)
            lines = [line for key in keys for line in _key_lines(key, several=several)]
            yield hanging(lines)


def _key_lines(key: Key, *, several: bool) -> Iterator[tuple[int, str, str]]:
    value = value_text(key.value)
    if len(value) > _LONGEST_VALUE:
        value = value[: _LONGEST_VALUE - 1] + "…"
    file = key.file if several else None
    line = say("line {line}", line=key.line) if key.line is not None else None
    place = ", ".join(part for part in (file, line) if part)
    yield 0, "", f"{key.key}: {value}" + (f" ({place})" if place else "")
    if key.why:
        yield 1, "", key.why
