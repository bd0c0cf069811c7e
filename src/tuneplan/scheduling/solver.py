"""The best schedule by OR-Tools' CP-SAT: proven, or with the gap that is left.

Each task has one interval per way and machine, of which as many are chosen as its way asks for
machines; a cumulative constraint keeps each machine within its cards. The cards of a machine are
alike, so that a count is enough: whenever no more are booked than there are, each task finds its
own. Whoever has the best value is then asked, within the time that is left, for the schedule that
ends early by priority, so that equals do not lie about at random.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.scheduling.placing import (
    Placement,
    cost_on,
    first_come,
    minutes_of,
    places_for,
    replayed,
    tidied,
    whole_minutes,
)
from tuneplan.spec.portfolio import Aim, Portfolio, Task, Way

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

_MONEY: Final = 10_000  # parts of a unit of currency that the solver counts in
_LATE: Final = "late"  # an aim of our own: the fewest tasks after their deadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What the solver found.

    Attributes:
        placements: In the order of the tasks; empty where there are none.
        status: ``optimal``, ``feasible`` (the time ended before the proof), ``infeasible`` or
            ``unknown`` (the time ended before anything).
        value: Of the aim: minutes, money, or minutes late times priority.
        bound: What no schedule can be better than.
    """

    placements: tuple[Placement, ...]
    status: str
    value: float
    bound: float
    elapsed_s: float

    @property
    def gap_fraction(self) -> float:
        """How much better a schedule could still be, as a share of this one's value."""
        return 0.0 if self.value <= 0 else max(0.0, (self.value - self.bound) / self.value)


@dataclass(slots=True)
class _Choice:
    """A way on a machine: whether it is taken."""

    way: Way
    place: int
    taken: Any


