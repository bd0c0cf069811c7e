"""Use-case: search chips, counts, methods, layouts and batches; a ranked, honest shortlist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.economics.money import decimal
from tuneplan.errors import InputError, InvalidRequest
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.candidates import BATCH_TOLERANCE, Table, for_chip, one_micro_batch
from tuneplan.planner.dataset import Dataset, read_dataset
from tuneplan.planner.estimate import JobEstimate, estimate_resolved
from tuneplan.planner.estimating_all import estimate_all
from tuneplan.planner.heeding import once
from tuneplan.planner.helping import Helper
from tuneplan.planner.levers import Lever, next_best_lever
from tuneplan.planner.plan_own import before_own, reordered
from tuneplan.planner.pricing import Prices, price_table
from tuneplan.planner.rejecting import Rejection, rejections
from tuneplan.planner.resolving import (
    Resolved,
    resolve,
    resolve_model,
    resolve_platform,
    together,
    told_by_line,
)
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import Space, space_of
from tuneplan.search.pareto import pareto_mask
from tuneplan.search.ranking import Goal, ranked
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.offer import Money
from tuneplan.spec.stated import StatedHardware, StatedJob

NUM_ENTRIES: Final = 6
NUM_FRONT: Final = 60
_MOST_OF_A_CHIP: Final = 2
_HEADROOM_GRAIN: Final = 0.05  # head-rooms closer than this share of a card count as equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration of the shortlist.

    Attributes:
        id: Stable name of the candidate.
        labels: ``cheapest``, ``fastest``, ``balanced``, ``smallest``.
        settings: The chosen job keys.
        job: The job with these settings stated: what ``estimate`` would be asked.
    """

    rank: int
    id: str
    labels: tuple[str, ...]
    pareto: bool
    settings: Mapping[str, Any]
    job: StatedJob
    estimate: JobEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A candidate that none beats in cost, time and head-room together, as the search has it.

    Attributes:
        total_s: Likely, of the run; None where the data is not known.
        cost: Likely; None without an offer or without hours.
        headroom_fraction: Free share of the card at the likely need.
    """

    id: str
    settings: Mapping[str, Any]
    total_s: float | None
    cost: Money | None
    headroom_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer.

    Attributes:
        pareto: Ids of candidates that none beats in cost, time and head-room together.
        front: The same with their figures, by duration; of many those that lie apart.
        num_evaluated: Candidates whose time was computed (the others do not fit anywhere).
        assumptions: Of the search, and of the first entry.
        before: Each entry without the user's own measurements, where these were asked for.
    """

    job: StatedJob
    goal: str
    entries: tuple[Entry, ...]
    pareto: tuple[str, ...]
    front: tuple[FrontPoint, ...]
    lever: Lever | None
    rejected: tuple[Rejection, ...]
    num_candidates: int
    num_evaluated: int
    elapsed_s: float
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]
    before: tuple[JobEstimate, ...] = ()


@told_by_line
def plan_job(
    job: StatedJob, sources: Sources, *, processes: int = 1, helper: Helper | None = None
) -> Plan:
    """Search the space of a job; ``processes`` and ``helper`` as for ``Search.table``.

    Raises:
        InputError: Everything the user can mend.
    """
    started = perf_counter()
    found, space, dataset = together(
        lambda: resolve_model(job, sources),
        lambda: space_of(job, sources),
        lambda: read_dataset(job),
    )
    table = sources.tables.table(
        job, space, found.architecture, dataset, sources, processes=processes, helper=helper
    )
    _refuse_mistakes(table)
    prices = price_table(table, sources, job.limits)
    chosen = Shortlist(job, table, prices)
    shown = [
        _resolved(job, table, row, found.architecture, dataset, sources) for row in chosen.rows
    ]
    estimates = estimate_all(shown, sources, helper)
    entries = tuple(
        _entry(table, row, rank, chosen, estimate)
        for rank, (row, estimate) in enumerate(zip(chosen.rows, estimates, strict=True), start=1)
    )
    best = entries[0] if entries else None
    lever = next_best_lever(best.job, best.estimate, sources, dataset) if best else None
    notices = (
        *job.notices,
        *(Notice(message=note) for note in found.notes),
        *space.notices,
        *dataset.notices,
        *(best.estimate.notices if best else ()),
        *_packed_steps(space, entries),
        *_less_room(job, entries),
        *reordered(job, entries, sources),
    )
    return Plan(
        job=job,
        goal=job.goal,
        entries=entries,
        pareto=tuple(table.identifier(row) for row in chosen.pareto),
        front=tuple(_front_point(chosen, int(row)) for row in chosen.spread_front()),
        lever=lever,
        rejected=rejections(job, table, prices, chosen.feasible),
        num_candidates=space.size,
        num_evaluated=int(np.isfinite(table.step_s).sum()),
        elapsed_s=perf_counter() - started,
        before=before_own(entries, sources),
        assumptions=(
            *found.assumptions,
            *dataset.assumptions,
            *space.assumptions,
            *(best.estimate.assumptions if best else ()),
        ),
        notices=once(notices),
    )


