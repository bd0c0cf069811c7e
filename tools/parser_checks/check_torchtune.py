"""torchtune's files against its own configuration parser; models are built without weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from answering import answer
from omegaconf import OmegaConf
from torchtune import config
from torchtune._recipe_registry import get_all_recipes
from torchtune.modules.peft import get_adapter_params


def accept() -> None:
    """Check every component's signature, build model, optimizer and loss, count parameters."""
    tree = OmegaConf.load("train.yaml")
    config.validate(tree)
    expected = json.loads(Path("expected.json").read_text(encoding="utf-8"))
    recipes = {recipe.name for recipe in get_all_recipes()}
    if expected["recipe"] not in recipes:
        raise ValueError(f"there is no recipe {expected['recipe']}")
    with torch.device("meta"):
        model = config.instantiate(OmegaConf.merge(tree.model, _unquantized(tree.model)))
    adapters = sum(one.numel() for one in get_adapter_params(model).values())
    base = sum(parameter.numel() for parameter in model.parameters()) - adapters
    if base != expected["total_parameters"]:
        raise ValueError(f"{base} parameters are built, {expected['total_parameters']} expected")
    if (
        expected["trainable_parameters"] is not None
        and adapters != expected["trainable_parameters"]
    ):
        raise ValueError(f"{adapters} are trained, {expected['trainable_parameters']} expected")
    config.instantiate(tree.loss)
    if not str(tree.optimizer._component_).startswith("bitsandbytes"):
        config.instantiate(tree.optimizer, [torch.nn.Parameter(torch.zeros(2))])


def _unquantized(model: OmegaConf) -> dict[str, bool]:
    """NF4 tensors cannot be made without weights; their shapes are those of plain ones."""
    return {"quantize_base": False} if model.get("quantize_base") else {}


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The configuration of a folder."""
    if (folder / "train.yaml").exists():
        yield "train.yaml", accept


answer(("torchtune", "torchao", "torch"), files)
