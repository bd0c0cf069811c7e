"""The ways in which a job can run on the machines of a pool, each estimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tuneplan.catalog.pools import PoolJob
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.changing import with_settings
from tuneplan.planner.dataset import Dataset, read_dataset
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.spec.portfolio import Machine, Task, Way
from tuneplan.spec.stated import StatedJob
from tuneplan.units import format_gib

_POWERS: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A task, where it was stated, and what there is to say about it."""

    task: Task
    entry: PoolJob | None
    notices: tuple[Notice, ...] = ()


def stated_ways(entry: PoolJob, machines: Sequence[Machine]) -> tuple[Way, ...]:
    """Of a task of stated length: the same on every kind of card that has the memory.

    Raises:
        InvalidRequest: No card of the pool has the memory that is stated.
    """
    kinds = {machine.accelerator: machine.memory_bytes for machine in machines}
    wanted = [kind for kind in kinds if not entry.accelerators or kind in entry.accelerators]
    need = entry.memory_bytes
    roomy = [kind for kind in wanted if need is None or need <= kinds[kind]]
    if machines and not roomy:
        raise InvalidRequest([_no_room(entry, wanted, kinds)])
    hours = entry.duration_s or 0.0
    return tuple(
        Way(
            accelerator=kind,
            cards=cards,
            num_machines=entry.machines or 1,
            duration_s=Estimate(low=hours, likely=hours, high=hours),
            need_bytes=need,
        )
        for kind in roomy
        for cards in entry.cards or (1,)
    )


def _no_room(entry: PoolJob, wanted: Sequence[str], kinds: dict[str, int]) -> Mistake:
    if not wanted:
        text = message(
            "no_such_card",
            "{name} is to run on {cards}; the pool has {pool}",
            name=entry.name,
            cards=", ".join(entry.accelerators),
            pool=", ".join(kinds),
        )
        return entry.mistake("accelerator", text)
    largest = max(wanted, key=lambda kind: kinds[kind])
    text = message(
        "no_memory_in_pool",
        "{name} needs {need} on each card; the largest card of the pool, {card}, has {capacity}",
        name=entry.name,
        need=format_gib(entry.memory_bytes or 0),
        card=largest,
        capacity=format_gib(kinds[largest]),
    )
    return entry.mistake("memory", text)


def ways_of(
    job: StatedJob, machines: Sequence[Machine], sources: Sources, *, where: str
) -> tuple[tuple[Way, ...], tuple[Notice, ...]]:
    """Each kind of card and count that holds the job, with its duration there.

    Counts are those that the job states, else 1, 2, 4, ... up to what a machine has.

    Args:
        job: Its hardware section limits the kinds and counts.
        machines: Of the pool.
        sources: The job's catalogues.
        where: What people know it by.

    Raises:
        InputError: The job cannot be estimated, or holds on no card of the pool.
    """
    dataset = read_dataset(job)
    kinds = {one.accelerator: one for one in sorted(machines, key=lambda each: each.cards)}
    allowed = [sources.accelerators.resolve(name).accelerator.name for name in
               job.hardware.accelerator]  # fmt: skip
    tried: list[tuple[Machine, int, JobEstimate]] = []
    errors: list[InputError] = []
    for kind, machine in kinds.items():
        if allowed and kind not in allowed:
            continue
        for cards in _counts(job, machine):
            try:
                tried.append((machine, cards, _estimate(job, kind, cards, sources, dataset)))
            except InputError as error:
                errors.append(error)
    if not tried and errors:
        raise errors[0]
    return _holding(job, machines, allowed, tried, where)


def _counts(job: StatedJob, machine: Machine) -> Iterator[int]:
    stated = job.hardware.accelerators_per_node
    yield from (count for count in stated or _POWERS if count <= machine.cards)


def _estimate(
    job: StatedJob, kind: str, cards: int, sources: Sources, dataset: Dataset
) -> JobEstimate:
    settings = {"hardware.accelerator": kind, "hardware.accelerators_per_node": cards}
    changed = with_settings(job, settings)
    stated = tuple(dict.fromkeys((*changed.stated, *settings)))
    return estimate_job(replace(changed, stated=stated), sources, dataset=dataset)


def _holding(
    job: StatedJob,
    machines: Sequence[Machine],
    allowed: Sequence[str],
    tried: Sequence[tuple[Machine, int, JobEstimate]],
    where: str,
) -> tuple[tuple[Way, ...], tuple[Notice, ...]]:
    sure = [one for one in tried if _verdict(one[2]) == "fits"]
    tight = [one for one in tried if _verdict(one[2]) == "tight"]
    if not sure and not tight:
        raise InvalidRequest([_why_none(job, machines, allowed, tried, where)])
    if any(estimate.total_s is None for _, _, estimate in sure or tight):
        text = message(
            "no_duration",
            "{name}: how long it runs is not known; say what its data is (data.num_samples and "
            "data.mean_tokens, or files)",
            name=where,
        )
        raise InvalidRequest([Mistake(message=text, path=f"{where}: data")])
    notices: tuple[Notice, ...] = ()
    if not sure:
        told = message(
            "tight_in_pool", "{name} is a tight fit on every card of the pool", name=where
        )
        notices = (Notice(message=told),)
    return tuple(_way(cards, estimate) for _, cards, estimate in sure or tight), notices


def _verdict(estimate: JobEstimate) -> str:
    fit = estimate.memory.fit
    return fit.verdict.value if fit is not None else "does_not_fit"


def _way(cards: int, estimate: JobEstimate) -> Way:
    cluster, cost, total = estimate.resolved.cluster, estimate.cost, estimate.total_s
    if cluster is None or total is None:
        msg = "a way has a card and a duration"
        raise ValueError(msg)
    fit = estimate.memory.fit
    return Way(
        accelerator=cluster.accelerator.name,
        cards=cards,
        num_machines=cluster.num_nodes,
        duration_s=total,
        need_bytes=fit.needed_bytes.likely if fit is not None else None,
        cost=cost.total.likely if cost is not None else None,
    )


def _why_none(
    job: StatedJob,
    machines: Sequence[Machine],
    allowed: Sequence[str],
    tried: Sequence[tuple[Machine, int, JobEstimate]],
    where: str,
) -> Mistake:
    pool = ", ".join(dict.fromkeys(f"{one.cards} x {one.accelerator}" for one in machines))
    if not tried:
        text = message(
            "not_in_pool",
            "{name} asks for {cards} x {kinds}; the pool has {pool}",
            name=where,
            cards="/".join(map(str, job.hardware.accelerators_per_node)) or "1",
            kinds="/".join(allowed) or "?",
            pool=pool or "-",
        )
        return Mistake(message=text, path=f"{where}: hardware")
    machine, cards, best = min(tried, key=lambda one: _missing(one[2]))
    fit = best.memory.fit
    text = message(
        "too_large_for_pool",
        "{name} fits on no card of the pool: nearest is {cards} x {card}, which need {need} each "
        "and have {capacity}",
        name=where,
        cards=cards,
        card=machine.accelerator,
        need=format_gib(fit.needed_bytes.likely if fit else 0),
        capacity=format_gib(machine.memory_bytes),
    )
    fix = message(
        "smaller_or_larger", "a larger card, more of them with ZeRO-3 or FSDP, or method: qlora"
    )
    return Mistake(message=text, path=where, how_to_fix=fix)


def _missing(estimate: JobEstimate) -> float:
    fit = estimate.memory.fit
    return -fit.headroom_bytes / fit.capacity_bytes if fit is not None else float("inf")
