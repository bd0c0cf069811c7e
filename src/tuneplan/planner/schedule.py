"""Use-case: several jobs on a pool of machines: who runs where and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Final

from tuneplan.catalog.pools import Pool, PoolJob
from tuneplan.contract.reading import load_job
from tuneplan.economics.money import convert
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.sources import Sources, sources_for
from tuneplan.planner.task_ways import Found, stated_ways, ways_of
from tuneplan.scheduling.explaining import Broken, broken_deadlines
from tuneplan.scheduling.placing import Placement, first_come, in_order, places_for, replayed
from tuneplan.scheduling.solver import Solution, require_solver, solve
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.portfolio import Aim, Machine, Portfolio, Task, Way
from tuneplan.spec.stated import StatedJob

LIMIT_S: Final = 15.0  # that the solver may take where nobody says
_SHARE_TO_EXPLAIN: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The answer.

    Attributes:
        start: The moment that times count from.
        solution: ``infeasible`` ones have no placements.
        ranges: The same order with every task at its low, likely and high duration.
        first_come: In the order given, none overtaking another; its deadlines may be broken.
        broken: Deadlines that cannot be kept, where there is no schedule.
        currency: Of costs; None where not everything has a price.
    """

    portfolio: Portfolio
    aim: Aim
    start: datetime
    solution: Solution
    ranges: Mapping[str, tuple[Placement, ...]]
    first_come: tuple[Placement, ...]
    broken: tuple[Broken, ...]
    currency: str | None
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]


def schedule_jobs(
    jobs: Sequence[tuple[str, StatedJob]],
    pool: Pool,
    sources: Sources,
    *,
    aim: Aim,
    limit_s: float = LIMIT_S,
    workers: int = 8,
) -> Schedule:
    """The best schedule of jobs on a pool.

    Args:
        jobs: Name and job; those that the pool's file names come before them.
        pool: Machines.
        sources: Catalogues for jobs without files of their own.
        aim: What is made least.
        limit_s: Seconds that the solver may take.
        workers: Searches at the same time.

    Raises:
        InvalidRequest: A job that no machine can run, names that clash or are unknown, tasks that
            wait in a circle, a cost without prices; all at once.
        MissingExtra: The ``schedule`` extra is not installed.
    """
    require_solver()
    start = pool.start or datetime.combine(sources.today, time(), tzinfo=UTC)
    found = _tasks(jobs, pool, sources)
    tasks = tuple(one.task for one in found)
    machines, currency, notices = _priced(pool.machines, tasks, sources)
    portfolio = Portfolio(tasks=tasks, machines=machines)
    _refuse(portfolio, found, pool, aim, currency)
    solution = solve(portfolio, aim, limit_s=limit_s, workers=workers)
    ranges = {
        part: replayed(portfolio, solution.placements, part) for part in ("low", "likely", "high")
    }
    broken: tuple[Broken, ...] = ()
    if solution.status == "infeasible":
        seconds = _SHARE_TO_EXPLAIN * limit_s
        broken = broken_deadlines(portfolio, limit_s=seconds, workers=workers)
    return Schedule(
        portfolio=portfolio,
        aim=aim,
        start=start,
        solution=solution,
        ranges=ranges,
        first_come=first_come(portfolio),
        broken=broken,
        currency=currency,
        assumptions=_assumptions(pool, start),
        notices=(*notices, *(notice for one in found for notice in one.notices)),
    )


def _assumptions(pool: Pool, start: datetime) -> tuple[Assumption, ...]:
    found = [
        Assumption(
            name="schedule.minutes",
            value=1,
            reason=message("whole_minutes", "times are whole minutes, durations rounded up"),
            source="scheduling/placing.py",
            how_to_set="-",
        ),
        Assumption(
            name="schedule.one_machine",
            value=True,
            reason=message(
                "not_moved", "a job stays on its machines until it is done, and is not interrupted"
            ),
            source="scheduling/solver.py",
            how_to_set="machines: 2",
        ),
    ]
    if pool.start is None:
        found.append(
            Assumption(
                name="start",
                value=f"{start:%Y-%m-%d %H:%M}",
                reason=message("start_today", "no start is stated: today begins it"),
                source="planner/schedule.py",
                how_to_set="start: 2026-12-01 09:00",
            )
        )
    return tuple(found)


def _tasks(jobs: Sequence[tuple[str, StatedJob]], pool: Pool, sources: Sources) -> list[Found]:
    """Every task with the ways to run it; every mistake of every job at once."""
    found: list[Found] = []
    mistakes: list[Mistake] = []
    for entry in pool.jobs:
        try:
            found.append(_of_entry(entry, pool, sources))
        except InputError as error:
            mistakes += error.mistakes
    for name, job in jobs:
        try:
            found.append(_of_job(name, job, pool, sources))
        except InputError as error:
            mistakes += error.mistakes
    if mistakes:
        raise InvalidRequest(mistakes)
    if not found:
        told = message("no_jobs", "there is no job: name job files, or list jobs: in the pool")
        raise InvalidRequest([Mistake(message=told, path="JOB")])
    return found


def _of_job(name: str, job: StatedJob, pool: Pool, sources: Sources) -> Found:
    own = sources_for(job, today=sources.today)
    ways, notices = ways_of(job, pool.machines, own, where=name)
    task = Task(name=name, ways=ways, deadline_s=job.limits.deadline_s, source=name)
    return Found(task=task, entry=None, notices=notices)


