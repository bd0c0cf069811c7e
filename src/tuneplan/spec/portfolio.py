"""Several jobs on few machines: what is to be done, on what, until when. Seconds from a start."""

from __future__ import annotations

from enum import StrEnum

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import Money


class Aim(StrEnum):
    """What a schedule makes least; deadlines hold unless lateness is the aim."""

    MAKESPAN = "makespan"
    COST = "cost"
    LATENESS = "lateness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of a pool.

    Attributes:
        name: Of its own.
        accelerator: Catalogue name of its cards, which are all alike.
        memory_bytes: Capacity of a card.
        price: Per hour of the whole machine; a job pays for its share of the cards.
        from_s: When it is there.
    """

    name: str
    accelerator: str
    cards: int
    memory_bytes: int
    price: Money | None = None
    from_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to run a task: on so many cards of each of so many machines of one kind.

    Attributes:
        cost: Where the machine says no price.
    """

    accelerator: str
    cards: int
    duration_s: Estimate
    num_machines: int = 1
    need_bytes: float | None = None
    cost: Money | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One job of a portfolio.

    Attributes:
        priority: Weight of its lateness and of its end among equals.
        deadline_s: When it must be done; None = any time.
        earliest_s: When it may begin.
        after: Names of the tasks that must be done before.
        source: Where it was stated, for people.
    """

    name: str
    ways: tuple[Way, ...]
    priority: int = 1
    deadline_s: float | None = None
    earliest_s: float = 0.0
    after: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """Tasks in the order in which they were given, and the pool."""

    tasks: tuple[Task, ...]
    machines: tuple[Machine, ...]
