"""Schedules keep to the cards, to the order and to the deadlines, and none is better."""

import random
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from scheduling.portfolios import every_schedule, machine, portfolios, task, way
from tuneplan.errors import MissingExtra
from tuneplan.scheduling.explaining import broken_deadlines
from tuneplan.scheduling.placing import (
    Placement,
    busy_card_minutes,
    card_numbers,
    cost_on,
    first_come,
    minutes_of,
    replayed,
    tidied,
    whole_minutes,
)
from tuneplan.scheduling.solver import solve
from tuneplan.spec.portfolio import Aim, Portfolio, Task
from tuneplan.units import MINUTE_S

slow_machine = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def assert_is_a_schedule(portfolio: Portfolio, placed: tuple[Placement, ...]) -> None:
    assert [one.task for one in placed] == list(portfolio.tasks)
    ends = {one.task.name: one.end for one in placed}
    for one in placed:
        assert one.end - one.start >= minutes_of(one.way)
        assert one.start >= whole_minutes(one.task.earliest_s)
        assert all(one.start >= ends[name] for name in one.task.after)
        assert len(set(one.machines)) == len(one.machines) == one.way.num_machines
        for place in one.machines:
            chosen = portfolio.machines[place]
            assert chosen.accelerator == one.way.accelerator
            assert one.start >= whole_minutes(chosen.from_s)
    for place, each in enumerate(portfolio.machines):
        here = [one for one in placed if place in one.machines]
        for moment in {one.start for one in here}:
            used = [one.way.cards for one in here if one.start <= moment < one.end]
            assert sum(used) <= each.cards
    numbers = card_numbers(portfolio.machines, placed)
    for one in placed:
        for place in one.machines:
            mine = set(numbers[one.task.name, place])
            assert len(mine) == one.way.cards
            for other in placed:
                beside = other.start < one.end and one.start < other.end
                if other is not one and place in other.machines and beside:
                    assert not mine & set(numbers[other.task.name, place])


def without_deadlines(portfolio: Portfolio) -> Portfolio:
    tasks = tuple(replace(one, deadline_s=None) for one in portfolio.tasks)
    return replace(portfolio, tasks=tasks)


@slow_machine
@given(portfolios())
def test_no_card_is_given_twice_and_no_job_begins_too_early(portfolio: Portfolio) -> None:
    assert_is_a_schedule(portfolio, first_come(portfolio))
    found = solve(portfolio, Aim.LATENESS, limit_s=3, workers=1)
    assert_is_a_schedule(portfolio, found.placements)
    assert [(one.start, one.end) for one in tidied(portfolio, found.placements)] == [
        (one.start, one.end) for one in found.placements
    ]
    assert_is_a_schedule(portfolio, tidied(portfolio, first_come(portfolio)))
    for part in ("low", "likely", "high"):
        moved = replayed(portfolio, found.placements, part)
        if part != "low":
            assert_is_a_schedule(portfolio, moved)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(portfolios(most_tasks=3, most_machines=2))
def test_the_shortest_schedule_is_that_of_a_search_through_all(portfolio: Portfolio) -> None:
    free = without_deadlines(portfolio)
    best = min(max(one.end for one in placed) for placed in every_schedule(free))
    found = solve(free, Aim.MAKESPAN, limit_s=5, workers=1)
    assert found.status == "optimal"
    assert found.value == best == max(one.end for one in found.placements)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(portfolios(most_tasks=3, most_machines=2))
def test_the_least_late_schedule_is_that_of_a_search_through_all(portfolio: Portfolio) -> None:
    def lateness(placed: tuple[Placement, ...]) -> int:
        return sum(one.task.priority * one.late for one in placed)

    best = min(lateness(placed) for placed in every_schedule(portfolio))
    found = solve(portfolio, Aim.LATENESS, limit_s=5, workers=1)
    assert lateness(found.placements) == best == found.value


def test_deadlines_hold_where_they_can() -> None:
    # One card: the long one first would make the short one late.
    long, short = task("long", way(60)), task("short", way(10), deadline_s=15 * MINUTE_S)
    found = solve(
        Portfolio(tasks=(long, short), machines=(machine("m", 1),)), Aim.MAKESPAN, limit_s=5
    )
    assert found.status == "optimal"
    assert [(one.start, one.end) for one in found.placements] == [(10, 70), (0, 10)]