def _refuse_mistakes(table: Table) -> None:
    """Where nothing can run at all because the job is wrong, say so as for one configuration."""
    mistakes = [refusal.mistake for refusal in table.refusals if refusal.count]
    if not len(table) and mistakes and all(mistakes):
        raise InvalidRequest([mistake for mistake in mistakes if mistake is not None])


class Shortlist:
    """Which rows of a table are shown, in which order, under which labels.

    Attributes:
        feasible: Fits with the head-room, within deadline and budget, with an offer where the
            goal or the budget needs a price.
        pareto: Rows that no feasible row beats in cost, time and head-room.
        rows: The best rows for the goal, one a chip and number of cards, and the winners of the
            other goals.
    """

    def __init__(self, job: StatedJob, table: Table, prices: Prices) -> None:
        self.job, self.table, self.prices = job, table, prices
        self.headroom = headroom_fraction(table)
        self.feasible = feasible_mask(job, table, prices, self.headroom)
        self.labels: dict[int, list[str]] = {}
        rows = np.flatnonzero(self.feasible)
        self.pareto = rows[self._front(rows)] if len(rows) else rows
        self.rows = self._choose(rows)

    def _front(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        duration = self._duration(rows)
        cost = self.prices.cost[rows]
        money = np.where(np.isnan(cost), np.inf if np.isfinite(cost).any() else 0.0, cost)
        room = np.floor(self.headroom[rows] / _HEADROOM_GRAIN)
        return pareto_mask(np.column_stack([money, duration, -room]))

    def spread_front(self) -> NDArray[np.intp]:
        """At most ``NUM_FRONT`` rows of the front, fastest first, spread over their durations."""
        rows = self.pareto[np.argsort(self._duration(self.pareto), kind="stable")]
        if len(rows) <= NUM_FRONT:
            return rows
        places = np.unique(np.linspace(0, len(rows) - 1, NUM_FRONT).round().astype(np.intp))
        return rows[places]

    def _duration(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Of the run; of one step where the data is not known."""
        total = self.table.total_s[rows]
        return np.where(np.isnan(total), self.table.step_s[rows], total)

    def _choose(self, rows: NDArray[np.intp]) -> list[int]:
        if not len(rows):
            return []
        place = self._place(rows)
        cards = self._cards(rows)
        orders = {
            goal: rows[ranked(goal, cost=self.prices.cost[rows], duration_s=self._duration(rows),
                              accelerators=cards, place=place)]
            for goal in Goal
        }  # fmt: skip
        chosen = self._distinct(orders[Goal(self.job.goal)])
        priced = bool(np.isfinite(self.prices.cost[rows]).any())
        for goal, order in orders.items():
            if priced or goal is Goal.FASTEST:  # without prices nothing is called cheap
                self._label(int(order[0]), goal.value, chosen)
        smallest = self._smallest(rows, orders[Goal.CHEAPEST])
        same = [row for row in chosen if self._hardware(row) == self._hardware(smallest)]
        self._label(same[0] if same else smallest, "smallest", chosen)
        position = {int(row): place for place, row in enumerate(orders[Goal(self.job.goal)])}
        return sorted(chosen, key=position.__getitem__)

    def _hardware(self, row: int) -> tuple[int, int]:
        return int(self.table.chip[row]), int(self.table.shape[row])

    def _cards(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        sizes = np.array([float(nodes * cards) for nodes, cards in self.table.space.shapes])
        return sizes[self.table.shape[rows]]

    def _place(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """An order by chip name, shape, variant and micro-batch: no catalogue decides a tie."""
        table = self.table
        names = np.array([chip.name for chip in table.space.accelerators])
        by_name = np.argsort(np.argsort(names))
        order = np.lexsort(
            (table.micro_batch[rows], table.variant[rows], table.shape[rows],
             by_name[table.chip[rows]])
        )  # fmt: skip
        place = np.empty(len(rows), dtype=np.intp)
        place[order] = np.arange(len(rows))
        return place

    def _distinct(self, order: NDArray[np.intp]) -> list[int]:
        """The best of each chip and number of cards, at most two of a chip, in order."""
        shapes: set[tuple[int, int]] = set()
        per_chip: Counter[int] = Counter()
        kept: list[int] = []
        for row in order:
            chip, shape = int(self.table.chip[row]), int(self.table.shape[row])
            if (chip, shape) in shapes or per_chip[chip] >= _MOST_OF_A_CHIP:
                continue
            shapes.add((chip, shape))
            per_chip[chip] += 1
            kept.append(int(row))
            if len(kept) == NUM_ENTRIES:
                break
        return kept

    def _label(self, row: int, label: str, chosen: list[int]) -> None:
        if row not in chosen:
            chosen.append(row)
        self.labels.setdefault(row, []).append(label)

    def _smallest(self, rows: NDArray[np.intp], cheapest: NDArray[np.intp]) -> int:
        """Fewest cards, then least memory per card, then the cheapest of those."""
        place = np.empty(len(self.table), dtype=np.intp)
        place[cheapest] = np.arange(len(cheapest))
        capacity = np.array([
            chip.capacity_bytes for chip in self.table.space.accelerators
        ])  # fmt: skip
        best = np.lexsort((place[rows], capacity[self.table.chip[rows]], self._cards(rows)))[0]
        return int(rows[best])


def _front_point(chosen: Shortlist, row: int) -> FrontPoint:
    table, prices = chosen.table, chosen.prices
    total_s, cost = float(table.total_s[row]), float(prices.cost[row])
    return FrontPoint(
        id=table.identifier(row),
        settings=table.settings(row),
        total_s=total_s if np.isfinite(total_s) else None,
        cost=Money(amount=decimal(cost), currency=prices.currency) if np.isfinite(cost) else None,
        headroom_fraction=float(chosen.headroom[row]),
    )


def headroom_fraction(table: Table) -> NDArray[np.float64]:
    """Free share of the card at the likely need."""
    capacity = np.array([float(chip.capacity_bytes) for chip in table.space.accelerators])
    if not len(table):
        return np.empty(0)
    free: NDArray[np.float64] = 1.0 - table.needed_bytes / capacity[table.chip]
    return free


def feasible_mask(
    job: StatedJob, table: Table, prices: Prices, headroom: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Rows within every limit."""
    limits = job.limits
    mask = (headroom >= limits.headroom_fraction) & np.isfinite(table.step_s)
    if limits.deadline_s is not None:
        mask &= table.total_s <= limits.deadline_s
    if limits.budget is not None:
        mask &= prices.cost <= float(limits.budget)
    allowed: NDArray[np.bool_] = mask & has_offer(job, table, prices)
    return allowed


def has_offer(job: StatedJob, table: Table, prices: Prices) -> NDArray[np.bool_]:
    """Rows whose chip can be had; a chip the user named counts as on hand where none is listed."""
    stated = bool(job.hardware.accelerator)
    strict = bool(job.limits.residency or job.limits.providers)
    mask = np.ones(len(table), dtype=bool)
    for (chip, shape), reason in prices.why_none.items():
        if stated and not strict and reason == "no_offer":
            continue
        mask &= ~((table.chip == chip) & (table.shape == shape))
    return mask


def chosen_job(job: StatedJob, settings: Mapping[str, Any], table: Table, row: int) -> StatedJob:
    """The job with a candidate's settings stated."""
    variant = table.variants[table.variant[row]]
    chip = table.space.accelerators[table.chip[row]]
    recipe = for_chip(
        one_micro_batch(
            variant.stated(job.recipe),
            settings["training.per_device_train_batch_size"],
            settings["training.gradient_accumulation_steps"],
        ),
        chip,
    )
    hardware: StatedHardware = replace(
        job.hardware,
        accelerator=(chip.name,),
        num_nodes=settings["hardware.num_nodes"],
        accelerators_per_node=(settings["hardware.accelerators_per_node"],),
    )
    return replace(job, recipe=recipe, hardware=hardware, choices={})


def _resolved(
    job: StatedJob,
    table: Table,
    row: int,
    model: ModelArchitecture,
    dataset: Dataset,
    sources: Sources,
) -> Resolved:
    single = chosen_job(job, table.settings(row), table, row)
    platform = resolve_platform(single, sources)
    return resolve(single, model=model, platform=platform, dataset=dataset)


def _entry(table: Table, row: int, rank: int, chosen: Shortlist, estimate: JobEstimate) -> Entry:
    return Entry(
        rank=rank,
        id=table.identifier(row),
        labels=tuple(chosen.labels.get(row, ())),
        pareto=row in set(chosen.pareto.tolist()),
        settings=table.settings(row),
        job=estimate.resolved.job,
        estimate=estimate,
    )


def _less_room(job: StatedJob, entries: Sequence[Entry]) -> Iterator[Notice]:
    """Entries that a replay of the allocator, as of an estimate, leaves less of the head-room.

    The search itself takes a share of fragmentation, since a replay of each candidate would take
    minutes.
    """
    wanted = job.limits.headroom_fraction
    for entry in entries:
        fit = entry.estimate.memory.fit
        if fit is None or fit.headroom_bytes >= wanted * fit.capacity_bytes:
            continue
        text = message(
            "plan_less_room",
            "plan {rank}: with the allocator replayed {free:.1%} of a card stay free, not the "
            "{wanted:.0%} of limits.headroom that the search kept",
            rank=entry.rank,
            free=fit.headroom_bytes / fit.capacity_bytes,
            wanted=wanted,
        )
        yield Notice(message=text, path="limits.headroom")


def _packed_steps(space: Space, entries: Sequence[Entry]) -> Iterator[Notice]:
    """Entries whose packed rows do not make the samples of a step exactly."""
    if space.counts_rows:
        return
    for entry in entries:
        resolved = entry.estimate.resolved
        recipe = resolved.recipe
        samples = (
            resolved.batch.samples
            * recipe.gradient_accumulation_steps
            * resolved.parallelism.data
        )  # fmt: skip
        if recipe.packing and abs(samples / space.global_batch_size - 1) > BATCH_TOLERANCE:
            text = message(
                "packed_steps_differ",
                "plan {rank}: packed rows hold several samples, so that a step sees about "
                "{samples:.0f} of them, not {wanted}",
                rank=entry.rank,
                samples=samples,
                wanted=space.global_batch_size,
            )
            yield Notice(message=text, path="training.packing")


def brute_force(
    job: StatedJob, sources: Sources, rows: Iterable[int], table: Table
) -> Sequence[tuple[int, JobEstimate]]:
    """Full estimates of the given rows, one by one: what the table must agree with."""
    found = sources.models.resolve(job.model, base_path=job.base_path)
    dataset = read_dataset(job)
    answers = []
    for row in rows:
        single = chosen_job(job, table.settings(row), table, row)
        try:
            platform = resolve_platform(single, sources)
            resolved = resolve(single, model=found.architecture, platform=platform, dataset=dataset)
            answers.append((row, estimate_resolved(resolved, sources)))
        except InputError:
            continue
    return answers
