"""What a job shares with the runs that were measured: the words that evidence is grouped by."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import TrainingRecipe


class Figure(StrEnum):
    """A figure that is calibrated. Memory of the whole device is reserved memory and a context."""

    ALLOCATED = "peak_bytes"
    RESERVED = "peak_reserved_bytes"
    TOKENS = "tokens_per_s_per_accelerator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A job in the words of the evidence.

    Attributes:
        code: Whose model code runs (``transformers``, ``litgpt``, ...).
        framework: The program that trains.
        layout: ``one`` card, ``ddp``, ``fsdp``, ``zero1`` to ``zero3``, ``device_map``, or
            ``split`` for tensor, pipeline, context or expert ranks.
        method: As in the job file.
        chip: Catalogue name; blank where none is stated.
    """

    code: str
    framework: str
    layout: str
    method: str
    chip: str

    def cell(self, fields: tuple[str, ...]) -> str:
        """Its place in a tier: the values of the tier's fields."""
        return " | ".join(getattr(self, field) for field in fields)


_LAYOUTS: Final = MappingProxyType({Strategy.FSDP2: "fsdp", Strategy.HSDP: "fsdp"})


def situation_of(
    recipe: TrainingRecipe, parallelism: Parallelism, accelerator: Accelerator | str | None
) -> Situation:
    """The situation of a resolved job; the accelerator may be its catalogue name."""
    if parallelism.splits_model:
        layout = "split"
    elif parallelism.world_size == 1 and parallelism.strategy is not Strategy.DEVICE_MAP:
        layout = "one"
    else:
        layout = _LAYOUTS.get(parallelism.strategy, parallelism.strategy.value)
    return Situation(
        code=recipe.kernels.model_code,
        framework=recipe.framework,
        layout=layout,
        method=recipe.method.value,
        chip=accelerator.name if isinstance(accelerator, Accelerator) else accelerator or "",
    )
