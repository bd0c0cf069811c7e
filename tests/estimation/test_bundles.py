"""Bundled operations take the seconds of each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from settings import MISTRAL_7B, MIXTRAL, adapter, recipe
from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.kernels import load_curves
from tuneplan.estimation.bundles import bundle, bundle_time
from tuneplan.estimation.step_time import compute_time
from tuneplan.estimation.walking import walk_model
from tuneplan.planner.evaluating import listed_operations
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import Checkpointing, Method, Quantization

CHIPS = ("NVIDIA A100 SXM 80GB", "NVIDIA H100 SXM", "NVIDIA L4")
RECIPES = {
    "lora": recipe(adapter=adapter()),
    "qlora": recipe(
        method=Method.QLORA, adapter=adapter(lora_dropout=0.1), quantization=Quantization()
    ),
    "full": recipe(method=Method.FULL),
    "offload": recipe(adapter=adapter(), gradient_checkpointing=Checkpointing.OFFLOAD),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("model", [MISTRAL_7B, MIXTRAL], ids=lambda model: model.name)
def test_bundled_operations_take_as_long_as_each_by_itself(model, name, chip):
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
    one = compute_time(operations, (), settings, curves)
    total, forward = bundle_time(bundle(walked.operations()), curves, launch_s=12e-6)
    assert np.allclose(one.total_s, total, rtol=1e-9)
    assert np.allclose(one.forward_s, forward, rtol=1e-9)
