"""Portfolios for tests, and a search that looks at every one of their schedules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal

from hypothesis import strategies as st

from tuneplan.scheduling.placing import (
    Calendar,
    Placement,
    minutes_of,
    places_for,
    whole_minutes,
)
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import Money
from tuneplan.spec.portfolio import Machine, Portfolio, Task, Way
from tuneplan.units import GIB, MINUTE_S

KINDS = ("NVIDIA H100 SXM", "NVIDIA L4")
MEMORY = {"NVIDIA H100 SXM": 79 * GIB, "NVIDIA L4": 22 * GIB}


def machine(name: str, cards: int, kind: str = KINDS[0], price: str | None = None) -> Machine:
    money = None if price is None else Money(amount=Decimal(price), currency="USD")
    return Machine(name=name, accelerator=kind, cards=cards, memory_bytes=MEMORY[kind], price=money)


def way(minutes: float, cards: int = 1, kind: str = KINDS[0], **more: object) -> Way:
    likely = minutes * MINUTE_S
    duration = Estimate(low=0.9 * likely, likely=likely, high=1.5 * likely)
    return Way(accelerator=kind, cards=cards, duration_s=duration, **more)  # type: ignore[arg-type]


def task(name: str, *ways: Way, **more: object) -> Task:
    return Task(name=name, ways=ways, **more)  # type: ignore[arg-type]


@st.composite
def portfolios(draw: st.DrawFn, most_tasks: int = 6, most_machines: int = 3) -> Portfolio:
    machines = draw(
        st.lists(
            st.builds(
                lambda cards, kind, later: Machine(
                    name="",
                    accelerator=kind,
                    cards=cards,
                    memory_bytes=MEMORY[kind],
                    price=Money(amount=Decimal(cards), currency="USD"),
                    from_s=later * MINUTE_S,
                ),
                st.integers(1, 4),
                st.sampled_from(KINDS),
                st.sampled_from([0, 0, 7]),
            ),
            min_size=1,
            max_size=most_machines,
        )
    )
    tasks = []
    for place in range(draw(st.integers(1, most_tasks))):
        ways = tuple(
            way(draw(st.integers(1, 30)), draw(st.integers(1, one.cards)), one.accelerator)
            for one in draw(st.lists(st.sampled_from(machines), min_size=1, max_size=2))
        )
        before = draw(st.sets(st.integers(0, place - 1), max_size=2)) if place else set()
        tasks.append(
            task(
                f"t{place}",
                *ways,
                priority=draw(st.integers(1, 3)),
                after=tuple(f"t{one}" for one in sorted(before)),
                earliest_s=draw(st.sampled_from([0, 0, 5])) * MINUTE_S,
                deadline_s=draw(st.sampled_from([None, 20 * MINUTE_S, 60 * MINUTE_S])),
            )
        )
    return Portfolio(tasks=tuple(tasks), machines=tuple(machines))


def every_schedule(portfolio: Portfolio) -> Iterator[tuple[Placement, ...]]:
    """Every order, way and machine, each task as early as possible: one of them is the best."""
    options = [
        [
            (way, group)
            for way in one.ways
            for group in itertools.combinations(
                places_for(way, portfolio.machines), way.num_machines
            )
        ]
        for one in portfolio.tasks
    ]
    for order in itertools.permutations(range(len(portfolio.tasks))):
        if not _keeps(portfolio.tasks, order):
            continue
        for chosen in itertools.product(*options):
            yield _serial(portfolio, order, chosen)


def _keeps(tasks: Sequence[Task], order: Sequence[int]) -> bool:
    at = {tasks[place].name: rank for rank, place in enumerate(order)}
    return all(at[name] < at[one.name] for one in tasks for name in one.after)


def _serial(
    portfolio: Portfolio, order: Sequence[int], chosen: Sequence[tuple[Way, tuple[int, ...]]]
) -> tuple[Placement, ...]:
    calendar, placed = Calendar(portfolio.machines), dict[str, Placement]()
    for place in order:
        one, (taken, group) = portfolio.tasks[place], chosen[place]
        before = max((placed[name].end for name in one.after), default=0)
        minutes = minutes_of(taken)
        start = calendar.earliest_together(
            group, taken.cards, minutes, max(before, whole_minutes(one.earliest_s))
        )
        placed[one.name] = Placement(
            task=one, way=taken, machines=group, start=start, end=start + minutes
        )
        calendar.book(placed[one.name])
    return tuple(placed[one.name] for one in portfolio.tasks)
