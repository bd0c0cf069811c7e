"""Every candidate of a space evaluated at once, on likely figures only.

What depends on the recipe alone (the walk of the model, counts of operations) is computed once
for all chips, counts and micro-batches, as arrays; a chip prices the operations once for all
counts. The same functions serve ``estimate``, so a candidate's figures here are those of its
estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.catalog.links import resolve_cluster
from tuneplan.errors import InputError
from tuneplan.estimation.batches import BatchShape
from tuneplan.estimation.communication import communication_term
from tuneplan.estimation.memory import assemble
from tuneplan.estimation.offload import offload_term
from tuneplan.estimation.operations import Operation
from tuneplan.estimation.optimizer_step import step_operations
from tuneplan.estimation.persistent import Persistent, persistent
from tuneplan.estimation.run_time import Schedule, likely_run
from tuneplan.estimation.sharded_units import Unit, communication_units
from tuneplan.estimation.step_time import MICRO_BATCH_HOST_S, ComputeTime, compute_time
from tuneplan.estimation.uncertainty import FRAGMENTATION
from tuneplan.estimation.walking import Walked, walk_model
from tuneplan.frameworks.resolve import ResolvedRecipe, resolve_recipe
from tuneplan.language import Message
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.evaluating import imbalance_of, listed_operations, shape_of_batch
from tuneplan.planner.resolving import samples_seen, schedule_of
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import Space, Variant
from tuneplan.planner.storing import checkpoint_size
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.spec.kernels import ChipCurves
from tuneplan.spec.stated import StatedJob, StatedRecipe

Floats = NDArray[np.float64]
ChipClass = tuple[str, bool, bool, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Candidates that cannot run at all, and why."""

    code: str
    message: Message
    count: int
    example: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One row a candidate that can run, whether it fits or not.

    Attributes:
        variant, chip, shape: Indices into ``variants``, ``space.accelerators``, ``space.shapes``.
        accumulation: Micro-batches of an optimizer step.
        needed_bytes: Allocated peak, unusable fragmentation and context of one card.
        total_s: Of the whole run; NaN where the data is not known.
    """

    variants: tuple[Variant, ...]
    space: Space
    variant: NDArray[np.intp]
    chip: NDArray[np.intp]
    shape: NDArray[np.intp]
    micro_batch: NDArray[np.intp]
    accumulation: NDArray[np.intp]
    needed_bytes: Floats
    step_s: Floats
    total_s: Floats
    refusals: tuple[Refusal, ...]

    def __len__(self) -> int:
        return len(self.variant)

    def settings(self, row: int) -> dict[str, Any]:
        """The chosen job keys of a candidate."""
        variant = self.variants[self.variant[row]]
        nodes, per_node = self.space.shapes[self.shape[row]]
        return {
            "hardware.accelerator": self.space.accelerators[self.chip[row]].name,
            "hardware.num_nodes": nodes,
            "hardware.accelerators_per_node": per_node,
            "method": variant.method,
            "parallelism.strategy": variant.strategy,
            "training.gradient_checkpointing": variant.gradient_checkpointing,
            "training.packing": variant.packing,
            "training.per_device_train_batch_size": int(self.micro_batch[row]),
            "training.gradient_accumulation_steps": int(self.accumulation[row]),
        }

    def identifier(self, row: int) -> str:
        """A short stable name: chip, cards, method, layout, micro-batch and flags."""
        settings = self.settings(row)
        nodes = settings["hardware.num_nodes"]
        cards = settings["hardware.accelerators_per_node"]
        words = [
            settings["hardware.accelerator"].replace(" ", "-"),
            f"{nodes}x{cards}",
            str(settings["method"]),
            str(settings["parallelism.strategy"]),
            f"b{settings['training.per_device_train_batch_size']}",
        ]
        if settings["training.gradient_checkpointing"]:
            words.append("ckpt")
        if settings["training.packing"]:
            words.append("packed")
        return "_".join(words).lower()


def class_of(accelerator: Accelerator) -> ChipClass:
    """What of a chip decides the recipe: vendor, bf16, flash attention, generation."""
    return (
        accelerator.vendor,
        accelerator.supports_bf16,
        accelerator.supports_flash_attention_2,
        int(accelerator.compute_capability or 0),
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
        self.batches = np.asarray(space.micro_batches, dtype=float)
        self.curves = [sources.curves(chip) for chip in space.accelerators]
        self.classes: dict[ChipClass, list[int]] = {}
        for index, chip in enumerate(space.accelerators):
            self.classes.setdefault(class_of(chip), []).append(index)
        self._walks: dict[Any, Walked] = {}
        self._clusters: dict[tuple[int, int], Cluster | None] = {}
        self._communication: dict[Any, tuple[float, float]] = {}
        self._computed: dict[Any, ComputeTime] = {}
        self._refusals: dict[str, Refusal] = {}

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
        shapes = self.space.shapes_of(variant.strategy)
        blocks = []
        for shape in shapes:
            found = self._resolve(variant, chips, shape)
            if found is None:
                continue
            blocks += self._evaluate_shape(index, found, chips, shape)
        return blocks

    def _resolve(
        self, variant: Variant, chips: list[int], shape: tuple[int, int]
    ) -> ResolvedRecipe | None:
        """The recipe of a variant, or None where it cannot run, which is noted."""
        chip = self.space.accelerators[chips[0]]
        stated = for_chip(one_micro_batch(variant.stated(self.job.recipe), 1, 1), chip)
        nodes, per_node = shape
        try:
            return resolve_recipe(
                stated, self.model, chip, world_size=nodes * per_node, num_nodes=nodes
            )
        except InputError as error:
            self._refuse(error.mistakes[0].message, variant, chip, shape, len(chips))
            return None

    def _refuse(
        self,
        text: Message,
        variant: Variant,
        chip: Accelerator,
        shape: tuple[int, int],
        chips: int,
    ) -> None:
        count = chips * len(self.batches)
        old = self._refusals.get(text.code)
        example = {
            "method": variant.method,
            "parallelism.strategy": variant.strategy,
            "training.packing": variant.packing,
            "hardware.accelerator": chip.name,
            "hardware.accelerators_per_node": shape[1],
        }
        self._refusals[text.code] = Refusal(
            code=text.code,
            message=text if old is None else old.message,
            count=count + (old.count if old else 0),
            example=example if old is None else old.example,
        )

    def _evaluate_shape(
        self, index: int, found: ResolvedRecipe, chips: list[int], shape: tuple[int, int]
    ) -> list[dict[str, Floats]]:
        nodes, per_node = shape
        ranks = nodes * per_node
        shaped = self._shaped(found, ranks)
        if not shaped:
            return []
        held = persistent(self.model, found.recipe)
        capability = self.space.accelerators[chips[0]].compute_capability
        peak = self._peaks(found, shaped, held, capability)
        blocks = []
        for chip_index in chips:
            cluster = self._cluster(chip_index, shape)
            if cluster is None:
                continue
            needed = peak * (1 + FRAGMENTATION.likely) + cluster.accelerator.context_bytes
            try:
                step_s, total_s = self._times(found, shaped, held, chip_index, cluster)
            except InputError as error:
                text = error.mistakes[0].message
                variant = self.space.variants()[index]
                self._refuse(text, variant, cluster.accelerator, shape, 1)
                continue
            size = len(shaped)
            blocks.append(
                {
                    "variant": np.full(size, float(index)),
                    "chip": np.full(size, float(chip_index)),
                    "shape": np.full(size, float(self.space.shapes.index(shape))),
                    "micro_batch": np.array([float(one.micro_batch) for one in shaped]),
                    "accumulation": np.array([float(one.accumulation) for one in shaped]),
                    "needed_bytes": needed,
                    "step_s": step_s,
                    "total_s": total_s,
                }
            )
        return blocks

    def _shaped(self, found: ResolvedRecipe, ranks: int) -> list[_Shaped]:
        """Each micro-batch that divides the work, with its accumulation and lengths."""
        shaped = []
        for size in self.space.micro_batches:
            recipe = replace(found.recipe, per_device_train_batch_size=size)
            one = replace(found, recipe=recipe)
            seen = samples_seen(one, self.dataset, ranks)
            batch = shape_of_batch(
                self.dataset.statistics, recipe, found.run.padding, samples_seen=seen
            )
            accumulation = accumulation_for(
                self.space.global_batch_size, batch, size, ranks, packing=recipe.packing
            )
            if accumulation is None:
                continue
            shaped.append(_Shaped(micro_batch=size, accumulation=accumulation, batch=batch))
        return shaped

    def _walk(
        self, found: ResolvedRecipe, sequences: Floats, lengths: Floats, *, accumulating: bool
    ) -> Walked:
        recipe = replace(
            found.recipe,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=2 if accumulating else 1,
        )
        sharded = found.parallelism.shards_parameters
        key = (recipe, sharded, sequences.tobytes(), lengths.tobytes())
        if key not in self._walks:
            self._walks[key] = walk_model(
                self.model, recipe, found.parallelism, sequences=sequences, length=lengths
            )
        return self._walks[key]

    def _peaks(
        self,
        found: ResolvedRecipe,
        shaped: list[_Shaped],
        held: Persistent,
        capability: float | None,
    ) -> Floats:
        """Likely allocated peak of each micro-batch."""
        sequences = np.array([float(one.batch.sequences) for one in shaped])
        lengths = np.array([one.batch.worst_length for one in shaped])
        accumulating = np.array([one.accumulation > 1 for one in shaped])
        peaks = np.zeros(len(shaped))
        for several in (False, True):
            mask = accumulating == several
            if not mask.any():
                continue
            walked = self._walk(found, sequences[mask], lengths[mask], accumulating=several)
            recipe = replace(found.recipe, gradient_accumulation_steps=2 if several else 1)
            count = assemble(walked, recipe, found.parallelism, held, capability)
            peaks[mask] = count.peak_bytes
        return peaks

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
                self._refuse(
                    error.mistakes[0].message, self.space.variants()[0],
                    self.space.accelerators[chip_index], shape, 1,
                )  # fmt: skip
        return self._clusters[key]

    # --- Time ----------------------------------------------------------------------------------

    def _times(
        self,
        found: ResolvedRecipe,
        shaped: list[_Shaped],
        held: Persistent,
        chip_index: int,
        cluster: Cluster,
    ) -> tuple[Floats, Floats]:
        sequences = np.array([float(one.batch.sequences) for one in shaped])
        lengths = np.array([one.batch.mean_length for one in shaped])
        accumulation = np.array([float(one.accumulation) for one in shaped])
        compute, forward = self._compute(found, sequences, lengths, chip_index)
        curves = self.curves[chip_index]
        per_micro, per_step = self._exchange(found, cluster, curves, chip_index)
        step_kernels = compute_time(
            (), step_operations(held, found.recipe, found.parallelism), found.recipe, curves
        )
        own = compute * accumulation + np.asarray(step_kernels.total_s)
        own = own + MICRO_BATCH_HOST_S * accumulation
        communication = per_micro * accumulation + per_step
        waiting = np.array([
            imbalance_of(found.parallelism, one.batch, one.accumulation, self.dataset.statistics)
            for one in shaped
        ])  # fmt: skip
        step_s = own * (1 + waiting) + communication
        return step_s, self._total(found, shaped, held, cluster, step_s, forward)

    def _compute(
        self, found: ResolvedRecipe, sequences: Floats, lengths: Floats, chip_index: int
    ) -> tuple[Floats, Floats]:
        """Seconds of one micro-batch, and of its forward pass."""
        curves = self.curves[chip_index]
        walked = self._walk(found, sequences, lengths, accumulating=False)
        key = (id(walked), curves.accelerator)
        if key not in self._computed:
            recipe = replace(found.recipe, gradient_accumulation_steps=1)
            self._computed[key] = compute_time(self._listed(walked), (), recipe, curves)
        computed = self._computed[key]
        return np.asarray(computed.total_s), np.asarray(computed.forward_s)

    def _listed(self, walked: Walked) -> tuple[Operation, ...]:
        key = ("operations", id(walked))
        if key not in self._walks:
            self._walks[key] = listed_operations(walked)  # type: ignore[assignment]
        return self._walks[key]  # type: ignore[return-value]

    def _exchange(
        self, found: ResolvedRecipe, cluster: Cluster, curves: ChipCurves, chip_index: int
    ) -> tuple[float, float]:
        """Seconds of communication and offload: per micro-batch, and once a step."""
        if found.parallelism.world_size == 1 and found.parallelism.offload.value == "none":
            return 0.0, 0.0
        recipe = found.recipe
        key = (
            chip_index, cluster.num_nodes, cluster.accelerators_per_node, found.parallelism,
            recipe.method, recipe.adapter, recipe.quantization, recipe.compute_dtype,
            recipe.gradient_dtype, recipe.gradients_unsharded_while_accumulating,
        )  # fmt: skip
        if key not in self._communication:
            units = communication_units(self.model, recipe)
            one, two = (
                _exchange_s(units, found, cluster, curves, accumulation) for accumulation in (1, 2)
            )
            self._communication[key] = (two - one, 2 * one - two)
        return self._communication[key]

    def _total(
        self,
        found: ResolvedRecipe,
        shaped: list[_Shaped],
        held: Persistent,
        cluster: Cluster,
        step_s: Floats,
        forward_s: Floats,
    ) -> Floats:
        statistics = self.dataset.statistics
        if statistics is None or not statistics.num_samples:
            return np.full(len(shaped), np.nan)
        schedule: Schedule = schedule_of(found)
        model_bytes = float(self.model.total_parameters * found.recipe.frozen_dtype.num_bytes)
        checkpoint = checkpoint_size(self.model, found.recipe, held)
        return np.array([
            likely_run(
                step_s=float(step_s[position]),
                forward_s=float(forward_s[position]),
                batch=one.batch,
                num_samples=statistics.num_samples,
                num_eval_samples=statistics.num_eval_samples,
                accumulation=one.accumulation,
                ranks=found.parallelism.data,
                cluster=cluster,
                schedule=schedule,
                checkpoint_bytes=checkpoint,
                model_bytes=model_bytes,
            ).total_s
            for position, one in enumerate(shaped)
        ])  # fmt: skip


_COLUMNS = (
    "variant", "chip", "shape", "micro_batch", "accumulation", "needed_bytes", "step_s", "total_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shaped:
    """One micro-batch size on a number of ranks."""

    micro_batch: int
    accumulation: int
    batch: BatchShape


def _exchange_s(
    units: tuple[Unit, ...],
    found: ResolvedRecipe,
    cluster: Cluster,
    curves: ChipCurves,
    accumulation: int,
) -> float:
    recipe = replace(found.recipe, gradient_accumulation_steps=accumulation)
    seconds = communication_term(units, recipe, found.parallelism, cluster, curves).value
    offload = offload_term(units, recipe, found.parallelism, cluster)
    return seconds + (offload.value if offload is not None else 0.0)


def one_micro_batch(stated: StatedRecipe, micro_batch: int, accumulation: int) -> StatedRecipe:
    """The recipe with a micro-batch and an accumulation in place of a blank or a choice."""
    training = replace(
        stated.training,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
        global_batch_size=None,
    )
    return replace(stated, training=training)


def for_chip(stated: StatedRecipe, chip: Accelerator) -> StatedRecipe:
    """fp16 in place of a blank precision on a chip that has no bf16."""
    if chip.supports_bf16 or stated.training.precision is not None:
        return stated
    return replace(stated, training=replace(stated.training, precision="fp16"))


def accumulation_for(
    global_batch_size: int, batch: BatchShape, micro_batch: int, ranks: int, *, packing: bool
) -> int | None:
    """Micro-batches that make one optimizer step; None where even one is more than asked for.

    With packing a row holds several samples: the step keeps the number of samples, not of rows.
    """
    samples = batch.samples if packing else float(micro_batch)
    accumulation = global_batch_size / (samples * ranks)
    if accumulation < 1 and samples * ranks > global_batch_size and micro_batch > 1:
        return None
    return max(1, math.ceil(accumulation - 1e-9))
