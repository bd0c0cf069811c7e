"""PEFT's own adapters on the parts of a model that a recipe names."""

from __future__ import annotations

import re
from typing import Any

import torch

from tuneplan.estimation.roles import with_expert_targets
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Adapter, Objective, TrainingRecipe
from tuneplan.spec.weights import WeightKind, leaf_of


def adapt(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    config: Any = None,
) -> torch.nn.Module:
    """The model with adapters.

    Args:
        model: On the device, prepared.
        architecture: Says which weights are routers, and what is the language model.
        recipe: Says targets, rank and dtypes.
        config: A configuration of PEFT's own in place of the recipe's.
    """
    from peft import get_peft_model

    bits = recipe.quantization.bits if recipe.quantization else 16
    model.is_loaded_in_4bit = bits == 4  # type: ignore[assignment]
    model.is_loaded_in_8bit = bits == 8  # type: ignore[assignment]
    if config is not None:
        other = get_peft_model(model, config)  # type: ignore[arg-type]
        assert isinstance(other, torch.nn.Module)  # noqa: S101 - what PEFT returns
        return other
    recipe = with_expert_targets(architecture, recipe)
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - the caller asks
    wide = torch_dtype(adapter.dtype) is torch.float32
    config = _lora(model, architecture, recipe)
    adapted = get_peft_model(model, config, autocast_adapter_dtype=wide)  # type: ignore[arg-type]
    for name, parameter in adapted.named_parameters():
        dtype = parameter.dtype
        if "lora_" in name:
            dtype = torch_dtype(adapter.dtype)
        elif "modules_to_save" in name:
            dtype = torch_dtype(recipe.trainable_dtype)
        if parameter.dtype is not dtype:
            parameter.data = parameter.data.to(dtype)
    assert isinstance(adapted, torch.nn.Module)  # noqa: S101 - what PEFT returns
    return adapted


def torch_dtype(name: object) -> torch.dtype:
    """PyTorch's dtype of a name."""
    dtype = getattr(torch, str(name))
    assert isinstance(dtype, torch.dtype)  # noqa: S101 - names come from our own enum
    return dtype


def _lora(model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe) -> Any:
    from peft import LoraConfig

    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - the caller asks
    stacked = _stacked_targets(architecture, adapter)
    # Before PEFT 0.17 no parameter could be adapted by its name alone, and the word was unknown.
    newer = {"target_parameters": list(stacked)} if stacked else {}
    return LoraConfig(
        r=adapter.r,
        lora_alpha=int(adapter.lora_alpha),
        lora_dropout=adapter.lora_dropout,
        use_rslora=adapter.use_rslora,
        use_dora=adapter.use_dora,
        target_modules=_targets(model, architecture, recipe),
        rank_pattern={_ending(name): adapter.r * factor for name, factor in stacked.items()},
        alpha_pattern={
            _ending(name): int(adapter.lora_alpha) * factor for name, factor in stacked.items()
        },
        modules_to_save=list(adapter.modules_to_save) or None,
        task_type="SEQ_CLS" if recipe.objective is Objective.RM else "CAUSAL_LM",
        **newer,
    )


def _stacked_targets(architecture: ModelArchitecture, adapter: Adapter) -> dict[str, int]:
    """Parameters of routed experts and routers that are adapted, each with its rank's factor.

    PEFT turns the names of linears that were stacked into one parameter into that parameter's,
    and their ranks into the sum (``utils/transformers_weight_conversion.py``, 0.19 to 0.21).
    """
    routers = {
        weight.leaf for _, weight, _ in architecture.weights() if weight.kind is WeightKind.ROUTER
    }
    return {
        f"{name}.weight" if name in routers else name: factor
        for name, factor in adapter.expert_targets or ()
    }


def _ending(name: str) -> str:
    return rf".*\.{re.escape(name)}"


def _targets(
    model: torch.nn.Module, architecture: ModelArchitecture, recipe: TrainingRecipe
) -> list[str]:
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - the caller asks
    if architecture.vision is None or recipe.trains_vision:
        return list(adapter.target_modules)
    layers = {group.layer.class_name for group in architecture.groups}
    names = []
    for path, module in model.named_modules():
        if type(module).__name__ not in layers:
            continue
        for inner, part in module.named_modules():
            leaf = leaf_of(inner)
            if isinstance(part, torch.nn.Linear) and leaf in adapter.target_modules:
                names.append(f"{path}.{inner}")
    return names
