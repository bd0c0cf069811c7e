"""Where and when tasks run, and the calendar that keeps machines from being overbooked.

Times are whole minutes: durations are rounded up, so that no task begins before another has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.portfolio import Machine, Portfolio, Task, Way
from tuneplan.units import HOUR_S

UNIT_S: Final = 60.0
_PER_HOUR: Final = round(HOUR_S / UNIT_S)
_ATTEMPTS: Final = 5_000  # to put tasks on machines alike in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A task on its machines.

    Attributes:
        machines: Their places in the pool, as many as the way asks for.
        start: In minutes; ``end`` likewise.
    """

    task: Task
    way: Way
    machines: tuple[int, ...]
    start: int
    end: int

    @property
    def late(self) -> int:
        """Minutes after its deadline."""
        limit = self.task.deadline_s
        return 0 if limit is None else max(0, self.end - whole_minutes(limit, down=True))


def whole_minutes(seconds: float, *, down: bool = False) -> int:
    """Minutes, up unless ``down``; a hair over a whole one is that one."""
    exact = seconds / UNIT_S
    return math.floor(exact + 1e-6) if down else math.ceil(exact - 1e-6)


def minutes_of(way: Way, part: str = "likely") -> int:
    """How long a way takes, at least one minute."""
    return max(1, whole_minutes(getattr(way.duration_s, part)))


def can_run(way: Way, machine: Machine) -> bool:
    """Whether a machine has the cards, of the kind and with the memory that a way asks for."""
    fits = way.need_bytes is None or way.need_bytes <= machine.memory_bytes
    return fits and machine.accelerator == way.accelerator and machine.cards >= way.cards


def places_for(way: Way, machines: Sequence[Machine]) -> list[int]:
    """Machines that a way can run on; none where there are fewer than it needs."""
    found = [place for place, machine in enumerate(machines) if can_run(way, machine)]
    return found if len(found) >= way.num_machines else []


def cost_on(way: Way, machine: Machine) -> Decimal | None:
    """What a way costs on a machine: its share of the cards for its hours."""
    if machine.price is not None:
        share = Decimal(way.cards) / machine.cards
        return machine.price.amount * share * minutes_of(way) / _PER_HOUR
    return None if way.cost is None else way.cost.amount / way.num_machines


