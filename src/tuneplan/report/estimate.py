"""The answer of ``estimate`` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tuneplan.contract.answers import EstimateBody, Fit, FitOn
from tuneplan.contract.parts import Assumption, Notice, Range
from tuneplan.language import say
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bars_table,
    bytes_range_text,
    heading,
    money_range_text,
    paragraph,
    points,
    range_text,
    render,
    table,
    time_range_text,
    value_text,
)
from tuneplan.units import format_count, format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType


def estimate_text(answer: EstimateBody, page: Page) -> str:
    """Verdict, figures, what they are made of, what was assumed."""
    return render(list(_blocks(answer, page)), page)


def _blocks(answer: EstimateBody, page: Page) -> Iterator[RenderableType]:
    yield heading(_what(answer))
    yield from _verdict(answer.fit)
    yield table(
        (
            Column(name=say("Figure")),
            Column(name=say("low – likely – high"), right=True),
            Column(name=say("Basis"), keep=True),
        ),
        list(_figures(answer)),
    )
    memory = answer.memory
    yield bars_table(
        [(term.kind, float(term.size_bytes)) for term in memory.terms],
        whole=float(memory.peak_bytes.likely),
        show=format_gib,
        page=page,
        title=say("Memory at the peak ({phase})", phase=memory.peak_phase),
    )
    if answer.time is not None:
        yield bars_table(
            [(term.kind, term.time_s) for term in answer.time.terms],
            whole=float(answer.time.step_s.likely),
            show=format_duration,
            page=page,
            title=say("Time of a step"),
        )
    if answer.cost is not None:
        offer = answer.cost.offer
        yield paragraph(
            say(
                "Price: {amount} {currency} per {per}, {provider} {name}, {region}, of {as_of}",
                amount=offer.price.amount,
                currency=offer.price.currency,
                per=offer.per,
                provider=offer.provider,
                name=offer.name,
                region=offer.region or say("region unknown"),
                as_of=offer.as_of,
            )
        )
    yield from ledger(answer.assumptions, answer.warnings)


def _what(answer: EstimateBody) -> str:
    parts = [value_text(answer.job.get("model"))]
    recipe = answer.job.get("recipe") or {}
    method = answer.job.get("method") or recipe.get("method")
    if method:
        parts.append(value_text(method))
    if answer.hardware is not None:
        parts.append(f"{answer.hardware.count} x {answer.hardware.accelerator}")
    parts.append(
        say(
            "{total} parameters, {trained} trained",
            total=format_count(answer.model.total_parameters),
            trained=format_count(answer.model.trainable_parameters),
        )
    )
    return ", ".join(parts)


def verdict_text(verdict: str) -> str:
    """The verdict as a word for people."""
    words = {"fits": say("fits"), "tight": say("tight"), "does_not_fit": say("does not fit")}
    return words.get(verdict, verdict)


def _verdict(fit: Fit | list[FitOn] | None) -> Iterator[RenderableType]:
    if fit is None:
        return
    if isinstance(fit, list):
        yield table(
            (
                Column(name=say("Accelerator")),
                Column(name=say("Verdict"), keep=True),
                Column(name=say("Likely"), right=True, keep=True),
                Column(name=say("Capacity"), right=True, keep=True),
                Column(name=say("Head-room"), right=True, keep=True),
            ),
            [
                (
                    row.accelerator,
                    verdict_text(row.verdict),
                    _percent(row.probability_fits),
                    format_gib(row.capacity_bytes),
                    format_gib(row.headroom_bytes),
                )
                for row in fit
            ],
        )
        return
    colors = {"fits": "green", "tight": "yellow", "does_not_fit": "red"}
    yield paragraph(
        say(
            "{verdict}: head-room {headroom} of {capacity} (fits with {probability} probability)",
            verdict=verdict_text(fit.verdict).capitalize(),
            headroom=format_gib(fit.headroom_bytes),
            capacity=format_gib(fit.capacity_bytes),
            probability=_percent(fit.probability_fits),
        ),
        style=colors.get(fit.verdict, ""),
    )


def _percent(fraction: float | None) -> str:
    if fraction is None:
        return UNKNOWN
    if not 0.005 <= fraction < 0.995:  # never more certain than the range is
        return ">99%" if fraction > 0.5 else "<1%"
    return f"{fraction:.0%}"


def _figures(answer: EstimateBody) -> Iterator[tuple[str, str, str]]:
    memory, time = answer.memory, answer.time
    rows: list[tuple[str, Range | None, str]] = [
        (say("Peak memory, allocated"), memory.peak_bytes, "bytes"),
        (say("Peak memory, reserved"), memory.peak_reserved_bytes, "bytes"),
        (say("Peak memory, nvidia-smi"), memory.peak_device_bytes, "bytes"),
        (say("Main memory"), memory.host_bytes, "bytes"),
    ]
    if time is not None:
        rows += [
            (say("Optimizer step"), time.step_s, "s"),
            (say("Tokens/s per accelerator"), time.tokens_per_s_per_accelerator, ""),
            (say("of them real tokens"), time.real_tokens_per_s_per_accelerator, ""),
            (say("Training"), time.train_s, "s"),
            (say("Evaluation"), time.eval_s, "s"),
            (say("Checkpoints"), time.checkpoint_s, "s"),
            (say("Whole run"), time.total_s, "s"),
        ]
    rows += [
        (say("Accelerator-hours"), answer.accelerator_hours, "h"),
        (say("Energy"), answer.energy_kwh, "kWh"),
        (say("CO2"), answer.co2_kg, "kg"),
    ]
    show = {"bytes": bytes_range_text, "s": time_range_text}
    for name, figure, unit in rows:
        if figure is not None and figure.high > 0:
            text = show[unit](figure) if unit in show else range_text(figure, unit)
            yield name, text, figure.basis.value
    yield say("Cost"), money_range_text(answer.cost.total if answer.cost else None), ""


def ledger(
    assumptions: Sequence[Assumption], warnings: Sequence[Notice]
) -> Iterator[RenderableType]:
    """Warnings and assumptions, as every report ends."""
    if warnings:
        yield heading(say("Warnings"))
        yield points([warning.message for warning in warnings])
    if assumptions:
        title = say(
            "Assumptions ({count}); --json tells the source and how to set each",
            count=len(assumptions),
        )
        yield heading(title)
        yield points([f"{a.name} = {value_text(a.value)}: {a.reason}" for a in assumptions])
