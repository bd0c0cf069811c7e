"""What lengths do to a data set, as tables for a terminal: truncation, packing, padding, price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.language import say
from tuneplan.report.verdict import verdict_text
from tuneplan.units import HOUR_S, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tuneplan.planner.price_lengths import LengthPrice
    from tuneplan.tokens.profile import Alternative, AtMaxLength, DataProfile, Recommendation

# Names of programs and algorithms, the same in every language.
WAYS: Final = {
    "best_fit_decreasing": "best fit decreasing",
    "wrapped": "wrapped",
    "torchtune_split": "torchtune, split",
    "first_fit": "first fit",
    "trl_bfd": "TRL bfd",
    "trl_bfd_split": "TRL bfd_split",
    "trl_wrapped": "TRL wrapped",
    "llamafactory": "LLaMA-Factory",
    "torchtune": "torchtune",
    "axolotl": "Axolotl",
}


def plain_table(*heads: str) -> Table:
    """A table without lines, all columns to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for head in heads:
        table.add_column(head, justify="right")
    return table


def at_max_length(profile: DataProfile) -> Table:
    """What each length cuts off, and how full batches get."""
    table = plain_table(
        say("max_length"),
        say("cut\nsamples"),
        say("cut\ntokens"),
        say("packed\nbest fit"),
        say("packed\nwrapped"),
        say("padding\nlongest"),
        say("padding\ngrouped"),
        say("padding\nfixed"),
    )
    for one in profile.at_max_length:
        table.add_row(
            format_count(one.max_length),
            f"{one.truncated_samples_fraction:.1%}",
            f"{one.truncated_tokens_fraction:.1%}",
            f"{one.packed_efficiency['best_fit_decreasing']:.1%}",
            f"{one.packed_efficiency['wrapped']:.1%}",
            f"{one.padding_fraction['longest']:.1%}",
            f"{one.padding_fraction['grouped']:.1%}",
            f"{one.padding_fraction['max_length']:.1%}",
        )
    return table


def _recommended_facts(profile: DataProfile) -> AtMaxLength:
    wanted = profile.recommended.max_length
    return next(one for one in profile.at_max_length if one.max_length == wanted)


def packing_title(profile: DataProfile) -> str:
    """The heading of ``ways_of_packing``."""
    return say(
        "How packed rows fill at max_length {length}",
        length=format_count(profile.recommended.max_length),
    )


def ways_of_packing(profile: DataProfile) -> Table:
    """Ways of packing in two blocks beside each other."""
    at = _recommended_facts(profile)
    ways = [name for name in at.packed_efficiency if name not in ("wrapped", "torchtune_split")]
    heads = (say("packing"), say("filled"), say("tokens\nlost"))
    table = plain_table(*heads, *heads)
    for column in (0, 3):
        table.columns[column].justify = "left"
    half = -(-len(ways) // 2)
    for number in range(half):
        cells: list[str] = []
        for name in ways[number::half][:2]:
            lost = at.packed_lost_tokens_fraction.get(name, 0.0)
            cells += [WAYS.get(name, name), f"{at.packed_efficiency[name]:.1%}", f"{lost:.1%}"]
        table.add_row(*cells)
    return table


def costs(profile: DataProfile, prices: Sequence[LengthPrice]) -> Table:
    """Computed tokens of each length and, with a job, hours and money."""
    heads = [
        say("max_length"),
        say("computed,\npadded"),
        say("computed,\npacked"),
        say("largest\nbatch"),
    ]
    with_job = any(not price.problem for price in prices)
    if with_job:
        heads += [say("hours of\nthe job"), say("cost"), say("fits")]
    table = plain_table(*heads)
    known = {price.max_length: price for price in prices}
    found = profile.recommended
    rows: list[Recommendation | Alternative] = [found, *found.alternatives]
    for one in sorted(rows, key=lambda one: one.max_length):
        cells = [
            format_count(one.max_length),
            format_count(round(one.computed_tokens.get("longest", 0.0))),
            format_count(round(one.computed_tokens.get("packed", 0.0))),
            format_count(_largest_batch(profile, one.max_length)),
        ]
        if with_job:
            cells += _priced(known.get(one.max_length))
        table.add_row(*cells)
    return table


def _largest_batch(profile: DataProfile, max_length: int) -> int:
    sequences = profile.per_device_train_batch_size * profile.sequences_per_sample
    return sequences * min(max_length, profile.length.max)


def _priced(price: LengthPrice | None) -> list[str]:
    if price is None or price.problem:
        return ["-", "-", "-"]
    hours = f"{price.total_s.likely / HOUR_S:,.2f}" if price.total_s else "-"
    cost = "-"
    if price.cost is not None:
        likely = price.cost.total.likely
        cost = f"{likely.amount:,.2f} {likely.currency}"
    return [hours, cost, verdict_text(price.verdict.value) if price.verdict else "-"]


def problems(prices: Sequence[LengthPrice]) -> list[RenderableType]:
    """Lengths at which the job cannot be estimated, and why."""
    return [
        say("  {length}: {problem}", length=format_count(price.max_length), problem=price.problem)
        for price in prices
        if price.problem
    ]