def test_the_cheapest_schedule_waits_for_the_cheap_cards() -> None:
    # 60 min on one of 4 cards at 40 USD an hour: 10 USD; 120 min on the only card at 2 USD: 4 USD.
    ways = (way(60), way(120, kind="NVIDIA L4"))
    tasks = tuple(task(name, *ways) for name in "ab")
    machines = (machine("fast", 4, price="40"), machine("slow", 1, "NVIDIA L4", price="2"))
    portfolio = Portfolio(tasks=tasks, machines=machines)
    found = solve(portfolio, Aim.COST, limit_s=5)
    assert found.value == pytest.approx(8.0)
    assert {one.machines for one in found.placements} == {(1,)}
    assert sum(cost_on(one.way, machines[1]) for one in found.placements) == 8
    dear = solve(portfolio, Aim.MAKESPAN, limit_s=5)
    assert dear.value == 60
    assert first_come(portfolio)[0].machines == (0,)


def test_a_job_on_two_machines_has_both_at_the_same_time() -> None:
    both = task("both", way(30, cards=2, num_machines=2))
    one = task("one", way(20, cards=1))
    portfolio = Portfolio(tasks=(one, both), machines=(machine("a", 2), machine("b", 2)))
    found = solve(portfolio, Aim.MAKESPAN, limit_s=5)
    assert_is_a_schedule(portfolio, found.placements)
    assert found.value == 50
    assert found.placements[1].machines == (0, 1)


def test_memory_keeps_a_job_off_small_cards() -> None:
    large = task("large", way(10, kind="NVIDIA L4", need_bytes=40e9), way(90, need_bytes=40e9))
    machines = (machine("small", 8, "NVIDIA L4"), machine("big", 1))
    found = solve(Portfolio(tasks=(large,), machines=machines), Aim.MAKESPAN, limit_s=5)
    assert found.placements[0].machines == (1,)


def test_what_makes_a_portfolio_impossible_is_named() -> None:
    # 20 h + 6 h on both cards do not fit into 24 h; c has room.
    hour = 60 * MINUTE_S
    tasks = (
        task("a", way(1200, cards=2), deadline_s=24 * hour),
        task("b", way(360), deadline_s=24 * hour, priority=5),
        task("c", way(300), deadline_s=30 * hour),
    )
    portfolio = Portfolio(tasks=tasks, machines=(machine("m", 2),))
    assert solve(portfolio, Aim.MAKESPAN, limit_s=5).status == "infeasible"
    broken = broken_deadlines(portfolio, limit_s=5)
    assert [(one.name, one.alone, one.end) for one in broken] == [("a", False, 1560)]


def test_a_deadline_that_cannot_be_kept_alone_is_told_apart() -> None:
    tasks = (
        task("first", way(600)),
        task("then", way(600), after=("first",), deadline_s=900 * MINUTE_S),
    )
    portfolio = Portfolio(tasks=tasks, machines=(machine("m", 8),))
    broken = broken_deadlines(portfolio, limit_s=5)
    assert [(one.name, one.alone, one.end, one.limit) for one in broken] == [
        ("then", True, 1200, 900)
    ]


def twenty_jobs() -> Portfolio:
    """Of 2 to 40 hours on one card, most of them able to use more, some waiting for others."""
    draw = random.Random(8)  # noqa: S311 - the same portfolio each time
    tasks: list[Task] = []
    for place in range(20):
        hours = draw.uniform(2, 40)
        counts = [count for count in (1, 2, 4, 8) if draw.random() < 0.8] or [1]
        after = (f"t{draw.randrange(place)}",) if place and draw.random() < 0.3 else ()
        ways = [way(60 * hours / count**0.9, count) for count in counts]
        tasks.append(task(f"t{place}", *ways, priority=draw.randint(1, 3), after=after))
    return Portfolio(tasks=tuple(tasks), machines=(machine("a", 8), machine("b", 8)))


def test_twenty_jobs_on_sixteen_cards_are_placed_in_time_and_beat_a_queue() -> None:
    portfolio = twenty_jobs()
    queue = max(one.end for one in first_come(portfolio))
    began = time.monotonic()
    found = solve(portfolio, Aim.MAKESPAN, limit_s=8)
    assert time.monotonic() - began < 20
    assert_is_a_schedule(portfolio, found.placements)
    assert found.value < 0.9 * queue
    assert found.bound <= found.value
    assert 0 <= found.gap_fraction < 0.2
    busy = sum(busy_card_minutes(found.placements).values())
    assert busy / (16 * found.value) > 0.8


def test_without_the_extra_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ortools", None)
    portfolio = Portfolio(tasks=(task("a", way(1)),), machines=(machine("m", 1),))
    with pytest.raises(MissingExtra, match=r"pip install 'tuneplan\[schedule\]'"):
        solve(portfolio, Aim.MAKESPAN, limit_s=1)
