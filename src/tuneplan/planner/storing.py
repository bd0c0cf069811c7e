"""Bytes of a checkpoint of a configuration."""

from __future__ import annotations

from tuneplan.economics.storage import checkpoint_bytes
from tuneplan.estimation.persistent import Persistent
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Method, TrainingRecipe


def checkpoint_size(model: ModelArchitecture, recipe: TrainingRecipe, held: Persistent) -> float:
    """Bytes of one checkpoint."""
    return checkpoint_bytes(**checkpoint_content(model, recipe, held))


def checkpoint_content(
    model: ModelArchitecture, recipe: TrainingRecipe, held: Persistent
) -> dict[str, float]:
    """What trains (or the whole model), in the dtype it is saved in, with optimizer states.

    Full and freeze write the whole model; adapters are written alone. The keys are the arguments
    of ``economics.storage.checkpoint_bytes``.
    """
    if recipe.method in (Method.FULL, Method.FREEZE):
        saved, width = float(model.total_parameters), recipe.frozen_dtype.num_bytes
    else:
        saved = float(held.num_trained)
        width = recipe.adapter.dtype.num_bytes if recipe.adapter else 4
    states = held.state_bytes + held.paged_state_bytes + held.master_bytes
    return {
        "num_saved_parameters": saved,
        "bytes_per_parameter": width,
        "num_trained_parameters": held.num_trained,
        "optimizer_bytes_per_parameter": states / max(held.num_trained, 1),
    }
