"""Recorded walks as scripts for an allocator: numbered storages that are born and die.

A script plays again with fresh handles, so one walk of a layer stands for all layers of its kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneplan.estimation.blocks import rounded
from tuneplan.estimation.meter import Meter
from tuneplan.frozen import dataclass

Steps = tuple[tuple[int, int], ...]
"""``(slot, bytes)`` for a birth, ``(slot, 0)`` for a death, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one pass of a layer or of the head asks of the allocator.

    Attributes:
        steps: Births and deaths; sizes are rounded to the allocator's blocks.
        first_steps: The same where gradients of weights do not exist yet and the new ones stay.
        num_slots: Slots that a player needs.
        given: Slots that the player fills: the input, and in a backward the arriving gradient.
        output: Slot of what is handed on: the output, or the gradient of the input.
        drops_input: The input is not needed after this pass (its death is not among the steps).
        gradients: Slots of gradients of weights.
        casts: Slots of copies of weights that die here unless autocast keeps them.
        held: Slot that the training loop holds on to (logits).
        left: Slots of what outlives the pass and nobody else lets die: the output of a reentrant
            recomputation, what the graph holds.
        collected: Slots of what the model's forward holds until its outputs die.
        returned: Of the head: number of steps before the model returns.
    """

    steps: Steps
    first_steps: Steps
    num_slots: int
    given: tuple[int, ...]
    output: int | None
    drops_input: bool
    gradients: tuple[int, ...] = ()
    casts: tuple[int, ...] = ()
    held: int | None = None
    left: tuple[int, ...] = ()
    collected: tuple[int, ...] = ()
    returned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Forward and backward of a layer or of the head.

    Attributes:
        backward: None where no gradient passes.
        continues: The backward goes on with the forward's slots; else it computes everything again
            from the layer's input (checkpointing).
    """

    forward: Script
    backward: Script | None
    continues: bool


def record_layer(
    forward: Meter, backward: Meter | None, output_key: int, collected: Sequence[int] = ()
) -> Recording | None:
    """The scripts of one recorded layer; None where nothing was recorded.

    The caller of a layer names its input until the layer returns, and checkpointing until its
    backward returns, so the player decides when the input dies.

    Args:
        forward: Marked at the end of the forward and, after what the model collects died, again;
            without checkpointing also at the end of the backward.
        backward: With checkpointing: marked where something was last kept for the backward, where
            the recomputation was over, and at the end.
        output_key: Of the layer's output among the events.
        collected: Keys of what the model's forward holds until its outputs die.
    """
    if forward.events is None:
        return None
    compiler = _Compiler(forward, keeps_input=True)
    compiler.run(0, forward.marks[0], given=(0,))
    output = compiler.slots[output_key]
    held = tuple(sorted({compiler.slots[key] for key in collected}))
    if backward is not None:
        return Recording(
            forward=compiler.script(output, ends=True, collected=held),
            backward=_recomputation(backward),
            continues=False,
        )
    if len(forward.marks) == 2:
        script = compiler.script(output, ends=True, collected=held)
        return Recording(forward=script, backward=None, continues=True)
    first = compiler.script(output)
    forward_end, begin, end = forward.marks
    compiler.run(forward_end, end, given=(begin,))
    return Recording(
        forward=first,
        backward=compiler.script(compiler.slot_of(forward.handed_on), ends=True),
        continues=True,
    )


def _recomputation(meter: Meter) -> Script:
    last_kept, recomputed, end = meter.marks
    compiler = _Compiler(meter, keeps_input=True)
    compiler.drop_passing(last_kept, recomputed)
    compiler.run(0, end, given=(0, 1))
    return compiler.script(compiler.slot_of(meter.handed_on), ends=True)


