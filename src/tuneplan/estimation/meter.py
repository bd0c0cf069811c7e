"""What a walk of shadow tensors counts: bytes alive now and at most, and every birth and death."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuneplan.estimation.operations import Number

if TYPE_CHECKING:
    from tuneplan.estimation.shadow import Tensor


class Meter:
    """Bytes alive now and at most; with ``record`` also every birth and death.

    Attributes:
        restarted_at: Number of recorded events when the peak was last restarted.
        events: ``(key, bytes, name)`` of each storage born, bytes negative where it dies.
        marks: Positions in ``events`` that the walk pointed out (``mark``).
        returned_at: Position where the model returns and the loop goes on with the loss.
        handed_on: Key of the gradient that the backward hands on.
        gradients: Positions in ``events`` where gradients of weights are born.
    """

    __slots__ = (
        "current",
        "events",
        "gradients",
        "handed_on",
        "marks",
        "peak",
        "restarted_at",
        "returned_at",
    )

    def __init__(self, *, record: bool = False) -> None:
        self.current: Number = 0.0
        self.peak: Number = 0.0
        self.restarted_at = 0
        self.events: list[tuple[int, float, str]] | None = [] if record else None
        self.marks: list[int] = []
        self.gradients: set[int] = set()
        self.handed_on: int | None = None
        self.returned_at: int | None = None

    def take(self, size: Number) -> None:
        """Count ``size`` more bytes as alive."""
        current = self.current + size
        self.current = current
        if isinstance(current, np.ndarray):
            self.peak = np.maximum(self.peak, current)
        elif current > self.peak:
            self.peak = current

    def give(self, size: Number) -> None:
        """Count ``size`` bytes as free again."""
        self.current = self.current - size

    def restart_peak(self) -> None:
        """Forget the peak so far."""
        self.peak = self.current
        self.restarted_at = len(self.events) if self.events is not None else 0

    def mark(self, position: int | None = None) -> None:
        """Remember a position of the recorded events (by default: here)."""
        if self.events is not None:
            self.marks.append(len(self.events) if position is None else position)

    @property
    def position(self) -> int:
        """Number of recorded events."""
        return len(self.events) if self.events is not None else 0

    def was_alive(self, since: int, size: Number, name: str) -> int:
        """Record that something was there from a position until now; the events that it adds there.

        The peaks are the caller's to correct.
        """
        most = _most(size)
        if self.events is None or most <= 0.0:
            return 0
        key = -1 - since  # no storage has such a key
        self.events.insert(since, (key, most, name))
        self.events.append((key, -most, name))
        return 1

    def end(self, result: Tensor | None) -> None:
        """Remember that a backward ends here, and what it hands on."""
        self.mark()
        self.handed_on = None if result is None else id(result.storage)


class Storage:
    """Some bytes, alive as long as anything refers to them."""

    __slots__ = ("meter", "name", "size")

    def __init__(self, meter: Meter, size: Number, name: str) -> None:
        self.meter = meter
        self.size = size
        self.name = name
        meter.take(size)
        if meter.events is not None:
            meter.events.append((id(self), _most(size), name))

    def __del__(self) -> None:
        self.meter.give(self.size)
        if self.meter.events is not None:
            self.meter.events.append((id(self), -_most(self.size), self.name))


def _most(size: Number) -> float:
    """The largest of several sizes; NumPy would take longer for one than all else here."""
    return float(np.max(size)) if isinstance(size, np.ndarray) else float(size)
