"""Other hardware as a cure: more cards of the kind, or the smallest larger one that suffices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.errors import InputError
from tuneplan.language import message
from tuneplan.planner.change import Change, Lever, Price, outside_job
from tuneplan.planner.layout_changes import batch_grows, more_cards, other_card
from tuneplan.planner.oom_situation import Situation
from tuneplan.spec.hardware import Accelerator

_TIMES: Final = (2, 4, 8)
_TRIED: Final = 6  # larger cards whose cost is compared


def more_cards_lever(at: Situation) -> Lever | None:
    """Twice, four or eight times as many, with everything split over them.

    Where the global batch is stated and its accumulation cannot give way, there are none: the job
    would be refused.
    """
    cluster = at.resolved.cluster
    if cluster is None:
        return None
    count = cluster.num_accelerators
    room = max(cluster.accelerators_per_node, cluster.accelerator.accelerators_per_node)
    levels = []
    for times in _TIMES:
        total = count * times
        if cluster.num_nodes == 1 and total <= room:
            nodes, per_node = 1, total
        elif total % room == 0:
            nodes, per_node = total // room, room
        else:
            continue
        change = more_cards(at.resolved, nodes, per_node)
        if at.job.recipe.training.global_batch_size is None or _keeps_batch(at, change, total):
            levels.append(change)
    return Lever(levels=tuple(levels)) if levels else None


def _keeps_batch(at: Situation, change: Change, total: int) -> bool:
    return batch_grows(at.resolved, change.settings, total) == 1.0


def larger_card_lever(at: Situation) -> Lever | None:
    """The card with more memory that costs least, among the smallest ones that suffice."""
    capacity, limit = at.capacity_bytes, at.limit_bytes
    if capacity is None or limit is None:
        return None
    fitting: list[tuple[float, int, str, Change]] = []
    for accelerator in _larger(at, capacity):
        change = other_card(accelerator.name, accelerator.capacity_bytes)
        if not _suffices(at, change, accelerator):
            continue
        cost = _cost(at, change)
        fitting.append((cost, accelerator.capacity_bytes, accelerator.name, change))
        if len(fitting) == _TRIED:
            break
    if fitting:
        return Lever(levels=(min(fitting, key=_place)[3],))
    text = message("change_card_none", "a larger card")
    because = message(
        "no_card_is_enough", "no card of the catalogue is enough for this job as it is"
    )
    change = outside_job("larger_card", text, price=Price.MONEY)
    return Lever(levels=(change,), cannot=because)


def _place(found: tuple[float, int, str, Change]) -> tuple[float, int, str]:
    return found[:3]


def _larger(at: Situation, capacity: int) -> Iterator[Accelerator]:
    """Cards of the same maker with more memory that somebody offers, smallest first."""
    now = at.resolved.accelerator
    vendor = now.vendor if now else "NVIDIA"
    cards = [
        one
        for one in at.sources.accelerators.accelerators
        if one.vendor == vendor
        and one.capacity_bytes > 1.05 * capacity
        and at.sources.offers.of(one.name)
    ]
    yield from sorted(cards, key=lambda one: (one.capacity_bytes, one.name))


def _suffices(at: Situation, change: Change, accelerator: Accelerator) -> bool:
    try:
        after = at.after(change.applied(at.job))
    except InputError:
        return False
    capacity = accelerator.capacity_bytes
    return at.suffices(after, capacity) and at.suffices(at.on_card(accelerator), capacity)


def _cost(at: Situation, change: Change) -> float:
    """In the currency of the answers; without a known cost, last."""
    cost = at.estimate(change.applied(at.job)).cost
    return float(cost.total.likely.amount) if cost else float("inf")
