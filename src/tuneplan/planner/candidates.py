"""The candidates of a search as a table, and what a planner chooses for the blanks of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.errors import Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message
from tuneplan.planner.space import Space, Variant
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.stated import StatedRecipe

Floats = NDArray[np.float64]
ChipClass = tuple[str, bool, bool, int]

# How far the samples of a step may be from those asked for. A packed row holds a mean number of
# samples, which no choice makes exact.
BATCH_TOLERANCE: Final = 0.1
_PACKED_BATCH_TOLERANCE: Final = 0.34


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Candidates that cannot run at all, and why.

    Attributes:
        mistake: Where that is a mistake of the job.
    """

    code: str
    message: Message
    count: int
    example: Mapping[str, Any]
    mistake: Mistake | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One row a candidate that can run, whether it fits or not.

    Attributes:
        variant, chip, shape: Indices into ``variants``, ``space.accelerators``, ``space.shapes``.
        accumulation: Micro-batches of an optimizer step.
        needed_bytes: Allocated peak, unusable fragmentation and context of one card.
        total_s: Of the whole run; NaN where the data is not known.
        segment_s: Of the run between two checkpoints.
    """

    variants: tuple[Variant, ...]
    recipe: StatedRecipe
    space: Space
    variant: NDArray[np.intp]
    chip: NDArray[np.intp]
    shape: NDArray[np.intp]
    micro_batch: NDArray[np.intp]
    accumulation: NDArray[np.intp]
    needed_bytes: Floats
    step_s: Floats
    total_s: Floats
    segment_s: Floats
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
            **self._chosen_by_chip(row),
        }

    def _chosen_by_chip(self, row: int) -> dict[str, Any]:
        """Precision and dtype where the job left them blank and the chip decides."""
        before = self.variants[self.variant[row]].stated(self.recipe)
        after = for_chip(before, self.space.accelerators[self.chip[row]]).training
        return {
            f"training.{key}": getattr(after, key)
            for key in ("dtype", "precision", "attn_implementation")
            if getattr(after, key) != getattr(before.training, key)
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


def accumulations(
    space: Space, samples: Floats, *, packs: bool
) -> tuple[Floats, NDArray[np.bool_]]:
    """Micro-batches of a step for ``samples`` in one on all cards, and where they make a step.

    All candidates see about the same samples in a step, so that they train alike. A stated
    accumulation is kept: the samples of a step then grow with the cards, unless they are stated.
    """
    wanted = space.global_batch_size / samples
    if space.accumulation is not None:
        fixed = np.full(samples.shape, float(space.accumulation))
        if not space.global_batch_stated:
            return fixed, np.ones(samples.shape, dtype=bool)
        return fixed, np.abs(fixed / wanted - 1) <= 1e-9
    nearest = np.maximum(1.0, np.round(wanted))
    tolerance = _PACKED_BATCH_TOLERANCE if packs else BATCH_TOLERANCE
    return nearest, np.abs(nearest / wanted - 1) <= tolerance


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
    """What a planner chooses for blanks by the chip: weights' dtype, precision, attention.

    A frozen base loses nothing in 16 bits; fp16 takes the place of bf16 on chips without it.
    Packed samples are kept apart by FlashAttention 2 where the chip has it.
    """
    training = stated.training
    half = "bfloat16" if chip.supports_bf16 else "float16"
    if not chip.supports_bf16 and training.precision is None:
        training = replace(training, precision="fp16")
    if training.dtype is None and stated.method not in (None, "full", "freeze"):
        training = replace(training, dtype=half)
    flash = chip.supports_flash_attention_2 and half == "bfloat16"
    flash = flash and not stated.parallelism.splits_model  # Megatron picks its kernel by the chip
    if training.packing is True and training.attn_implementation is None and flash:
        training = replace(training, attn_implementation="flash_attention_2")
    return replace(stated, training=training)
