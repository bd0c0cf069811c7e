"""The answer of ``estimate`` as text: the verdict, then what it is made of, then the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.contract.answers import Cost, EstimateBody, FitOn
from tuneplan.contract.parts import Range
from tuneplan.language import say
from tuneplan.report.dates import date_text
from tuneplan.report.disks import disk_blocks
from tuneplan.report.labels import (
    cost_item_label,
    memory_term_label,
    per_label,
    phase_label,
    source_text,
    time_term_label,
)
from tuneplan.report.ledger import ledger
from tuneplan.report.lint import lint_blocks
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    Column,
    bars_table,
    bytes_range_text,
    facts,
    heading,
    money_range_text,
    number_text,
    paragraph,
    range_text,
    render,
    table,
    time_range_text,
    value_text,
)
from tuneplan.report.verdict import (
    VERDICT_STYLES,
    age_days,
    fit_sentence,
    needed_text,
    percent_text,
    ranges_sentence,
    run_sentences,
    smallest_sentence,
    title,
    verdict_text,
)
from tuneplan.units import format_count, format_duration, format_gb, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

# Of the table over the cards, these are shown beside the smallest that fits.
COMMON_CARDS: Final = (
    "NVIDIA T4",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 5090",
    "NVIDIA L4",
    "NVIDIA A10G",
    "NVIDIA A100 SXM 40GB",
    "NVIDIA L40S",
    "NVIDIA A100 SXM 80GB",
    "NVIDIA H100 SXM",
    "NVIDIA H200 SXM",
    "NVIDIA B200 SXM",
    "AMD Instinct MI300X",
)
_SMALL_SHARE: Final = 0.005  # terms below this share of the whole stand in one line


def estimate_text(answer: EstimateBody, page: Page, *, full: bool = False) -> str:
    """The report of one configuration.

    Args:
        answer: With or without a header; with one the age of the price is told.
        page: Width and colours.
        full: Every card, every term and every assumption.
    """
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: EstimateBody, page: Page, *, full: bool) -> Iterator[RenderableType]:
    as_of = getattr(answer, "as_of", None)
    yield heading(title(answer))
    yield from verdict_blocks(answer, as_of, full=full)
    findings = getattr(answer, "lint", None)
    if findings:
        yield from lint_blocks(findings)
    yield from figure_blocks(answer, page, as_of, full=full)
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def figure_blocks(
    answer: EstimateBody, page: Page, as_of: str | None, *, full: bool
) -> Iterator[RenderableType]:
    """What memory, time and cost are made of, and the job itself."""
    yield from _memory(answer, page, full=full)
    yield from _time(answer, page, full=full)
    yield facts(list(_money(answer, as_of)), title=say("Cost"))
    if full:
        yield from disk_blocks(answer)
    yield facts(list(_job(answer)), title=say("Job"))


def verdict_blocks(
    answer: EstimateBody, as_of: str | None, *, full: bool, ranges_follow: bool = True
) -> Iterator[RenderableType]:
    """Whether it fits, how long it takes and what it costs; how ranges read, where some stand."""
    fit = answer.fit
    if isinstance(fit, list):
        count = stated_cards(answer)
        yield paragraph(smallest_sentence(fit, count), style="bold")
        yield _cards(fit, count, full=full)
        return
    if fit is not None:
        yield paragraph(fit_sentence(fit), style=f"bold {VERDICT_STYLES.get(fit.verdict, '')}")
    possible = fit is None or fit.verdict != "does_not_fit"
    sentences = list(run_sentences(answer, as_of)) if possible else []
    if sentences:
        yield paragraph("\n".join(sentences))
    if ranges_follow or any(" – " in sentence for sentence in sentences):
        yield paragraph(ranges_sentence(), style="dim")


def stated_cards(answer: EstimateBody) -> int:
    """How many cards the job says it runs on, where it does not say on which."""
    hardware = answer.job.get("hardware") or {}
    counts = (hardware.get(name) for name in ("num_nodes", "accelerators_per_node"))
    return math.prod(count for count in counts if isinstance(count, int))


def _cards(rows: Sequence[FitOn], count: int, *, full: bool) -> RenderableType:
    fitting = [row for row in rows if row.verdict == "fits"]
    smallest = min(fitting, key=lambda row: (row.capacity_bytes, row.accelerator), default=None)
    shown = [row for row in rows if full or row is smallest or row.accelerator in COMMON_CARDS]
    return table(
        (
            Column(
                name=say("On {count} cards of", count=count) if count > 1 else say("On one card of")
            ),
            Column(name=say("Verdict"), keep=True),
            Column(name=say("Probability"), right=True, keep=True),
            Column(name=say("Capacity"), right=True, keep=True),
            Column(name=say("Stays free"), right=True, keep=True),
        ),
        [
            (
                row.accelerator,
                verdict_text(row.verdict),
                percent_text(row.probability_fits),
                format_gib(row.capacity_bytes),
                format_gib(row.headroom_bytes),
            )
            for row in shown
        ],
        title=None if full else say("Common cards (--all lists all {count})", count=len(rows)),
    )


def _memory(answer: EstimateBody, page: Page, *, full: bool) -> Iterator[RenderableType]:
    memory = answer.memory
    peak = float(memory.peak_bytes.likely)
    capacity = answer.hardware.capacity_bytes if answer.hardware else None
    name = say("Memory of a card at its peak, in the {phase}", phase=phase_label(memory.peak_phase))
    rows = [(memory_term_label(term.kind), float(term.size_bytes)) for term in memory.terms]
    share = say("of the card") if capacity else say("of the peak")
    yield bars_table(
        _with_small_ones(rows, peak, full=full),
        whole=float(capacity or peak),
        show=format_gib,
        page=page,
        title=name,
        heads=(say("What"), say("Size"), share),
        total=(say("allocated at the peak"), peak),
    )
    need = needed_text(answer)
    yield facts(
        [
            *([(say("Needed to fit"), need)] if need else []),
            (say("Allocated by PyTorch"), bytes_range_text(memory.peak_bytes)),
            (say("Reserved by its allocator"), bytes_range_text(memory.peak_reserved_bytes)),
            (say("As nvidia-smi shows it"), bytes_range_text(memory.peak_device_bytes)),
            (say("Main memory per card"), bytes_range_text(memory.host_bytes)),
            (
                say("Peak by phase"),
                ", ".join(
                    f"{phase_label(one.phase)} {format_gib(one.size_bytes)}"
                    for one in memory.by_phase
                ),
            ),
        ]
    )


def _with_small_ones(
    rows: Sequence[tuple[str, float]], whole: float, *, full: bool
) -> list[tuple[str, float]]:
    """The rows, with those that hardly count put together."""
    small = [row for row in rows if row[1] < _SMALL_SHARE * whole]
    if full or len(small) < 2:
        return list(rows)
    rest = say("{count} smaller ones", count=len(small))
    return [row for row in rows if row not in small] + [(rest, sum(size for _, size in small))]


def _time(answer: EstimateBody, page: Page, *, full: bool) -> Iterator[RenderableType]:
    time = answer.time
    if time is None:
        return
    step = float(time.step_s.likely)
    rows = [(time_term_label(term.kind), term.time_s) for term in time.terms]
    yield bars_table(
        _with_small_ones(rows, step, full=full),
        whole=step,
        show=format_duration,
        page=page,
        title=say("Time of an optimizer step"),
        heads=(say("What"), say("Time"), say("of the step")),
        total=(say("one step"), step),
    )
    shown: list[tuple[str, str]] = [
        (say("Optimizer step"), time_range_text(time.step_s)),
        (
            say("Tokens/s per card"),
            range_text(time.tokens_per_s_per_accelerator) + " " + say("(padding included)"),
        ),
    ]
    real = time.real_tokens_per_s_per_accelerator
    if real is not None and real.likely < 0.995 * time.tokens_per_s_per_accelerator.likely:
        shown.append((say("without padding"), range_text(real)))
    if time.samples_per_s is not None:
        shown.append((say("Samples/s, whole job"), range_text(time.samples_per_s)))
    if time.mfu_fraction is not None:
        shown.append((say("Use of the card's arithmetic"), _utilisation(answer)))
    shown += [
        (name, time_range_text(figure))
        for name, figure in (
            (say("Training"), time.train_s),
            (say("Evaluation"), time.eval_s),
            (say("Writing checkpoints"), time.checkpoint_s),
            (say("Whole run, start-up included"), time.total_s),
        )
        if figure is not None and figure.likely > 0
    ]
    yield facts(shown)


def _utilisation(answer: EstimateBody) -> str:
    time = answer.time
    if time is None or time.mfu_fraction is None:
        return ""
    text = say("{share:.0%} (MFU)", share=time.mfu_fraction)
    if time.hfu_fraction is not None and time.hfu_fraction > 1.005 * time.mfu_fraction:
        text += ", " + say("{share:.0%} with recomputation (HFU)", share=time.hfu_fraction)
    return text


def _money(answer: EstimateBody, as_of: str | None) -> Iterator[tuple[str, str]]:
    cost = answer.cost
    hours = answer.accelerator_hours
    if hours is not None:
        yield say("Card-hours"), range_text(hours, "h")
    yield say("The run"), money_range_text(cost.total) if cost else no_cost(answer)
    if cost is not None:
        yield from _offer(cost, as_of)
    for name, figure, unit in (
        (say("Energy"), answer.energy_kwh, "kWh"),
        (say("CO2"), answer.co2_kg, "kg"),
    ):
        if figure is not None:
            yield name, range_text(figure, unit)
    if answer.storage is not None:
        storage = answer.storage
        text = say("{size} each", size=format_gb(storage.checkpoint_bytes))
        if storage.kept_bytes is not None:
            text += ", " + say("{size} on disk at most", size=format_gb(storage.kept_bytes))
        yield say("Checkpoints"), text
        if storage.needed_bytes is not None:
            yield (
                say("Room on disk"),
                say(
                    "{size} for checkpoints, data and the model",
                    size=format_gb(storage.needed_bytes),
                ),
            )
        if storage.dataset_bytes is not None:
            yield say("Data set"), format_gb(storage.dataset_bytes)


def no_cost(answer: EstimateBody) -> str:
    """Why the cost is not known."""
    if answer.hardware is None:
        return say("unknown without an accelerator")
    if answer.time is None:
        return say("unknown: the duration is not known")
    if answer.accelerator_hours is None:
        return say("unknown without data")
    return say("unknown: no price is known, or the limits allow none")


def _offer(cost: Cost, as_of: str | None) -> Iterator[tuple[str, str]]:
    if len(cost.items) > 1:
        for item in cost.items:
            yield cost_item_label(item.name), money_range_text(item.amount)
    offer = cost.offer
    yield (
        say("Price"),
        say(
            "{amount} {currency} per {per}: {provider}, {name}, {region}",
            amount=_amount(offer.price.amount),
            currency=offer.price.currency,
            per=per_label(offer.per),
            provider=offer.provider,
            name=offer.name,
            region=offer.region or say("region unknown"),
        ),
    )
    days = age_days(offer.as_of, as_of)
    aged = "" if days is None else say(", {days} days ago", days=days)
    yield (
        say("Price seen"),
        say(
            "{date}{aged} ({source})",
            date=date_text(offer.as_of),
            aged=aged,
            source=source_text(offer.source),
        ),
    )


def _amount(amount: str) -> str:
    """An amount with at least two decimals, and no zeros behind them."""
    whole, _, decimals = amount.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def _job(answer: EstimateBody) -> Iterator[tuple[str, str]]:
    model, data = answer.model, answer.data
    yield (
        say("Parameters"),
        say(
            "{total} in all, {trained} trained ({share})",
            total=format_count(model.total_parameters),
            trained=format_count(model.trainable_parameters),
            share=_share(model.trainable_parameters, model.total_parameters),
        ),
    )
    if model.active_parameters != model.total_parameters:
        yield say("Active per token"), format_count(model.active_parameters)
    if data is not None:
        yield say("Data"), _data(answer)
        if data.tokens_per_step is not None:
            yield say("Tokens per step"), _tokens_per_step(answer)
    if answer.hardware is not None and answer.hardware.link not in (None, "none"):
        yield say("Links"), value_text(answer.hardware.link)
    yield (
        say("Software"),
        ", ".join(f"{name} {version or '?'}" for name, version in answer.software.items()),
    )


def _share(part: int, whole: int) -> str:
    return f"{number_text(100 * part / max(whole, 1), digits=2)}%"


def _data(answer: EstimateBody) -> str:
    data = answer.data
    if data is None or data.num_samples is None or data.total_tokens is None:
        assumed = [one.value for one in answer.assumptions if one.name == "data.mean_tokens"]
        if assumed:
            return say("unknown; rows of {length:,} tokens are assumed", length=assumed[0])
        return say("unknown; every row is taken as full")
    tokens: Range = data.total_tokens
    return say(
        "{samples} samples, {tokens} tokens",
        samples=format_count(data.num_samples),
        tokens=format_count(tokens.likely) if tokens.low == tokens.high else range_text(tokens),
    )


def _tokens_per_step(answer: EstimateBody) -> str:
    data = answer.data
    if data is None or data.tokens_per_step is None:
        return ""
    text = format_count(data.tokens_per_step)
    if data.padding_fraction is not None and data.padding_fraction > 0.005:
        text += " " + say("({share:.0%} of them padding)", share=data.padding_fraction)
    if data.worst_micro_batch_tokens is not None:
        text += ", " + say(
            "longest micro-batch {count}", count=format_count(data.worst_micro_batch_tokens)
        )
    return text
