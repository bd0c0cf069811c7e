"""Other hardware as a cure: more cards of the kind, or the smallest larger one that suffices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from tuneplan.errors import InputError
from tuneplan.language import message
from tuneplan.planner.oom_changes import Change, Lever, Price, sharding_of
from tuneplan.planner.oom_situation import Situation
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.stated import StatedJob
from tuneplan.units import format_gib

_TIMES: Final = (2, 4, 8)
_TRIED: Final = 6  # larger cards whose cost is compared


def more_cards(at: Situation) -> Lever | None:
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
        if at.job.recipe.training.global_batch_size is None or _keeps_batch(at, times):
            levels.append(_more_of_them(at, times, nodes, per_node))
    return Lever(name="more_cards", levels=tuple(levels)) if levels else None


def _more_of_them(at: Situation, times: int, nodes: int, per_node: int) -> Change:
    strategy, steps = sharding_of(at), at.resolved.recipe.gradient_accumulation_steps
    keeps, total = _keeps_batch(at, times), nodes * per_node
    text = message(
        "change_count",
        "{total} cards in place of {count}, everything split over them ({strategy})",
        total=total,
        count=total // times,
        strategy=strategy,
    )
    grown = message(
        "change_count_grown",
        "{total} cards in place of {count}, everything split over them ({strategy}), and {times} "
        "times the batch in all",
        total=total,
        count=total // times,
        strategy=strategy,
        times=times,
    )
    settings: dict[str, Any] = {
        "hardware.num_nodes": nodes,
        "hardware.accelerators_per_node": per_node,
        "parallelism.strategy": strategy,
    }
    if keeps and steps > 1 and at.job.recipe.training.global_batch_size is None:
        settings["training.gradient_accumulation_steps"] = steps // times
    return Change(
        code="more_cards",
        text=text if keeps else grown,
        price=Price.MONEY,
        settings=settings,
        apply=_with_count(at, nodes, per_node, strategy),
    )


def _keeps_batch(at: Situation, times: int) -> bool:
    """Whether so many times as many cards can share the batch by accumulating less."""
    return at.resolved.recipe.gradient_accumulation_steps % times == 0


def _with_count(
    at: Situation, nodes: int, per_node: int, strategy: str
) -> Callable[[StatedJob], StatedJob]:
    """The same global batch where accumulation can give way."""
    cluster, recipe = at.resolved.cluster, at.resolved.recipe
    times = nodes * per_node // (cluster.num_accelerators if cluster else 1)
    steps = recipe.gradient_accumulation_steps

    def apply(job: StatedJob) -> StatedJob:
        hardware = replace(job.hardware, num_nodes=nodes, accelerators_per_node=(per_node,))
        parallelism = replace(job.recipe.parallelism, strategy=strategy)
        training = job.recipe.training
        if _keeps_batch(at, times) and training.global_batch_size is None:
            training = replace(training, gradient_accumulation_steps=steps // times)
        return replace(
            job,
            hardware=hardware,
            recipe=replace(job.recipe, parallelism=parallelism, training=training),
        )

    return apply


def larger_card(at: Situation) -> Lever | None:
    """The card with more memory that costs least, among the smallest ones that suffice."""
    capacity, limit = at.capacity_bytes, at.limit_bytes
    if capacity is None or limit is None:
        return None
    fitting: list[tuple[float, int, str, Change]] = []
    for accelerator in _larger(at, capacity):
        change = _card_change(accelerator)
        if not _suffices(at, change, accelerator):
            continue
        cost = _cost(at, change)
        fitting.append((cost, accelerator.capacity_bytes, accelerator.name, change))
        if len(fitting) == _TRIED:
            break
    if fitting:
        return Lever(name="larger_card", levels=(min(fitting)[3],))
    text = message("change_card_none", "a larger card")
    because = message(
        "no_card_is_enough", "no card of the catalogue is enough for this job as it is"
    )
    change = Change(code="larger_card", text=text, price=Price.MONEY)
    return Lever(name="larger_card", levels=(change,), cannot=because)


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


def _card_change(accelerator: Accelerator) -> Change:
    def apply(job: StatedJob) -> StatedJob:
        return replace(job, hardware=replace(job.hardware, accelerator=(accelerator.name,)))

    return Change(
        code="larger_card",
        text=message(
            "change_card",
            "{name} ({size}) in place of this card",
            name=accelerator.name,
            size=format_gib(accelerator.capacity_bytes),
        ),
        price=Price.MONEY,
        settings={"hardware.accelerator": accelerator.name},
        apply=apply,
    )


def _suffices(at: Situation, change: Change, accelerator: Accelerator) -> bool:
    assert change.apply is not None  # noqa: S101 - made above
    try:
        after = at.after(change.apply(at.job))
    except InputError:
        return False
    limit = accelerator.capacity_bytes * (1 - at.job.limits.headroom_fraction)
    return after.likely <= limit


def _cost(at: Situation, change: Change) -> float:
    """In the currency of the answers; without a known cost, last."""
    assert change.apply is not None  # noqa: S101 - made above
    cost = at.estimate(change.apply(at.job)).cost
    return float(cost.total.likely.amount) if cost else float("inf")