class _Model:
    """A portfolio as variables and constraints."""

    def __init__(self, portfolio: Portfolio, *, deadlines_hold: bool) -> None:
        from ortools.sat.python import cp_model

        self.portfolio = portfolio
        self.cp: CpModel = cp_model.CpModel()
        self.horizon = _horizon(portfolio)
        self.start: dict[str, IntVar] = {}
        self.end: dict[str, IntVar] = {}
        self.late: dict[str, IntVar] = {}
        self.ways: dict[str, list[tuple[Way, Any]]] = {}
        self.choices: dict[str, list[_Choice]] = {}
        self._booked: list[list[tuple[Any, int]]] = [[] for _ in portfolio.machines]
        for task in portfolio.tasks:
            self._add(task, deadlines_hold=deadlines_hold)
        for task in portfolio.tasks:
            for name in task.after:
                self.cp.add(self.start[task.name] >= self.end[name])
        for machine, booked in zip(portfolio.machines, self._booked, strict=True):
            if booked:
                intervals, demands = zip(*booked, strict=True)
                self.cp.add_cumulative(intervals, demands, machine.cards)
        self.makespan = self.cp.new_int_var(0, self.horizon, "makespan")
        self.cp.add_max_equality(self.makespan, list(self.end.values()))
        self._add_bound()

    def _add(self, task: Task, *, deadlines_hold: bool) -> None:
        cp, name = self.cp, task.name
        first = whole_minutes(task.earliest_s)
        start = cp.new_int_var(first, self.horizon, f"start {name}")
        end = cp.new_int_var(first, self.horizon, f"end {name}")
        self.start[name], self.end[name] = start, end
        self.ways[name], self.choices[name] = [], []
        for number, way in enumerate(task.ways):
            places = places_for(way, self.portfolio.machines)
            if not places:
                continue
            minutes = minutes_of(way)
            used = cp.new_bool_var(f"{name} way {number}")
            self.ways[name].append((way, used))
            cp.add(end == start + minutes).only_enforce_if(used)
            taken = []
            for place in places:
                here = cp.new_bool_var(f"{name} way {number} on {place}")
                interval = cp.new_optional_interval_var(start, minutes, end, here, "")
                self._booked[place].append((interval, way.cards))
                self.choices[name].append(_Choice(way, place, here))
                taken.append(here)
                there_from = whole_minutes(self.portfolio.machines[place].from_s)
                if there_from > first:
                    cp.add(start >= there_from).only_enforce_if(here)
            cp.add(sum(taken) == way.num_machines * used)
        cp.add_exactly_one(used for _, used in self.ways[name])
        if task.deadline_s is not None:
            limit = whole_minutes(task.deadline_s, down=True)
            if deadlines_hold:
                cp.add(end <= limit)
            late = cp.new_int_var(0, self.horizon, f"late {name}")
            cp.add(late >= end - limit)
            self.late[name] = late

    def _add_bound(self) -> None:
        """All card-minutes have to find room before the makespan: implied, but it prunes."""
        cards = sum(machine.cards for machine in self.portfolio.machines)
        used = [
            way.cards * minutes_of(way) * choice.taken
            for choices in self.choices.values()
            for choice in choices
            for way in (choice.way,)
        ]
        self.cp.add(self.makespan * cards >= sum(used))

    def cost(self) -> Any:
        """Money in parts of the unit."""
        terms = []
        for choices in self.choices.values():
            for choice in choices:
                each = cost_on(choice.way, self.portfolio.machines[choice.place])
                terms.append((round((each or Decimal(0)) * _MONEY), choice.taken))
        return _weighted(terms)

    def weighted_ends(self) -> Any:
        """Ends by priority, to choose among equals; then the order given and the first machine."""
        many = len(self.portfolio.tasks)
        terms: list[tuple[int, Any]] = [
            (task.priority * 2 * many + many - place, self.end[task.name])
            for place, task in enumerate(self.portfolio.tasks)
        ]
        for choices in self.choices.values():
            terms += [(choice.place, choice.taken) for choice in choices]
        return _weighted(terms)

    def lateness(self) -> Any:
        """Minutes late by priority."""
        return _weighted(
            [
                (task.priority, self.late[task.name])
                for task in self.portfolio.tasks
                if task.name in self.late
            ]
        )

    def number_late(self) -> Any:
        """How many are late, by priority; then by how much."""
        many = []
        for task in self.portfolio.tasks:
            if task.name in self.late:
                is_late = self.cp.new_bool_var("")
                self.cp.add(self.late[task.name] == 0).only_enforce_if(is_late.negated())
                many.append(task.priority * is_late)
        weight = 1 + self.horizon * sum(task.priority for task in self.portfolio.tasks)
        return sum(many) * weight + self.lateness()

    def hint(self, placements: Sequence[Placement]) -> None:
        """A schedule to start from."""
        for one in placements:
            name = one.task.name
            self.cp.add_hint(self.start[name], one.start)
            self.cp.add_hint(self.end[name], one.end)
            for way, used in self.ways[name]:
                self.cp.add_hint(used, way is one.way)
            for choice in self.choices[name]:
                here = choice.way is one.way and choice.place in one.machines
                self.cp.add_hint(choice.taken, here)

    def placements(self, solver: CpSolver) -> tuple[Placement, ...]:
        """What the solver decided, in the order of the tasks."""
        found = []
        for task in self.portfolio.tasks:
            name = task.name
            taken = [one for one in self.choices[name] if solver.boolean_value(one.taken)]
            found.append(
                Placement(
                    task=task,
                    way=taken[0].way,
                    machines=tuple(one.place for one in taken),
                    start=solver.value(self.start[name]),
                    end=solver.value(self.end[name]),
                )
            )
        return tuple(found)


def _weighted(terms: Sequence[tuple[int, Any]]) -> Any:
    """The sum of factor x variable.

    What has no weight is left out: OR-Tools 9.14 does not add a constant nought to expressions.
    """
    return sum(factor * variable for factor, variable in terms if factor)


