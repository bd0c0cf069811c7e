"""A change of a job, as `plan`, `check` and `oom` know it: keys of the job file said anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.language import Message
from tuneplan.planner.changing import with_settings
from tuneplan.spec.stated import StatedJob


class Price(IntEnum):
    """What a change asks for, cheapest first."""

    NOTHING = 0  # the same run, at most slower
    SPEED = 1  # the host does a part
    NUMERICS = 2  # the same run with coarser states
    DATA = 3  # less of the data is seen
    METHOD = 4  # something else is trained
    MONEY = 5  # other hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        name: Stable, e.g. ``micro_batch_4``.
        kind: The same for changes of which only one can be made, e.g. ``smaller_batch``.
        settings: Keys of the job file and what they would say (None = blank); empty where no job
            key says it.
        note: What it changes besides memory, time and cost; None where that is nothing.
        estimated: Whether an estimate of the changed job tells what the change does.
        saves_bytes: Where no estimate tells: what it saves on the card.
    """

    name: str
    kind: str
    message: Message
    price: Price = Price.NOTHING
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: Message | None = None
    estimated: bool = True
    saves_bytes: float | None = None

    @property
    def changes_job(self) -> bool:
        """Whether there is a changed job to estimate."""
        return bool(self.settings) and self.estimated

    def applied(self, job: StatedJob) -> StatedJob:
        """The changed job."""
        return with_settings(job, self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """Changes of one kind, the mildest first, of which one is chosen.

    Attributes:
        cannot: Why none of them can help; then ``levels`` holds the one that is spoken of.
    """

    levels: tuple[Change, ...]
    cannot: Message | None = None

    @property
    def kind(self) -> str:
        """The kind of its changes."""
        return self.levels[0].kind


def outside_job(
    kind: str,
    text: Message,
    *,
    price: Price = Price.NOTHING,
    saves_bytes: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Change:
    """A change that no estimate of a changed job tells about, with its own sum or none."""
    return Change(
        name=kind,
        kind=kind,
        message=text,
        price=price,
        settings=settings or {},
        estimated=False,
        saves_bytes=saves_bytes,
    )
