"""Merged operations take the seconds of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from settings import MISTRAL_7B, MIXTRAL, adapter, recipe
from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.kernels import load_curves
from tuneplan.estimation.merging import merge_like
from tuneplan.estimation.step_time import compute_time
from tuneplan.estimation.walking import walk_model
from tuneplan.planner.evaluating import listed_operations
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import Method, Quantization

CHIPS = ("NVIDIA A100 SXM 80GB", "NVIDIA H100 SXM", "NVIDIA L4")
RECIPES = {
    "lora": recipe(adapter=adapter()),
    "qlora": recipe(
        method=Method.QLORA, adapter=adapter(lora_dropout=0.1), quantization=Quantization()
    ),
    "full": recipe(method=Method.FULL),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("model", [MISTRAL_7B, MIXTRAL], ids=lambda model: model.name)
def test_merged_operations_take_as_long_as_all_of_them(model, name, chip):
    settings = RECIPES[name]
    curves = load_curves(load_accelerators().resolve(chip).accelerator)
    walked = walk_model(
        model,
        settings,
        Parallelism(),
        sequences=np.array([1.0, 2.0, 8.0]),
        length=np.array([512.0, 1024.0, 2048.0]),
    )
    operations = listed_operations(walked)
    merged = merge_like(operations)
    assert len(merged) < len(operations) / 2
    one = compute_time(operations, (), settings, curves)
    other = compute_time(merged, (), settings, curves)
    assert np.allclose(one.total_s, other.total_s, rtol=1e-9)
    assert np.allclose(one.forward_s, other.forward_s, rtol=1e-9)
    assert one.launches == pytest.approx(other.launches)