class Calendar:
    """What is booked on each machine."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._booked: list[list[tuple[int, int, int]]] = [[] for _ in machines]

    def earliest(self, place: int, cards: int, minutes: int, not_before: int) -> int:
        """The first minute from which so many cards are free for so long."""
        machine, booked = self._machines[place], self._booked[place]
        begin = max(not_before, whole_minutes(machine.from_s))
        for start in sorted({begin, *(end for _, end, _ in booked if end > begin)}):
            if self._peak(booked, start, start + minutes) + cards <= machine.cards:
                return start
        return max((end for _, end, _ in booked), default=begin)

    def earliest_together(
        self, places: Sequence[int], cards: int, minutes: int, not_before: int
    ) -> int:
        """The same on several machines at once."""
        start = not_before
        while True:
            later = max(self.earliest(place, cards, minutes, start) for place in places)
            if later == start:
                return start
            start = later

    def book(self, placement: Placement) -> None:
        """Take the cards."""
        for place in placement.machines:
            booking = (placement.start, placement.end, placement.way.cards)
            self._booked[place].append(booking)

    def free(self, placement: Placement) -> None:
        """Give the cards back."""
        for place in placement.machines:
            self._booked[place].remove((placement.start, placement.end, placement.way.cards))

    @staticmethod
    def _peak(booked: Iterable[tuple[int, int, int]], start: int, end: int) -> int:
        """Most cards in use at one time within a stretch."""
        inside = [one for one in booked if one[0] < end and one[1] > start]
        moments = {start, *(begin for begin, _, _ in inside if begin > start)}
        return max(
            sum(cards for begin, stop, cards in inside if begin <= moment < stop)
            for moment in moments
        )


def first_come(portfolio: Portfolio) -> tuple[Placement, ...]:
    """Each task in the order given, none before the one ahead of it begins.

    It takes the way and machine on which it ends first, as a queue without foresight does.
    """
    calendar, placed = Calendar(portfolio.machines), dict[str, Placement]()
    begin = 0
    for task in in_order(portfolio.tasks):
        before = max((placed[name].end for name in task.after), default=0)
        not_before = max(begin, before, whole_minutes(task.earliest_s))
        placement = min(
            _options(task, portfolio.machines, calendar, not_before),
            key=lambda one: (one.end, one.way.cards * one.way.num_machines, one.machines),
        )
        calendar.book(placement)
        placed[task.name] = placement
        begin = placement.start
    return tuple(placed[task.name] for task in portfolio.tasks)


def _options(
    task: Task, machines: Sequence[Machine], calendar: Calendar, not_before: int
) -> Iterable[Placement]:
    for way in task.ways:
        minutes = minutes_of(way)
        found = places_for(way, machines)
        ranked = sorted(
            found, key=lambda place: calendar.earliest(place, way.cards, minutes, not_before)
        )
        groups = (
            [(place,) for place in found]
            if way.num_machines == 1
            else [tuple(sorted(ranked[: way.num_machines]))]
        )
        for group in groups if found else []:
            start = calendar.earliest_together(group, way.cards, minutes, not_before)
            yield Placement(task=task, way=way, machines=group, start=start, end=start + minutes)


def in_order(tasks: Sequence[Task]) -> list[Task]:
    """The tasks as given, each behind those that it waits for; what waits in a circle is left out.

    A name that is no task's is left out of the waiting too: both are told before.
    """
    waiting, done, found = list(tasks), set[str](), list[Task]()
    names = {task.name for task in tasks}
    while waiting:
        ready = next(
            (task for task in waiting if all(n in done or n not in names for n in task.after)),
            None,
        )
        if ready is None:
            return found
        waiting.remove(ready)
        done.add(ready.name)
        found.append(ready)
    return found


def replayed(
    portfolio: Portfolio, placements: Sequence[Placement], part: str
) -> tuple[Placement, ...]:
    """The same order on the same machines, each task taking its ``low``, ``likely`` or ``high``."""
    calendar, placed = Calendar(portfolio.machines), dict[str, Placement]()
    rank = {task.name: place for place, task in enumerate(in_order(portfolio.tasks))}
    for one in sorted(placements, key=lambda each: (each.start, rank[each.task.name])):
        before = max((placed[name].end for name in one.task.after), default=0)
        minutes = minutes_of(one.way, part)
        start = calendar.earliest_together(
            one.machines, one.way.cards, minutes, max(before, whole_minutes(one.task.earliest_s))
        )
        moved = Placement(
            task=one.task, way=one.way, machines=one.machines, start=start, end=start + minutes
        )
        calendar.book(moved)
        placed[one.task.name] = moved
    return tuple(placed[one.task.name] for one in placements)


def tidied(portfolio: Portfolio, placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """The same times, each task on the first machines like its own on which all can go on.

    Machines alike can be changed for each other, so that many schedules are one; where no order is
    found within some thousand attempts, they stay as they are.
    """
    rank = {task.name: place for place, task in enumerate(portfolio.tasks)}
    ordered = sorted(placements, key=lambda each: (each.start, rank[each.task.name]))
    calendar, placed = Calendar(portfolio.machines), dict[str, Placement]()
    attempts = iter(range(_ATTEMPTS))

    def place_from(number: int) -> bool:
        if number == len(ordered):
            return True
        one = ordered[number]
        for group in combinations(_alike(portfolio, calendar, one), len(one.machines)):
            if next(attempts, None) is None:
                return False
            moved = replace(one, machines=group)
            calendar.book(moved)
            if place_from(number + 1):
                placed[one.task.name] = moved
                return True
            calendar.free(moved)
        return False

    if not place_from(0):
        return tuple(placements)
    return tuple(placed[one.task.name] for one in placements)


def _alike(portfolio: Portfolio, calendar: Calendar, one: Placement) -> list[int]:
    """Machines like a task's own that are free while it runs."""
    machines = portfolio.machines
    kind = (machines[one.machines[0]].cards, machines[one.machines[0]].price)
    return [
        place
        for place in places_for(one.way, machines)
        if (machines[place].cards, machines[place].price) == kind
        and calendar.earliest(place, one.way.cards, one.end - one.start, one.start) == one.start
    ]


def card_numbers(
    machines: Sequence[Machine], placements: Sequence[Placement]
) -> dict[tuple[str, int], tuple[int, ...]]:
    """(task, machine) to the cards it gets, the lowest free ones, counted from 0.

    There are always enough: on no machine are more cards booked at a time than it has.
    """
    free_from: list[list[int]] = [[0] * machine.cards for machine in machines]
    given: dict[tuple[str, int], tuple[int, ...]] = {}
    for one in sorted(placements, key=lambda each: (each.start, each.task.name)):
        for place in one.machines:
            free = [card for card, at in enumerate(free_from[place]) if at <= one.start]
            taken = tuple(free[: one.way.cards])
            for card in taken:
                free_from[place][card] = one.end
            given[one.task.name, place] = taken
    return given


def busy_card_minutes(placements: Sequence[Placement]) -> Mapping[int, int]:
    """Card-minutes in use by machine."""
    busy: dict[int, int] = {}
    for one in placements:
        for place in one.machines:
            busy[place] = busy.get(place, 0) + one.way.cards * (one.end - one.start)
    return busy