def _horizon(portfolio: Portfolio) -> int:
    """By when everything is done if nothing runs beside anything else."""
    longest = sum(max(minutes_of(way) for way in task.ways) for task in portfolio.tasks)
    first = max(whole_minutes(task.earliest_s) for task in portfolio.tasks)
    return longest + first + max(whole_minutes(machine.from_s) for machine in portfolio.machines)


def require_solver() -> None:
    """Say what to install before anything is computed for nothing.

    Raises:
        MissingExtra: The ``schedule`` extra is not installed.
    """
    try:
        import ortools  # noqa: F401
    except ImportError:
        purpose = str(message("scheduling", "a schedule"))
        raise MissingExtra(extra="schedule", purpose=purpose) from None


def solve(portfolio: Portfolio, aim: Aim, *, limit_s: float, workers: int = 8) -> Solution:
    """The best schedule that is found within ``limit_s`` seconds.

    Every task has a way that some machine can run, and none waits in a circle.

    Raises:
        MissingExtra: The ``schedule`` extra is not installed.
    """
    require_solver()
    return _solve(
        portfolio, aim.value, limit_s=limit_s, workers=workers, hold=aim is not Aim.LATENESS
    )


def fewest_late(portfolio: Portfolio, *, limit_s: float, workers: int = 8) -> Solution:
    """The schedule that breaks the fewest deadlines by priority, each by as little as can be."""
    require_solver()
    return _solve(portfolio, _LATE, limit_s=limit_s, workers=workers, hold=False)


def _solve(portfolio: Portfolio, aim: str, *, limit_s: float, workers: int, hold: bool) -> Solution:
    from ortools.sat.python import cp_model

    began = time.monotonic()
    model = _Model(portfolio, deadlines_hold=hold)
    goal = {
        Aim.MAKESPAN.value: lambda: model.makespan,
        Aim.COST.value: model.cost,
        Aim.LATENESS.value: model.lateness,
        _LATE: model.number_late,
    }[aim]()
    model.hint(first_come(portfolio))
    model.cp.minimize(goal)
    solver = _solver(limit_s * 0.8, workers)
    status = solver.solve(model.cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        word = "infeasible" if status == cp_model.INFEASIBLE else "unknown"
        elapsed = time.monotonic() - began
        return Solution(placements=(), status=word, value=0.0, bound=0.0, elapsed_s=elapsed)
    value, bound = round(solver.objective_value), solver.best_objective_bound
    best = model.placements(solver)
    model.cp.clear_hints()  # type: ignore[no-untyped-call]
    model.hint(best)
    model.cp.add(goal <= value)
    many = model.horizon * len(portfolio.tasks) ** 2 * 2 if aim != Aim.MAKESPAN else 0
    many *= max(task.priority for task in portfolio.tasks)
    model.cp.minimize(_weighted([(many, model.makespan)]) + model.weighted_ends())
    again = _solver(max(0.5, limit_s * 0.95 - (time.monotonic() - began)), workers)
    if again.solve(model.cp) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        best = model.placements(again)
    scale = _MONEY if aim == Aim.COST else 1
    best = tidied(portfolio, _pulled_forward(portfolio, best))
    if aim == Aim.MAKESPAN:
        value = max(one.end for one in best)
    return Solution(
        placements=best,
        status="optimal" if status == cp_model.OPTIMAL else "feasible",
        value=value / scale,
        bound=(value if status == cp_model.OPTIMAL else bound) / scale,
        elapsed_s=time.monotonic() - began,
    )


def _pulled_forward(
    portfolio: Portfolio, placements: tuple[Placement, ...]
) -> tuple[Placement, ...]:
    """Each task as early as its machines allow in the order found: never later than before."""
    earlier = replayed(portfolio, placements, "likely")
    pairs = zip(earlier, placements, strict=True)
    return earlier if all(new.end <= old.end for new, old in pairs) else placements


def _solver(limit_s: float, workers: int) -> CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 0
    return solver
