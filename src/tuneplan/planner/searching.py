"""Every candidate of a space evaluated at once, on likely figures only.

What depends on the recipe alone (the walk of the model, counts of operations) is computed once
for all chips, counts and micro-batches, as arrays; a chip prices the operations once for all
counts. The same functions serve ``estimate``, so a candidate's figures here are those of its
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.catalog.links import resolve_cluster
from tuneplan.errors import InputError
from tuneplan.estimation.batches import BatchShape, length_spread, sample_lengths
from tuneplan.estimation.bundles import Bundle, bundle, bundle_time
from tuneplan.estimation.communication import communication_term
from tuneplan.estimation.memory import assemble, workspace_bytes
from tuneplan.estimation.offload import offload_term
from tuneplan.estimation.optimizer_step import step_operations
from tuneplan.estimation.persistent import Persistent, persistent
from tuneplan.estimation.run_time import likely_run
from tuneplan.estimation.sharded_units import Unit, communication_units
from tuneplan.estimation.sharding import seen_by_layers
from tuneplan.estimation.step_time import MICRO_BATCH_HOST_S, compute_time
from tuneplan.estimation.uncertainty import FRAGMENTATION
from tuneplan.estimation.walking import Walked, walk_model
from tuneplan.frameworks.resolve import ResolvedRecipe, resolve_recipe
from tuneplan.language import Message, message
from tuneplan.planner.candidates import (
    ChipClass,
    Refusal,
    Table,
    accumulations,
    class_of,
    for_chip,
    one_micro_batch,
)
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.evaluating import imbalance_of, listed_operations, shape_of_batch
from tuneplan.planner.resolving import samples_seen, schedule_of, with_trained_share
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import Space, Variant
from tuneplan.planner.storing import checkpoint_size
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import (
    Optimizer,
    OptimizerFamily,
    OptimizerImplementation,
    TrainingRecipe,
)
from tuneplan.spec.stated import StatedJob

Floats = NDArray[np.float64]
_ANY_OPTIMIZER: Final = Optimizer(
    name="adamw_torch",
    family=OptimizerFamily.ADAMW,
    implementation=OptimizerImplementation.FUSED,
)


class Search:
    """Evaluates the space of one job."""

    def __init__(
        self,
        job: StatedJob,
        space: Space,
        model: ModelArchitecture,
        dataset: Dataset,
        sources: Sources,
    ) -> None:
        self.job, self.space, self.model = job, space, model
        self.dataset, self.sources = dataset, sources
        statistics = dataset.statistics
        self.spread = length_spread(sample_lengths(statistics)) if statistics else 0.0
        self.curves = [sources.curves(chip) for chip in space.accelerators]
        self.classes: dict[ChipClass, list[int]] = {}
        for index, chip in enumerate(space.accelerators):
            self.classes.setdefault(class_of(chip), []).append(index)
        self._batches: dict[Any, BatchShape] = {}
        self._walks: dict[Any, Walked] = {}
        self._bundles: dict[int, Bundle] = {}
        self._peaks: dict[Any, Floats] = {}
        self._optimizer: dict[Any, float] = {}
        self._clusters: dict[tuple[int, int], Cluster | None] = {}
        self._communication: dict[Any, tuple[float, float]] = {}
        self._computed: dict[Any, tuple[Floats, Floats]] = {}
        self._refusals: dict[str, Refusal] = {}
        self._persistents: dict[TrainingRecipe, Persistent] = {}
        self._units: dict[Any, tuple[Unit, ...]] = {}
        self._facts: dict[tuple[Any, ...], int] = {}

    def table(self) -> Table:
        """Evaluate everything."""
        variants = tuple(self.space.variants())
        blocks: list[dict[str, Floats]] = []
        for index, variant in enumerate(variants):
            for chips in self.classes.values():
                blocks += self._evaluate(index, variant, chips)
        columns = {
            name: np.concatenate([block[name] for block in blocks]) if blocks else np.empty(0)
            for name in _COLUMNS
        }
        return Table(
            variants=variants,
            recipe=self.job.recipe,
            space=self.space,
            variant=columns["variant"].astype(np.intp),
            chip=columns["chip"].astype(np.intp),
            shape=columns["shape"].astype(np.intp),
            micro_batch=columns["micro_batch"].astype(np.intp),
            accumulation=columns["accumulation"].astype(np.intp),
            needed_bytes=columns["needed_bytes"],
            step_s=columns["step_s"],
            total_s=columns["total_s"],
            refusals=tuple(self._refusals[code] for code in sorted(self._refusals)),
        )

    # --- One variant on one class of chips ---------------------------------------------------

    def _evaluate(self, index: int, variant: Variant, chips: list[int]) -> list[dict[str, Floats]]:
        """Candidates of a variant on chips that resolve to the same recipe.

        The layout is stated, so the recipe does not depend on the number of cards; it does on
        whether a micro-batch has one row, which needs no padding and no mask.
        """
        shapes = list(self.space.shapes_of(variant.strategy))
        blocks = []
        for found, sizes in self._resolved_groups(variant, chips, shapes):
            if found is not None:
                grid = self._grid(found, shapes, sizes)
                self._refuse_other_batches(variant, grid, chips)
                blocks += self._price(index, variant, found, grid, chips)
        return blocks

    def _refuse_other_batches(self, variant: Variant, grid: _Grid, chips: list[int]) -> None:
        """Note the candidates that no number of micro-batches brings to the samples of a step."""
        rows, columns = np.nonzero(~grid.runs)
        if len(rows):
            text = message(
                "other_global_batch",
                "the micro-batch on all cards, a whole number of times, does not make the "
                "{count} samples of an optimizer step",
                count=self.space.global_batch_size,
            )
            chip = self.space.accelerators[chips[0]]
            self._refuse(
                text, variant, chip, grid.shapes[rows[-1]], len(rows) * len(chips),
                micro_batch=grid.sizes[columns[-1]],
            )  # fmt: skip

    def _resolved_groups(
        self, variant: Variant, chips: list[int], shapes: list[tuple[int, int]]
    ) -> list[tuple[ResolvedRecipe, tuple[int, ...]]]:
        """Recipes with the micro-batches that they hold for, joined where one row is like more."""
        groups: list[tuple[ResolvedRecipe, tuple[int, ...]]] = []
        for sizes in self._groups_of_sizes(variant) if shapes else ():
            found = self._resolve(variant, chips, shapes[0], sizes)
            if found is None:
                continue
            if groups and _same_recipe(groups[-1][0], found):
                groups[-1] = (groups[-1][0], groups[-1][1] + sizes)
            else:
                groups.append((found, sizes))
        return groups

    def _groups_of_sizes(self, variant: Variant) -> list[tuple[int, ...]]:
        """Micro-batches of one row, which needs no padding, apart; packed rows are all full."""
        if variant.packing is True:
            return [self.space.micro_batches]
        one = tuple(size for size in self.space.micro_batches if size == 1)
        more = tuple(size for size in self.space.micro_batches if size > 1)
        return [sizes for sizes in (one, more) if sizes]

    def _resolve(
        self, variant: Variant, chips: list[int], shape: tuple[int, int], sizes: tuple[int, ...]
    ) -> ResolvedRecipe | None:
        """The recipe of a variant, or None where it cannot run, which is noted."""
        chip = self.space.accelerators[chips[0]]
        stated = one_micro_batch(variant.stated(self.job.recipe), sizes[0], 2)
        nodes, per_node = shape
        try:
            found = resolve_recipe(
                for_chip(stated, chip),
                self.model,
                chip,
                world_size=nodes * per_node,
                num_nodes=nodes,
            )
            return with_trained_share(found, self.dataset.statistics)
        except InputError as error:
            count = len(chips) * len(sizes) * len(self.space.shapes_of(variant.strategy))
            self._refuse(error.mistakes[0].message, variant, chip, shape, count)
            return None

    def _refuse(
        self,
        text: Message,
        variant: Variant,
        chip: Accelerator,
        shape: tuple[int, int],
        count: int,
        micro_batch: int | None = None,
    ) -> None:
        old = self._refusals.get(text.code)
        example = {
            "method": variant.method,
            "parallelism.strategy": variant.strategy,
            "training.packing": variant.packing,
            "hardware.accelerator": chip.name,
            "hardware.num_nodes": shape[0],
            "hardware.accelerators_per_node": shape[1],
        }
        if micro_batch is not None:
            example["training.per_device_train_batch_size"] = micro_batch
        self._refusals[text.code] = Refusal(
            code=text.code,
            message=text if old is None else old.message,
            count=count + (old.count if old else 0),
            example=example if old is None else old.example,
        )

    def _grid(
        self, found: ResolvedRecipe, shapes: list[tuple[int, int]], sizes: tuple[int, ...]
    ) -> _Grid:
        """Micro-batches x shapes of one recipe: lengths, accumulation, memory."""
        recipe = found.recipe
        batches = [self._batch(found, size) for size in sizes]
        ranks = np.array([float(nodes * cards) for nodes, cards in shapes])
        packs = recipe.packing and not self.space.counts_rows
        per_rank = np.array([
            batch.samples if packs else float(size)
            for size, batch in zip(sizes, batches, strict=True)
        ])  # fmt: skip
        accumulation, runs = accumulations(
            self.space, per_rank[None, :] * ranks[:, None], packs=packs
        )
        at = [
            replace(found, parallelism=replace(found.parallelism, data=int(rank)))
            for rank in ranks
        ]  # fmt: skip
        held = self._held(found)
        grid = _Grid(
            shapes=shapes, sizes=sizes, batches=batches, ranks=ranks, accumulation=accumulation,
            runs=runs, held=held, peaks=np.zeros_like(accumulation), at=at,
            step_keys=[self._known(_step_key(one, held)) for one in at],
            exchange_keys=[self._known(_exchange_key(one)) for one in at],
        )  # fmt: skip
        grid.waiting = self._waiting(grid)
        self._fill_peaks(found, grid)
        return grid

    def _held(self, found: ResolvedRecipe) -> Persistent:
        """What is held for the whole run, which no micro-batch changes."""
        key = replace(as_walked(found.recipe), optimizer=found.recipe.optimizer,
                      per_device_train_batch_size=1, gradient_accumulation_steps=1)  # fmt: skip
        if key not in self._persistents:
            self._persistents[key] = persistent(self.model, found.recipe)
        return self._persistents[key]

    def _batch(self, found: ResolvedRecipe, size: int) -> BatchShape:
        recipe = replace(found.recipe, per_device_train_batch_size=size)
        seen = samples_seen(replace(found, recipe=recipe), self.dataset, 1)
        key = (recipe.packing, recipe.max_length, size, recipe.sequences_per_sample, seen)
        if key not in self._batches:
            self._batches[key] = shape_of_batch(
                self.dataset.statistics, recipe, found.run.padding, samples_seen=seen
            )
        return self._batches[key]

    def _walk(self, found: ResolvedRecipe, batches: list[BatchShape], *, worst: bool,
              accumulating: bool) -> Walked:  # fmt: skip
        sequences = np.array([float(batch.sequences) for batch in batches])
        lengths = np.array([
            batch.worst_length if worst else batch.mean_length for batch in batches
        ])  # fmt: skip
        recipe = replace(
            found.recipe,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=2 if accumulating else 1,
        )
        seen = as_walked(seen_by_layers(recipe, found.parallelism))
        key = (seen, sequences.tobytes(), lengths.tobytes())
        if key not in self._walks:
            self._walks[key] = walk_model(
                self.model, seen, Parallelism(), sequences=sequences, length=lengths
            )
        return self._walks[key]

    def _fill_peaks(self, found: ResolvedRecipe, grid: _Grid) -> None:
        """Likely allocated peak, for a chip with small cuBLAS workspaces."""
        splits = found.parallelism.shards_optimizer or found.parallelism.offload.value != "none"
        for several in (False, True):
            mask = ((grid.accumulation > 1) == several) & grid.runs
            if not mask.any():
                continue
            walked = self._walk(found, grid.batches, worst=True, accumulating=several)
            recipe = replace(found.recipe, gradient_accumulation_steps=2 if several else 1)
            for row in range(len(grid.shapes)):
                if not mask[row].any():
                    continue
                layout = grid.at[row].parallelism
                key = (recipe, layout if splits else layout.strategy, id(walked))
                if key not in self._peaks:
                    count = assemble(walked, recipe, layout, grid.held)
                    self._peaks[key] = np.asarray(count.peak_bytes, dtype=float)
                grid.peaks[row] = np.where(mask[row], self._peaks[key], grid.peaks[row])

    # --- Chips -----------------------------------------------------------------------------------

    def _price(
        self,
        index: int,
        variant: Variant,
        found: ResolvedRecipe,
        grid: _Grid,
        chips: list[int],
    ) -> list[dict[str, Floats]]:
        blocks = []
        for chip_index in chips:
            chip = self.space.accelerators[chip_index]
            extra = workspace_bytes(chip.compute_capability) - workspace_bytes(None)
            needed = (grid.peaks + extra) * (1 + FRAGMENTATION.likely) + chip.context_bytes
            try:
                step_s, total_s, usable = self._times(found, grid, needed, chip_index)
            except InputError as error:
                shape = grid.shapes[0]
                count = int(grid.runs.sum())
                self._refuse(error.mistakes[0].message, variant, chip, shape, count)
                continue
            rows, columns = np.nonzero(grid.runs & usable[:, None])
            numbers = np.array([self.space.shapes.index(shape) for shape in grid.shapes])
            sizes = np.array(grid.sizes)
            blocks.append(
                {
                    "variant": np.full(len(rows), float(index)),
                    "chip": np.full(len(rows), float(chip_index)),
                    "shape": numbers[rows].astype(float),
                    "micro_batch": sizes[columns].astype(float),
                    "accumulation": grid.accumulation[rows, columns],
                    "needed_bytes": needed[rows, columns],
                    "step_s": step_s[rows, columns],
                    "total_s": total_s[rows, columns],
                }
            )
        return blocks

    def _times(
        self, found: ResolvedRecipe, grid: _Grid, needed: Floats, chip_index: int
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Seconds of a step and of the run; rows whose cards cannot be joined are not usable.

        Where nothing fits, time is not needed and left at NaN.
        """
        chip = self.space.accelerators[chip_index]
        step_s = np.full(grid.peaks.shape, np.nan)
        total_s = np.full(grid.peaks.shape, np.nan)
        fits = (needed <= chip.capacity_bytes) & grid.runs
        usable = np.array([self._cluster(chip_index, s) is not None for s in grid.shapes])
        if not (fits & usable[:, None]).any():
            return step_s, total_s, usable
        rows = np.flatnonzero(usable & fits.any(axis=1))
        micro_s, forward_s = self._compute(found, grid, chip_index)
        once, per_micro, per_step = self._by_shape(grid, chip_index, rows)
        accumulation = grid.accumulation[rows]
        own = (micro_s + MICRO_BATCH_HOST_S) * accumulation + once
        step_s[rows] = own * (1 + grid.waiting[rows]) + per_micro * accumulation + per_step
        total_s[rows] = self._total(found, grid, rows, step_s[rows], forward_s)
        return step_s, total_s, usable

    def _by_shape(
        self, grid: _Grid, chip_index: int, rows: NDArray[np.intp]
    ) -> tuple[Floats, Floats, Floats]:
        """Seconds by shape, as columns: optimizer, exchange per micro-batch, and once a step."""
        columns = np.zeros((3, len(rows), 1))
        for place, row in enumerate(rows):
            cluster = self._cluster(chip_index, grid.shapes[row])
            assert cluster is not None  # noqa: S101 - the row is usable
            columns[0, place] = self._optimizer_s(grid, row, chip_index)
            columns[1:, place, 0] = self._exchange(grid, row, cluster, chip_index)
        return columns[0], columns[1], columns[2]

    def _waiting(self, grid: _Grid) -> Floats:
        """Share that the slowest rank computes longer, by shape and micro-batch."""
        waiting = np.zeros(grid.accumulation.shape)
        for row, at in enumerate(grid.at):
            share = imbalance_of(
                at.parallelism,
                fixed=False,
                samples_per_rank=grid.samples * grid.accumulation[row],
                spread=self.spread,
            )
            waiting[row] = np.where(grid.fixed, 0.0, share)
        return waiting

    def _known(self, facts: tuple[Any, ...]) -> int:
        """A number for equal facts, which is quicker to look up than the facts."""
        return self._facts.setdefault(facts, len(self._facts))

    def _cluster(self, chip_index: int, shape: tuple[int, int]) -> Cluster | None:
        key = (chip_index, self.space.shapes.index(shape))
        if key not in self._clusters:
            hardware = self.job.hardware
            try:
                self._clusters[key] = resolve_cluster(
                    self.space.accelerators[chip_index],
                    num_nodes=shape[0],
                    accelerators_per_node=shape[1],
                    interconnect=hardware.interconnect,
                    inter_node=hardware.inter_node,
                    host_memory_bytes=hardware.host_memory_bytes,
                    disk_bytes_per_s=hardware.disk_bytes_per_s,
                    disk_bytes=hardware.disk_bytes,
                ).cluster
            except InputError as error:
                self._clusters[key] = None
                chip, variant = self.space.accelerators[chip_index], self.space.variants()[0]
                self._refuse(error.mistakes[0].message, variant, chip, shape, 0)
        return self._clusters[key]

    def _compute(
        self, found: ResolvedRecipe, grid: _Grid, chip_index: int
    ) -> tuple[Floats, Floats]:
        """Seconds of one micro-batch, and of its forward pass."""
        curves = self.curves[chip_index]
        if grid.mean is None:
            grid.mean = self._walk(found, grid.batches, worst=False, accumulating=False)
        walked = grid.mean
        key = (id(walked), curves.accelerator)
        if key not in self._computed:
            if id(walked) not in self._bundles:
                self._bundles[id(walked)] = bundle(listed_operations(walked))
            total, forward = bundle_time(
                self._bundles[id(walked)], curves, compiled=found.recipe.kernels.compiled
            )
            self._computed[key] = (np.asarray(total), np.asarray(forward))
        return self._computed[key]

    def _optimizer_s(self, grid: _Grid, row: int, chip_index: int) -> float:
        key = (chip_index, grid.step_keys[row])
        if key not in self._optimizer:
            found = grid.at[row]
            operations = step_operations(grid.held, found.recipe, found.parallelism)
            computed = compute_time((), operations, found.recipe, self.curves[chip_index])
            self._optimizer[key] = float(np.asarray(computed.total_s))
        return self._optimizer[key]

    def _exchange(
        self, grid: _Grid, row: int, cluster: Cluster, chip_index: int
    ) -> tuple[float, float]:
        """Seconds of communication and offload: per micro-batch, and once a step."""
        found = grid.at[row]
        layout = found.parallelism
        if layout.world_size == 1 and layout.offload.value == "none":
            return 0.0, 0.0
        key = (
            chip_index, cluster.num_nodes, cluster.accelerators_per_node, grid.exchange_keys[row],
        )  # fmt: skip
        if key not in self._communication:
            recipe = found.recipe
            facts = (recipe.method, recipe.adapter, recipe.quantization, recipe.compute_dtype)
            if facts not in self._units:
                self._units[facts] = communication_units(self.model, recipe)
            units = self._units[facts]
            if not grid.accumulated:
                grid.accumulated = tuple(
                    replace(recipe, gradient_accumulation_steps=steps) for steps in (1, 2)
                )
            one, two = (
                _exchange_s(units, stepping, layout, cluster, self.curves[chip_index])
                for stepping in grid.accumulated
            )
            self._communication[key] = (two - one, 2 * one - two)
        return self._communication[key]

    def _total(
        self,
        found: ResolvedRecipe,
        grid: _Grid,
        rows: NDArray[np.intp],
        step_s: Floats,
        forward_s: Floats,
    ) -> Floats:
        statistics = self.dataset.statistics
        if statistics is None or not statistics.num_samples:
            return np.full(step_s.shape, np.nan)
        recipe = found.recipe
        run = likely_run(
            step_s=step_s,
            forward_s=forward_s,
            sequences=np.array([float(batch.sequences) for batch in grid.batches]),
            samples=grid.samples,
            num_samples=statistics.num_samples,
            num_eval_samples=statistics.num_eval_samples,
            accumulation=grid.accumulation[rows],
            ranks=grid.ranks[rows][:, None],
            disk_bytes_per_s=self.job.hardware.disk_bytes_per_s,
            schedule=schedule_of(found),
            checkpoint_bytes=checkpoint_size(self.model, recipe, grid.held),
            model_bytes=float(self.model.total_parameters * recipe.frozen_dtype.num_bytes),
        )
        return np.asarray(run.total_s)


