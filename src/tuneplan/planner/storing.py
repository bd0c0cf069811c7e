"""Bytes of a configuration's checkpoints: of one, and of all that are on disk at once."""

from __future__ import annotations

from tuneplan.economics.storage import checkpoint_bytes, kept_bytes
from tuneplan.estimation.persistent import Persistent
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import CheckpointContent, Method, TrainingRecipe


def checkpoint_size(model: ModelArchitecture, recipe: TrainingRecipe, held: Persistent) -> float:
    """Bytes of one checkpoint."""
    return checkpoint_bytes(**checkpoint_content(model, recipe, held))


def checkpoint_content(
    model: ModelArchitecture, recipe: TrainingRecipe, held: Persistent
) -> dict[str, float]:
    """What trains (or the whole model), in the dtype it is saved in, with optimizer states.

    Full and freeze write the whole model; adapters are written alone, or merged into the model and
    beside it, as the framework does. The keys are the arguments of
    ``economics.storage.checkpoint_bytes``.
    """
    content, whole = recipe.checkpoint_content, float(model.total_parameters)
    if recipe.method in (Method.FULL, Method.FREEZE):
        saved, width = whole, float(recipe.frozen_dtype.num_bytes)
    else:
        saved = float(held.num_trained)
        width = float(recipe.adapter.dtype.num_bytes if recipe.adapter else 4)
        if content is CheckpointContent.MERGED:
            merged = whole * recipe.frozen_dtype.num_bytes
            saved, width = saved + whole, (saved * width + merged) / (saved + whole)
    states = held.state_bytes + held.paged_state_bytes + held.master_bytes
    if content is CheckpointContent.WEIGHTS:
        states = 0.0
    return {
        "num_saved_parameters": saved,
        "bytes_per_parameter": width,
        "num_trained_parameters": held.num_trained,
        "optimizer_bytes_per_parameter": states / max(held.num_trained, 1),
    }


def kept_size(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    held: Persistent,
    *,
    num_saves: int,
    save_total_limit: int | None,
) -> float:
    """Bytes of all checkpoints at once; states that are written over are there once."""
    one = checkpoint_size(model, recipe, held)
    once = 0.0
    if recipe.checkpoint_content is CheckpointContent.MERGED and num_saves:
        content = checkpoint_content(model, recipe, held)
        once = content["num_trained_parameters"] * content["optimizer_bytes_per_parameter"]
    repeated = kept_bytes(
        one_checkpoint_bytes=one - once, num_saves=num_saves, save_total_limit=save_total_limit
    )
    return repeated + once
