"""The profile of a data set as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.language import say
from tuneplan.report.labels import source_text
from tuneplan.report.profile_lengths import (
    at_max_length,
    costs,
    packing_title,
    plain_table,
    problems,
    ways_of_packing,
)
from tuneplan.units import format_count, format_gb

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tuneplan.planner.price_lengths import LengthPrice
    from tuneplan.spec.answer import Estimate
    from tuneplan.tokens.profile import DataProfile, PictureFacts

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_SHOWN_BAD_ROWS: Final = 10


def render_profile(
    profile: DataProfile,
    prices: Sequence[LengthPrice] = (),
    *,
    width: int = 80,
    colors: bool = False,
) -> str:
    """Text of at most ``width`` columns: totals, lengths, what each length does, what is wrong.

    ``prices`` say what lengths cost on a job.
    """
    from rich.console import Console

    console = Console(
        width=width,
        force_terminal=colors,
        no_color=not colors,
        color_system="auto" if colors else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        for part in _parts(profile, prices, width):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _parts(profile: DataProfile, prices: Sequence[LengthPrice], width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [_totals(profile), "", _heading(say("Length in tokens"))]
    parts += [_quantiles(profile), ""]
    parts += [_histogram(profile, width), "", _heading(_length_title(profile))]
    parts += [at_max_length(profile), ""]
    parts += [_heading(packing_title(profile)), ways_of_packing(profile), ""]
    parts.append(
        say(
            "Recommended max_length: {length} ({reason}).",
            length=format_count(profile.recommended.max_length),
            reason=profile.recommended.reason,
        )
    )
    parts += [
        say("  or {length}: {reason}", length=format_count(one.max_length), reason=one.reason)
        for one in profile.recommended.alternatives
    ]
    parts += ["", _heading(say("What a length costs, one epoch")), costs(profile, prices)]
    parts += problems(prices)
    parts += _bad_rows(profile) + _notices(profile) + _assumptions(profile)
    return parts


def _length_title(profile: DataProfile) -> str:
    return say(
        "What max_length does (padding: batches of {count} samples)",
        count=profile.per_device_train_batch_size,
    )


def _heading(text: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style="bold")


def _grid() -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _totals(profile: DataProfile) -> Table:
    table = _grid()
    for file in profile.files:
        rows = say(
            "{good} rows, {bad} bad, {blank} blank lines; {format}, {shape}, {size}",
            good=format_count(file.rows_ok),
            bad=format_count(file.rows_bad),
            blank=format_count(file.blank_lines),
            format=file.format,
            shape=" + ".join(file.columns) or file.shape or say("unknown layout"),
            size=format_gb(file.size_bytes),
        )
        table.add_row(_shortened(file.path), rows)
    table.add_row(
        say("Tokenizer"), f"{profile.tokenizer.name} ({source_text(profile.tokenizer.source)})"
    )
    table.add_row(say("Samples"), _samples(profile))
    table.add_row(say("Tokens"), _tokens(profile.tokens.all))
    table.add_row(
        say("Tokens learned"),
        say(
            "{tokens} ({share:.1%} of all)",
            tokens=_tokens(profile.tokens.trained),
            share=profile.tokens.trained.likely / max(1.0, profile.tokens.all.likely),
        ),
    )
    table.add_row(
        say("On disk"),
        say(
            "{raw} as files, {tokens} as tokens",
            raw=format_gb(profile.storage.raw_bytes),
            tokens=format_gb(profile.storage.tokenised_bytes),
        ),
    )
    if profile.pictures is not None:
        table.add_row(say("Pictures"), _pictures(profile.pictures, profile.tokens.image))
    if profile.tokens_per_s:
        rate = say("{rate} tokens/s", rate=format_count(round(profile.tokens_per_s, -3)))
        table.add_row(say("Counted at"), rate)
    return table


def _pictures(pictures: PictureFacts, tokens: Estimate | None) -> str:
    if tokens is None:
        return say(
            "{count}, {unsized} not counted",
            count=format_count(pictures.count),
            unsized=format_count(pictures.unsized),
        )
    return say(
        "{count}, {tokens} tokens (as {rule} counts them)",
        count=format_count(pictures.count),
        tokens=_tokens(tokens),
        rule=pictures.rule,
    )


def _samples(profile: DataProfile) -> str:
    text = say(
        "{count} ({duplicates} duplicates, {empty} with nothing to learn)",
        count=format_count(profile.num_samples),
        duplicates=(
            say("unknown") if profile.duplicates is None else format_count(profile.duplicates)
        ),
        empty=format_count(profile.empty),
    )
    if profile.sequences_per_sample == 1:
        return text
    pairs = say("preference pairs: each is two sequences, and lengths are those of sequences")
    return f"{text}; {pairs}"


def _tokens(estimate: Estimate) -> str:
    if estimate.low == estimate.high:
        return format_count(estimate.likely)
    return say(
        "{likely} (between {low} and {high})",
        likely=format_count(estimate.likely),
        low=format_count(estimate.low),
        high=format_count(estimate.high),
    )


def _shortened(path: str, width: int = 26) -> str:
    """The end of a path, from the beginning of a name where a whole name fits."""
    if len(path) <= width:
        return path
    end = path[-(width - 1) :]
    return "…" + (end[end.index("/") :] if "/" in end else end)


def _quantiles(profile: DataProfile) -> Table:
    heads = [say("mean"), say("min")]
    values = [profile.length.mean, float(profile.length.min)]
    for quantile, length in profile.length.quantiles.items():
        heads.append(f"P{quantile * 100:.0f}")
        values.append(length)
    table = plain_table(*heads, say("max"))
    table.add_row(*map(format_count, values), format_count(profile.length.max))
    return table


def _histogram(profile: DataProfile, width: int) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    most = max(one.count for one in profile.length.histogram)
    room = max(8, width - 34)
    for one in profile.length.histogram:
        span = f"{format_count(one.low)} - {format_count(one.high - 1)}"
        table.add_row(span, format_count(one.count), bar(one.count / most, room))
    return table


def bar(fraction: float, width: int) -> str:
    """A bar of block characters, exact to an eighth of a column; never empty above zero."""
    eighths = round(fraction * width * 8)
    if fraction > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def _bad_rows(profile: DataProfile) -> list[RenderableType]:
    if not profile.rows_bad:
        return []
    head = say("Bad rows: {count}, left out of every figure", count=format_count(profile.rows_bad))
    table = _grid()
    for row in profile.bad_rows[:_SHOWN_BAD_ROWS]:
        table.add_row(_shortened(row.place), str(row.message))
    more = profile.rows_bad - min(profile.rows_bad, _SHOWN_BAD_ROWS, len(profile.bad_rows))
    if more:
        table.add_row("…", say("{more} more", more=format_count(more)))
    return ["", _heading(head), table]


def _notices(profile: DataProfile) -> list[RenderableType]:
    return [say("Note: {text}", text=one.message) for one in profile.notices]


def _assumptions(profile: DataProfile) -> list[RenderableType]:
    if not profile.assumptions:
        return []
    table = _grid()
    for one in profile.assumptions:
        table.add_row(one.name, say("{value}: {reason}", value=one.value, reason=one.reason))
    return ["", _heading(say("Assumed")), table]