_COLUMNS = (
    "variant", "chip", "shape", "micro_batch", "accumulation", "needed_bytes", "step_s", "total_s",
)  # fmt: skip


@dataclass(slots=True)
class _Grid:
    """Shapes x micro-batches of one recipe.

    Attributes:
        accumulation: Micro-batches of a step; ``runs`` where that is at least one.
        peaks: Likely allocated bytes.
        at: The recipe with the layout of each shape.
        step_keys, exchange_keys: Equal where the optimizer, and the exchange, is the same.
        waiting: Share that the slowest rank computes longer.
        mean: The walk of average micro-batches, once it is asked for.
        accumulated: The recipe with one and with two micro-batches a step, once asked for.
    """

    shapes: list[tuple[int, int]]
    sizes: tuple[int, ...]
    batches: list[BatchShape]
    ranks: Floats
    accumulation: Floats
    runs: NDArray[np.bool_]
    held: Persistent
    peaks: Floats
    at: list[ResolvedRecipe]
    step_keys: list[int]
    exchange_keys: list[int]
    waiting: Floats = field(default_factory=lambda: np.empty(0))
    mean: Walked | None = None
    accumulated: tuple[TrainingRecipe, ...] = ()

    @property
    def samples(self) -> Floats:
        """Samples in a micro-batch of each size."""
        return np.array([batch.samples for batch in self.batches])

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether all micro-batches of a size have the same positions."""
        return np.array([batch.mean_length >= batch.limit_length for batch in self.batches])


def _same_recipe(one: ResolvedRecipe, other: ResolvedRecipe) -> bool:
    """Whether two recipes differ in their micro-batch alone."""
    alike = replace(
        other.recipe, per_device_train_batch_size=one.recipe.per_device_train_batch_size
    )
    return (one.recipe, one.parallelism, one.run) == (alike, other.parallelism, other.run)


def _step_key(found: ResolvedRecipe, held: Persistent) -> tuple[Any, ...]:
    layout = found.parallelism
    return (
        "step", layout.strategy, layout.shards, layout.offload, found.recipe.method,
        found.recipe.optimizer, held.num_trained,
    )  # fmt: skip


def _exchange_key(found: ResolvedRecipe) -> tuple[Any, ...]:
    recipe = found.recipe
    return (
        "exchange", found.parallelism, recipe.method, recipe.adapter, recipe.quantization,
        recipe.compute_dtype, recipe.gradient_dtype, recipe.gradients_unsharded_while_accumulating,
    )  # fmt: skip


def _exchange_s(
    units: tuple[Unit, ...],
    recipe: TrainingRecipe,
    layout: Parallelism,
    cluster: Cluster,
    curves: ChipCurves,
) -> float:
    seconds = communication_term(units, recipe, layout, cluster, curves).value
    offload = offload_term(units, recipe, layout, cluster)
    return seconds + (offload.value if offload is not None else 0.0)


def as_walked(seen: TrainingRecipe) -> TrainingRecipe:
    """The recipe without what no layer looks at, so that layouts share their walks."""
    optimizer = replace(_ANY_OPTIMIZER, in_backward=seen.optimizer.in_backward)
    return replace(
        seen,
        optimizer=optimizer,
        gradients_unsharded_while_accumulating=False,
        upcast_under_fsdp=False,
        reference_model=False,
        max_grad_norm=None,
        packing=False,
    )