def _of_entry(entry: PoolJob, pool: Pool, sources: Sources) -> Found:
    notices: tuple[Notice, ...] = ()
    deadline = entry.deadline_s
    if entry.job is None:
        ways = stated_ways(entry, pool.machines)
    else:
        path = Path(entry.file).parent / entry.job
        job = load_job(path)
        if entry.cards:
            hardware = replace(job.hardware, accelerators_per_node=entry.cards)
            job = replace(job, hardware=hardware)
        if entry.machines:
            job = replace(job, hardware=replace(job.hardware, num_nodes=entry.machines))
        if entry.accelerators:
            job = replace(job, hardware=replace(job.hardware, accelerator=entry.accelerators))
        deadline = job.limits.deadline_s if deadline is None else deadline
        own = sources_for(job, today=sources.today)
        ways, notices = ways_of(job, pool.machines, own, where=str(path))
    task = Task(
        name=entry.name,
        ways=ways,
        priority=entry.priority,
        deadline_s=deadline,
        earliest_s=entry.earliest_s,
        after=entry.after,
        source=entry.file,
    )
    return Found(task=task, entry=entry, notices=notices)


def _priced(
    machines: Sequence[Machine], tasks: Sequence[Task], sources: Sources
) -> tuple[tuple[Machine, ...], str | None, tuple[Notice, ...]]:
    """Machines and tasks in one currency; None for it where something has no price in it."""
    prices = [machine.price for machine in machines if machine.price is not None]
    prices += [way.cost for task in tasks for way in task.ways if way.cost is not None]
    currencies = list(dict.fromkeys(price.currency for price in prices))
    whole = all(
        machine.price is not None or all(way.cost is not None for way in _on(machine, tasks))
        for machine in machines
    )
    if not currencies or not whole:
        return tuple(machines), None, ()
    if len(currencies) == 1:
        return tuple(machines), currencies[0], ()
    converted = []
    for machine in machines:
        price = machine.price and convert(machine.price, currencies[0], sources.offers.rates)
        if machine.price is not None and price is None:
            return tuple(machines), None, (Notice(message=_MIXED),)
        converted.append(replace(machine, price=price))
    priced = all(machine.price is not None for machine in machines)
    return (
        (tuple(converted), currencies[0], ())
        if priced
        else (tuple(machines), None, (Notice(message=_MIXED),))
    )


_MIXED: Final = message(
    "pool_of_currencies",
    "the prices of the pool are in several currencies without a rate between them: no cost is told",
)


def _on(machine: Machine, tasks: Sequence[Task]) -> Iterable[Way]:
    return (way for task in tasks for way in task.ways if way.accelerator == machine.accelerator)


def _refuse(
    portfolio: Portfolio, found: Sequence[Found], pool: Pool, aim: Aim, currency: str | None
) -> None:
    mistakes = [*_names(found), *_circles(portfolio, found), *_impossible(portfolio, found)]
    if not pool.machines:
        told = message("no_machines", "the pool has no machine: give --pool H100:8, or nodes:")
        mistakes = [Mistake(message=told, path="--pool")]
    if aim is Aim.COST and currency is None and not mistakes:
        told = message(
            "no_pool_price", "a cost needs a price of every machine: write price: under nodes"
        )
        mistakes.append(Mistake(message=told, path="nodes"))
    if mistakes:
        raise InvalidRequest(mistakes)


def _at(one: Found, key: str, text: Message, **more: object) -> Mistake:
    if one.entry is not None:
        return one.entry.mistake(key, text, **more)
    return Mistake(message=text, path=one.task.source, **more)  # type: ignore[arg-type]


def _names(found: Sequence[Found]) -> Iterable[Mistake]:
    counts = Counter(one.task.name for one in found)
    for one in found:
        if counts[one.task.name] > 1:
            text = message(
                "name_twice", "two jobs are called {name}: name one of them", name=one.task.name
            )
            yield _at(one, "name", text)
        for name in one.task.after:
            if name not in counts:
                text = message(
                    "after_unknown", "{name} waits for {other}, which is no job here",
                    name=one.task.name, other=name,
                )  # fmt: skip
                yield _at(one, "after", text, near=tuple(counts))


def _circles(portfolio: Portfolio, found: Sequence[Found]) -> Iterable[Mistake]:
    done = {task.name for task in in_order(portfolio.tasks)}
    left = {one.task.name: one for one in found if one.task.name not in done}
    if not left:
        return
    name = next(iter(left))
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(other for other in left[name].task.after if other in left)
    circle = [*path[path.index(name) :], name]
    text = message(
        "circle", "these jobs wait for each other in a circle: {circle}", circle=" -> ".join(circle)
    )
    yield _at(left[name], "after", text)


def _impossible(portfolio: Portfolio, found: Sequence[Found]) -> Iterable[Mistake]:
    for one in found:
        task = one.task
        if any(places_for(way, portfolio.machines) for way in task.ways):
            continue
        yield _at(one, "cards", _too_many(task, portfolio.machines))


def _too_many(task: Task, machines: Sequence[Machine]) -> Message:
    fewest = min(task.ways, key=lambda way: (way.num_machines, way.cards), default=None)
    return message(
        "pool_too_small",
        "{name} asks for {machines} {machines:~machine/machines} with {cards} cards; the pool "
        "has {pool}",
        name=task.name,
        machines=fewest.num_machines if fewest else 1,
        cards=fewest.cards if fewest else 1,
        pool=", ".join(f"{one.cards} x {one.accelerator}" for one in machines),
    )
