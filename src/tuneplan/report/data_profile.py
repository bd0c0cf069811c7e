"""The answer of ``data profile`` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.measured import DataProfileAnswer, Lengths
from tuneplan.language import say
from tuneplan.report.estimate import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bar,
    heading,
    number_text,
    paragraph,
    range_text,
    render,
    table,
)
from tuneplan.units import format_count, format_gb

if TYPE_CHECKING:
    from rich.console import RenderableType


def data_profile_text(answer: DataProfileAnswer, page: Page) -> str:
    """Files, totals, lengths, what each ``max_length`` does, the recommendation."""
    return render(list(_blocks(answer, page)), page)


def _blocks(answer: DataProfileAnswer, page: Page) -> Iterator[RenderableType]:
    yield heading(
        say(
            "{samples} samples, {tokens} tokens ({trained} trained on), {how}",
            samples=format_count(answer.num_samples),
            tokens=range_text(answer.tokens.all),
            trained=range_text(answer.tokens.trained),
            how=say("exact") if answer.exact else say("estimated"),
        )
    )
    if answer.tokenizer is not None:
        yield paragraph(
            say(
                "Tokenizer: {name} ({source})",
                name=answer.tokenizer.name,
                source=answer.tokenizer.source,
            )
        )
    yield table(
        (
            Column(name=say("File")),
            Column(name=say("Format"), keep=True),
            Column(name=say("Size"), right=True, keep=True),
            Column(name=say("Good rows"), right=True, keep=True),
            Column(name=say("Bad rows"), right=True, keep=True),
        ),
        [
            (
                f.path,
                f.format,
                format_gb(f.bytes),
                format_count(f.rows_ok),
                format_count(f.rows_bad),
            )
            for f in answer.files
        ],
    )
    if answer.bad_rows:
        yield table(
            (Column(name=say("Bad row")), Column(name=say("Why"))),
            [
                (f"{row.path}:{row.line}" if row.line else row.path, row.message)
                for row in answer.bad_rows
            ],
        )
    if answer.length is not None:
        yield from _lengths(answer.length, page)
    yield from _at_max_length(answer)
    if answer.recommended is not None:
        yield paragraph(
            say(
                "Recommended: max_length {length}: {reason}",
                length=answer.recommended.max_length,
                reason=answer.recommended.reason,
            )
        )
    yield from ledger(answer.assumptions, answer.warnings)


def _lengths(length: Lengths, page: Page) -> Iterator[RenderableType]:
    names = ("mean", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "max")
    yield table(
        [Column(name=name, right=True) for name in names],
        [[number_text(float(getattr(length, name))) for name in names]],
        title=say("Length of a sequence in tokens"),
    )
    most = max((one.count for one in length.histogram), default=0)
    if most:
        yield table(
            (
                Column(name=say("Tokens"), right=True, keep=True),
                Column(name=say("Sequences"), right=True, keep=True),
                Column(name="", style="cyan", keep=True),
            ),
            [
                (
                    f"{one.low:,}–{one.high:,}",
                    format_count(one.count),
                    bar(one.count / most, width=page.width // 2),
                )
                for one in length.histogram
            ],
        )


def _at_max_length(answer: DataProfileAnswer) -> Iterator[RenderableType]:
    if not answer.at_max_length:
        return
    packings = list(answer.at_max_length[0].packed_efficiency)
    paddings = list(answer.at_max_length[0].padding_fraction)
    yield table(
        (
            Column(name="max_length", right=True, keep=True),
            Column(name=say("Samples cut"), right=True),
            Column(name=say("Tokens cut"), right=True),
            *(Column(name=say("Packed: {name}", name=name), right=True) for name in packings),
            *(Column(name=say("Padding: {name}", name=name), right=True) for name in paddings),
        ),
        [
            (
                format_count(row.max_length),
                _percent(row.truncated_samples_fraction),
                _percent(row.truncated_tokens_fraction),
                *(_percent(row.packed_efficiency.get(name)) for name in packings),
                *(_percent(row.padding_fraction.get(name)) for name in paddings),
            )
            for row in answer.at_max_length
        ],
        title=say("What a max_length does"),
    )


def _percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction:.1%}"
