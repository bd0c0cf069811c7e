"""Changes of the cards and of the layout over them, as far as the framework can run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuneplan.frameworks.framework import ANY_STRATEGY
from tuneplan.frameworks.registry import find_framework
from tuneplan.language import Message, message
from tuneplan.planner.change import Change, Price
from tuneplan.planner.recipe_changes import ACCUMULATION, ROWS
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Strategy
from tuneplan.units import format_gib

STRATEGY: Final = "parallelism.strategy"
_OFFLOAD: Final = "parallelism.offload"
_TENSOR: Final = "parallelism.tensor"
_TIMES: Final = (2, 4, 8)
_WHOLE: Final = (Strategy.ZERO3, Strategy.FSDP2, Strategy.FSDP)
LAYOUT_NAMES: Final = {
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "fsdp": "FSDP",
    "fsdp2": "FSDP2",
    "hsdp": "HSDP",
}
_SPLITS: Final[Mapping[str, Message]] = {
    "zero1": message("splits_optimizer", "optimizer states, not gradients and weights,"),
    "zero2": message("splits_states", "gradients and optimizer states, not the weights,"),
    **dict.fromkeys(
        ("zero3", "fsdp", "fsdp2"),
        message("splits_all", "weights, gradients and optimizer states"),
    ),
}


def strategies_of(framework: str) -> tuple[Strategy, ...]:
    """The layouts over several cards that a framework can run."""
    return find_framework(framework).strategies


def searched_strategies(framework: str | None, free: tuple[str, ...]) -> tuple[str, ...]:
    """The layouts that are worth a search: ``free``, or all of a framework that has few."""
    own = strategies_of(framework) if framework else ANY_STRATEGY
    return free if own == ANY_STRATEGY else tuple(one.value for one in own)


def whole_split(framework: str) -> str | None:
    """The layout that splits weights, gradients and states; None where the framework has none."""
    has = strategies_of(framework)
    return next((one.value for one in _WHOLE if one in has), None)


def splits_matrices(framework: str) -> bool:
    """Whether the framework can share every matrix between cards (tensor parallelism)."""
    return "tensor" in find_framework(framework).degrees


def sharding(strategy: str, cards: int) -> Change:
    """A layout that splits more."""
    return Change(
        name="zero3" if strategy in _WHOLE else strategy,
        kind="sharding",
        message=message(
            "change_layout",
            "{layout}: {what} split over the {count} cards",
            layout=LAYOUT_NAMES[strategy],
            what=_SPLITS[strategy],
            count=cards,
        ),
        settings={STRATEGY: strategy},
    )


def tensor_parallel(resolved: Resolved, degree: int) -> Change:
    """Every matrix shared by more of the cards there are, and the batch in all kept."""
    ranks = resolved.parallelism.data * resolved.parallelism.tensor // degree
    return Change(
        name=f"tensor_{degree}",
        kind="sharding",
        message=message(
            "change_tensor",
            "every matrix split over {degree} of the cards (tensor parallelism)",
            degree=degree,
        ),
        settings={_TENSOR: degree, **same_step(resolved, ranks)},
    )


def stronger_layouts(resolved: Resolved) -> tuple[Change, ...]:
    """Layouts of the same cards that split more than now, the mildest first."""
    now, framework = resolved.parallelism, resolved.recipe.framework
    cards = now.world_size
    if cards == 1:
        return ()
    has, whole = strategies_of(framework), whole_split(framework)
    if now.strategy is Strategy.HSDP:
        whole = Strategy.FSDP2.value
    shared = Strategy.ZERO2 if Strategy.ZERO2 in has else Strategy.ZERO1
    found = []
    if shared in has and _SPLIT_SO_FAR[now.strategy] < _SPLIT_SO_FAR[shared]:
        found.append(sharding(shared.value, cards))
    if whole is not None and _SPLIT_SO_FAR[now.strategy] < _ALL_SPLIT:
        found.append(sharding(whole, cards))
    if whole is None and splits_matrices(framework):
        found += [
            tensor_parallel(resolved, now.tensor * times)
            for times in _TIMES
            if now.data % times == 0
        ]
    return tuple(found)


_ALL_SPLIT: Final = 4
_SPLIT_SO_FAR: Final[Mapping[Strategy, int]] = {
    Strategy.SINGLE: 0,
    Strategy.DEVICE_MAP: 0,
    Strategy.DDP: 0,
    Strategy.ZERO1: 1,
    Strategy.ZERO2: 2,
    Strategy.HSDP: 3,
    **dict.fromkeys(_WHOLE, _ALL_SPLIT),
}


def split_of(resolved: Resolved) -> str | None:
    """The layout in which more cards would share everything: the one that is, where it does."""
    now = resolved.parallelism.strategy
    if _SPLIT_SO_FAR[now] >= _SPLIT_SO_FAR[Strategy.HSDP]:
        return now.value
    return whole_split(resolved.recipe.framework)


def unsplit() -> Change:
    """One card without an engine that shards."""
    return Change(
        name="single",
        kind="single",
        message=message("change_unsplit", "no ZeRO or FSDP: one card has nobody to share with"),
        settings={STRATEGY: "single", _OFFLOAD: None},
    )


def whole_weights() -> Change:
    """Replicas in place of shards."""
    return Change(
        name="ddp",
        kind="ddp",
        message=message("change_ddp", "whole weights on each card (DDP): less is exchanged"),
        settings={STRATEGY: "ddp", _OFFLOAD: None},
    )


def no_offload() -> Change:
    """Everything on the cards."""
    return Change(
        name="no_offload",
        kind="no_offload",
        message=message("change_no_offload", "keep everything on the cards (no offload)"),
        settings={_OFFLOAD: "none"},
    )


def offload(strategy: str, what: str) -> Change:
    """``what`` is ``optimizer`` or ``params``, as the job file has it."""
    words = {
        "optimizer": message("offload_optimizer", "optimizer states"),
        "params": message("offload_params", "parameters and optimizer states"),
    }
    return Change(
        name=f"offload_{what}",
        kind="offload",
        message=message(
            "change_offload",
            "{what} in main memory ({layout} with offload: {offload})",
            what=words[what],
            layout=LAYOUT_NAMES[strategy],
            offload=what,
        ),
        price=Price.SPEED,
        settings={STRATEGY: strategy, _OFFLOAD: what},
    )


def one_card(resolved: Resolved, count: int) -> Change:
    """One card of several, and about the same batch in all."""
    settings = {**_count(1, 1), STRATEGY: None, _OFFLOAD: None, **same_step(resolved, 1)}
    return Change(
        name="one_card",
        kind="fewer_cards",
        message=message("change_one_card", "one card instead of {count}", count=count),
        settings=settings,
    )


def fewer_cards(resolved: Resolved, fewer: int, count: int) -> Change:
    """Some of the cards, in one machine, and about the same batch in all."""
    return Change(
        name=f"cards_{fewer}",
        kind="fewer_cards",
        message=message(
            "change_fewer_cards", "{fewer} cards instead of {count}", fewer=fewer, count=count
        ),
        settings={**_count(1, fewer), **same_step(resolved, _data_ranks(resolved, fewer))},
    )


def more_cards(resolved: Resolved, nodes: int, per_node: int) -> Change:
    """More of the same cards with everything split over them, and about the same batch in all."""
    total, count = nodes * per_node, resolved.parallelism.world_size
    strategy = split_of(resolved)
    settings: dict[str, Any] = _count(nodes, per_node)
    layout: Message | str = message("split_by_tensor", "tensor parallelism")
    if strategy is not None:
        settings[STRATEGY] = strategy
        settings |= same_step(resolved, _data_ranks(resolved, total))
        layout = LAYOUT_NAMES[strategy]
    else:
        settings[_TENSOR] = resolved.parallelism.tensor * (total // count)
    grows = batch_grows(resolved, settings, total)
    text = message(
        "change_count",
        "{total} cards instead of {count}, everything split over them ({layout})",
        total=total, count=count, layout=layout,
    )  # fmt: skip
    if grows > 1.0:
        text = message(
            "change_count_grown",
            "{total} cards instead of {count}, everything split over them ({layout}), and "
            "{times:.3g} times the batch in all",
            total=total, count=count, layout=layout, times=grows,
        )  # fmt: skip
    return Change(
        name=f"cards_{total}",
        kind="more_cards",
        message=text,
        price=Price.MONEY,
        settings=settings,
    )


def batch_grows(resolved: Resolved, settings: Mapping[str, Any], cards: int) -> float:
    """How many times the samples of a step a change of the cards leaves."""
    if _TENSOR in settings:
        return 1.0
    now = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
    return float(settings[ACCUMULATION] * _data_ranks(resolved, cards) / now)


def other_card(name: str, capacity_bytes: int) -> Change:
    """The same job on another card."""
    return Change(
        name=f"card {name}",
        kind="larger_card",
        message=message(
            "change_card",
            "a larger card: {name} ({size})",
            name=name,
            size=format_gib(capacity_bytes),
        ),
        price=Price.MONEY,
        settings={"hardware.accelerator": name},
        note=message("change_card_note", "other hardware"),
    )


def same_step(resolved: Resolved, data_ranks: int) -> dict[str, Any]:
    """Accumulation on another number of replicas, so that a step sees about the same samples."""
    now = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
    return {
        ROWS: resolved.recipe.per_device_train_batch_size,
        ACCUMULATION: max(1, round(now / data_ranks)),
    }


def _data_ranks(resolved: Resolved, cards: int) -> int:
    """Replicas on so many cards with the degrees as they are."""
    now = resolved.parallelism
    return max(1, cards // (now.tensor * now.pipeline * now.context))


def _count(nodes: int, per_node: int) -> dict[str, Any]:
    return {"hardware.num_nodes": nodes, "hardware.accelerators_per_node": per_node}
