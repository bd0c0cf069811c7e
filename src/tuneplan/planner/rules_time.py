"""What people say of speed, beside the time of this very job both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.errors import InputError
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.changing import with_settings
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import StatedJob, StatedParallelism

_H100: Final = "NVIDIA H100 SXM"
_A100: Final = "NVIDIA A100 SXM 80GB"
_SEVERAL: Final = 4  # cards, where a rule about several is asked of a job on one


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRule:
    """A saying about time.

    Attributes:
        said: Low and high of what is said: a share (0.2 = a fifth) or a factor.
        ours: The same figure for this job; None where we have no answer.
        is_factor: Whether the figures are factors, not shares.
        why: What ours depends on, or why there is none.
    """

    code: str
    statement: Message
    said: tuple[float, float]
    ours: float | None
    is_factor: bool
    why: Message


def time_rules(job: StatedJob, now: JobEstimate, sources: Sources) -> tuple[TimeRule, ...]:
    """Each saying for this job; none where the time is not known (no card)."""
    if now.time is None:
        return ()
    asking = _Asking(job=job, now=now, sources=sources)
    return tuple(_rules(asking))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    job: StatedJob
    now: JobEstimate
    sources: Sources

    def step_s(self, settings: Mapping[str, Any], **layout: Any) -> float:
        """Likely seconds of an optimizer step under other settings.

        Raises:
            InputError: There is no such configuration.
        """
        changed = with_settings(self.job, {**self._same_batch(), **settings})
        if layout:
            stated = replace(changed.recipe, parallelism=StatedParallelism(**layout))
            changed = replace(changed, recipe=stated)
        found = estimate_job(changed, self.sources, dataset=self.now.resolved.dataset)
        if found.time is None:
            raise InputError(message("time_not_known", "the time is not known"))
        return found.time.step.step_s.likely

    def _same_batch(self) -> dict[str, Any]:
        recipe = self.now.resolved.recipe
        return {
            "training.per_device_train_batch_size": recipe.per_device_train_batch_size,
            "training.gradient_accumulation_steps": recipe.gradient_accumulation_steps,
        }

    @property
    def cards(self) -> int:
        """Of a machine, at least several."""
        cluster = self.now.resolved.cluster
        return max(_SEVERAL, cluster.accelerators_per_node if cluster else 1)


def _rules(asking: _Asking) -> Iterator[TimeRule]:
    yield _told(
        "checkpointing_fifth",
        message("checkpointing_fifth", "gradient checkpointing costs a fifth of the time"),
        (0.2, 0.2),
        lambda: (
            1
            - asking.step_s({"training.gradient_checkpointing": False})
            / asking.step_s({"training.gradient_checkpointing": True})
        ),
        message(
            "checkpointing_fifth_why",
            "the forward pass is done twice: 8 operations a parameter and token instead of 6 in "
            "full training (a quarter of the time), 6 instead of 4 with a frozen base (a third); "
            "less where attention, the loss or waiting take time of their own",
        ),
    )
    one = {"hardware.num_nodes": 1, "hardware.accelerators_per_node": 1}
    yield _told(
        "h100_twice_a100",
        message("h100_twice_a100", "an H100 is twice as fast as an A100 in bf16"),
        (2.0, 2.0),
        lambda: (
            asking.step_s({**one, "hardware.accelerator": _A100})
            / asking.step_s({**one, "hardware.accelerator": _H100})
        ),
        message(
            "h100_twice_a100_why",
            "the datasheets say 3.2 times the arithmetic and 1.6 times the bandwidth; how much of "
            "each counts depends on the job",
        ),
        is_factor=True,
    )
    several = {
        "hardware.num_nodes": 1,
        "hardware.accelerators_per_node": asking.cards,
        "hardware.interconnect": "pcie",
    }
    depends = message(
        "exposed_why",
        "what is not hidden behind the computing of a micro-batch shows: the larger the "
        "micro-batch, the less of it ({cards} cards here)",
        cards=asking.cards,
    )
    yield _told(
        "zero3_pcie",
        message("zero3_pcie", "ZeRO-3 over PCIe is 25 to 35 % slower"),
        (0.25, 0.35),
        lambda: (
            asking.step_s(several, strategy="zero3") / asking.step_s(several, strategy="ddp") - 1
        ),
        depends,
    )
    yield _told(
        "cpu_offload",
        message("cpu_offload", "offloading the optimizer to the CPU is 40 % slower"),
        (0.4, 0.4),
        lambda: (
            asking.step_s(several, strategy="zero2", offload="optimizer")
            / asking.step_s(several, strategy="zero2")
            - 1
        ),
        message(
            "cpu_offload_why",
            "the states and gradients of the weights that train go over the bus: much in full "
            "training, next to nothing with adapters ({cards} cards here)",
            cards=asking.cards,
        ),
    )
    yield _told(
        "more_cards",
        message("more_cards", "twice the cards, half the card-hours"),
        (0.5, 0.5),
        lambda: _card_hours_of_twice_the_cards(asking),
        message(
            "more_cards_why",
            "more cards shorten the clock, not the card-hours: 4 cards for 6 h are as many as 8 "
            "for 3 h, and communication comes on top",
        ),
        is_factor=True,
    )


def _card_hours_of_twice_the_cards(asking: _Asking) -> float:
    """Card-hours of a sample on twice the cards over those on the cards of now."""
    cluster = asking.now.resolved.cluster
    per_node = cluster.accelerators_per_node if cluster else 1
    time = asking.now.time
    one = time.step.step_s.likely if time else 1.0
    # Each card has the same micro-batches, so a step has twice the samples.
    return asking.step_s({"hardware.accelerators_per_node": 2 * per_node}) / one


def _told(
    code: str,
    statement: Message,
    said: tuple[float, float],
    ours: Any,
    why: Message,
    *,
    is_factor: bool = False,
) -> TimeRule:
    try:
        found: float | None = ours()
    except InputError as error:
        found, why = None, error.mistakes[0].message
    return TimeRule(
        code=code, statement=statement, said=said, ours=found, is_factor=is_factor, why=why
    )
