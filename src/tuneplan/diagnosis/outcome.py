"""What a job comes to, and what it would come to with one thing changed: plain figures."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.language import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The likely figures of an estimate; None where something is not known.

    Attributes:
        peak_bytes: Allocated, of the worst rank.
        needed_bytes: What decides the fit; ``capacity_bytes`` is what it is held against.
        probability_fits: None without a card.
        fits: The verdict is ``fits``; ``False`` too where it is ``tight``.
        train_s, eval_s, checkpoint_s, total_s: Of the whole run.
        step_s: Of an optimizer step.
        positions_per_s: Of the whole job, padding included.
        padding_fraction: Share of the positions that hold no token.
        accelerator_hours: Of all cards.
        cost: In ``currency``.
        num_trained: Parameters that are trained.
    """

    peak_bytes: float
    num_trained: int
    accelerators: int = 1
    needed_bytes: float | None = None
    capacity_bytes: int | None = None
    probability_fits: float | None = None
    fits: bool = False
    does_not_fit: bool = False
    steps: int | None = None
    train_s: float | None = None
    eval_s: float | None = None
    checkpoint_s: float | None = None
    total_s: float | None = None
    step_s: float | None = None
    positions_per_s: float | None = None
    padding_fraction: float = 0.0
    accelerator_hours: float | None = None
    cost: Decimal | None = None
    currency: str | None = None

    @property
    def free_fraction(self) -> float | None:
        """Share of the card that stays free at the likely need; negative where it does not fit."""
        if self.needed_bytes is None or not self.capacity_bytes:
            return None
        return 1.0 - self.needed_bytes / self.capacity_bytes

    def keeps(self, headroom_fraction: float) -> bool:
        """Whether this share of the card stays free; without a card there is nothing to keep."""
        free = self.free_fraction
        return free is None or free >= headroom_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The job with one thing changed.

    Attributes:
        name: Stable, e.g. ``packing``.
        settings: Keys of the job file and what they say then.
    """

    name: str
    change: Message
    settings: dict[str, Any]
    outcome: Outcome
