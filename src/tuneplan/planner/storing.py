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

    Full and freeze write the whole model; adapters are written alone, with two exceptions:

    - torchtune's LoRA recipes write the merged model beside the adapter unless
      ``save_adapter_weights_only`` is set, which it is not by default
      (``recipes/lora_finetune_single_device.py: save_checkpoint``);
    - LitGPT's write the tensors of LoRA and no optimizer states
      (``litgpt/finetune/lora.py: save_lora_checkpoint``, 0.5.13).

    The keys are the arguments of ``economics.storage.checkpoint_bytes``.
    """
    states = held.state_bytes + held.paged_state_bytes + held.master_bytes
    if recipe.method in (Method.FULL, Method.FREEZE):
        saved, width = float(model.total_parameters), float(recipe.frozen_dtype.num_bytes)
    else:
        saved = float(held.num_trained)
        width = float(recipe.adapter.dtype.num_bytes if recipe.adapter else 4)
        if recipe.framework == "torchtune":
            merged = model.total_parameters * recipe.frozen_dtype.num_bytes
            saved, width = (
                saved + model.total_parameters,
                ((saved * width + merged) / (saved + model.total_parameters)),
            )
        elif recipe.framework == "litgpt":
            states = 0.0
    return {
        "num_saved_parameters": saved,
        "bytes_per_parameter": width,
        "num_trained_parameters": held.num_trained,
        "optimizer_bytes_per_parameter": states / max(held.num_trained, 1),
    }
