"""Shards of tokens as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuneplan.language import say
from tuneplan.report.labels import source_text
from tuneplan.report.page import Page
from tuneplan.report.tables import facts, heading, paragraph, points, render
from tuneplan.units import format_count, format_gb

if TYPE_CHECKING:
    from tuneplan.contract.tokenised import DataTokenizeAnswer

_SHOWN_BAD_ROWS = 10


def render_shards(answer: DataTokenizeAnswer, page: Page) -> str:
    """What was written, from what, what was cut, and how to load it."""
    blocks = [facts(_facts(answer)), paragraph(_how_to_load(answer))]
    bad = sum(answer.bad_rows_by_code.values())
    if bad:
        blocks.append(heading(say("Bad rows: {count}, left out", count=format_count(bad))))
        blocks.append(points([_place(row) for row in answer.bad_rows[:_SHOWN_BAD_ROWS]]))
    return render(blocks, page)


def _facts(answer: DataTokenizeAnswer) -> list[tuple[str, str]]:
    settings = answer.settings
    rows = [
        (
            say("Written"),
            say(
                "{output}: {count:,} {count:~shard/shards}, {size}, {format}",
                output=answer.output,
                count=len(answer.shards),
                size=format_gb(answer.size_bytes),
                format=answer.format,
            ),
        ),
        (
            say("Tokenizer"),
            f"{answer.tokenizer.name} ({source_text(answer.tokenizer.source)})",
        ),
        (
            say("Samples"),
            say(
                "{samples} of {files:,} {files:~file/files}, {empty} without a token",
                samples=format_count(answer.num_samples),
                files=len(answer.files),
                empty=format_count(answer.empty_sequences),
            ),
        ),
        (say("Rows"), _rows(answer)),
        (
            say("Tokens"),
            say(
                "{tokens}, {labels} with a label ({learned})",
                tokens=format_count(answer.tokens),
                labels=format_count(answer.labels),
                learned=settings.learned,
            ),
        ),
    ]
    if settings.max_length is not None:
        rows.append((say("Longer samples"), _longer(answer, settings.max_length)))
    if answer.num_resumed:
        found = say(
            "{count:,} {count:~shard was/shards were} there already", count=answer.num_resumed
        )
        rows.append((say("Resumed"), found))
    return rows


def _rows(answer: DataTokenizeAnswer) -> str:
    if answer.packed_efficiency is None:
        return say("{rows}, one sample each", rows=format_count(answer.num_rows))
    return say(
        "{rows} of {length} positions, packed {packing} within each shard; {share:.2%} of them "
        "hold a token",
        rows=format_count(answer.num_rows),
        length=format_count(answer.settings.max_length or 0),
        packing=answer.settings.packing,
        share=answer.packed_efficiency,
    )


def _longer(answer: DataTokenizeAnswer, length: int) -> str:
    if answer.dropped_sequences:
        return say(
            "{count} beyond {length} tokens, left out",
            count=format_count(answer.dropped_sequences),
            length=format_count(length),
        )
    return say(
        "{count} cut to {length}, {tokens} tokens lost",
        count=format_count(answer.cut_sequences),
        length=format_count(length),
        tokens=format_count(answer.cut_tokens),
    )


def _how_to_load(answer: DataTokenizeAnswer) -> str:
    loader = "load_from_disk" if answer.format == "arrow" else "load_dataset"
    return say(
        "Load it with datasets.{loader}({output}).", loader=loader, output=repr(answer.output)
    )


def _place(row: object) -> str:
    path, line = getattr(row, "path", ""), getattr(row, "line", None)
    return f"{path}:{line}: {getattr(row, 'message', '')}"
