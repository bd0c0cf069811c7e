"""What a trace sees, as plain values: no PyTorch is needed to read them."""

from __future__ import annotations

from array import array
from dataclasses import field
from typing import Final

from tuneplan.frozen import dataclass

NEVER: Final = -2  # birth of a block that was never there


@dataclass(slots=True)
class Block:
    """One storage: who made it, what it holds, when it lived (event indices).

    ``stream`` is the CUDA stream that it is made on: each has pools of its own.
    """

    size: int
    operation: str
    module: str
    dtype: str
    shape: tuple[int, ...]
    phase: str
    born: int
    step: int
    kind: str = ""
    died: int = -1
    stream: int = 0


@dataclass(slots=True)
class Recording:
    """Everything that was seen.

    Attributes:
        blocks: Every storage, by id.
        events: ``id`` where it was made, ``~id`` where it died, in order.
        marks: ``(event index, phase, step)``: where each phase begins; ``other`` is the end.
        operations: Calls, FLOPs and bytes of each operation in the steps, without loading.
        notes: What did not run as on a GPU, by name, with a count.
        stand_ins: What ran in place of code that cannot run here, and after which source.
        emptied: Event indices before which the program gave cached memory back to the card.
    """

    blocks: list[Block] = field(default_factory=list)
    events: array[int] = field(default_factory=lambda: array("q"))
    marks: list[tuple[int, str, int]] = field(default_factory=list)
    operations: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    stand_ins: dict[str, str] = field(default_factory=dict)
    emptied: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Index of the first event after the last step: from there on everything is torn down."""
        return next((at for at, phase, _ in self.marks if phase == "other"), len(self.events))