def record_head(meter: Meter, held_key: int | None) -> Recording | None:
    """The scripts of the recorded head; marks as for a layer without checkpointing."""
    if meter.events is None:
        return None
    compiler = _Compiler(meter, keeps_input=False)
    compiler.run(0, meter.returned_at or meter.marks[0], given=(0,))
    returned = len(compiler.steps)
    compiler.run(meter.returned_at or meter.marks[0], meter.marks[0])
    held = compiler.slot_of(held_key)
    if len(meter.marks) == 1:
        return Recording(
            forward=compiler.script(None, held, ends=True, returned=returned),
            backward=None,
            continues=True,
        )
    first = compiler.script(None, held, returned=returned)
    begin, end = meter.marks
    compiler.run(begin, end)
    result = compiler.slot_of(meter.handed_on)
    return Recording(forward=first, backward=compiler.script(result, ends=True), continues=True)


class _Compiler:
    """Turns stretches of recorded events into scripts; the first storage is the input, slot 0.

    Attributes:
        slots: Of the storages alive now, by key.
        elsewhere: Slots that other scripts let die.
    """

    def __init__(self, meter: Meter, *, keeps_input: bool) -> None:
        self.events = meter.events or []
        self.births_of_gradients = meter.gradients
        self.slots: dict[int, int] = {}
        self.elsewhere: set[int] = {0} if keeps_input else set()
        self.dropped: set[int] = set()
        self.num_slots = 0
        self.all_gradients: set[int] = set()
        self.input_died = False
        self._restart()

    def _restart(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.given: list[int] = []
        self.gradients: list[int] = []
        self.casts: list[int] = []

    def drop_passing(self, start: int, stop: int) -> None:
        """Leave out what is born and dies between two positions: it is not computed again."""
        born: dict[int, int] = {}
        for position in range(start, stop):
            key, change, _ = self.events[position]
            if change > 0:
                born[key] = position
            elif key in born:
                self.dropped.add(born.pop(key))

    def run(self, start: int, stop: int, given: tuple[int, ...] = ()) -> None:
        """Take in events ``start`` to ``stop``; ``given`` are births that the player makes."""
        for position in range(start, stop):
            key, change, name = self.events[position]
            if change > 0 and position not in self.dropped:
                slot = self.slots[key] = self.num_slots
                self.num_slots += 1
                if position in given:
                    self.given.append(slot)
                    continue
                self.steps.append((slot, rounded(change)))
                if position in self.births_of_gradients:
                    self.gradients.append(slot)
                    self.all_gradients.add(slot)
                elif " weight as " in name:
                    self.casts.append(slot)
            elif change < 0 and key in self.slots:
                slot = self.slots.pop(key)
                self.input_died = self.input_died or slot == 0
                if slot not in self.elsewhere:
                    self.steps.append((slot, 0))

    def slot_of(self, key: int | None) -> int | None:
        """The slot of a storage that is alive."""
        return None if key is None else self.slots[key]

    def script(
        self,
        output: int | None,
        held: int | None = None,
        *,
        ends: bool = False,
        collected: tuple[int, ...] = (),
        returned: int = 0,
    ) -> Script:
        """The script of what was taken in since the last one.

        ``ends`` says that no other follows: what is alive and nobody's dies later.
        """
        self.elsewhere.update(collected)
        self.elsewhere.update(slot for slot in (output, held) if slot is not None)
        left = set(self.slots.values()) - self.all_gradients - self.elsewhere if ends else set()
        dead = {slot for slot, size in self.steps if not size}
        made = Script(
            steps=tuple(self.steps),
            first_steps=tuple(
                step for step in self.steps if step[1] or step[0] not in self.all_gradients
            ),
            num_slots=self.num_slots,
            given=tuple(self.given),
            output=output,
            drops_input=self.input_died,
            gradients=tuple(self.gradients),
            casts=tuple(slot for slot in self.casts if slot in dead),
            held=held,
            left=tuple(sorted(left)),
            collected=collected,
            returned=returned,
        )
        self._restart()
        return made
