"""What a checkpoint holds on disk, by framework: bytes with the arithmetic beside them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.sources import Sources

SOURCES = Sources(today=date(2026, 11, 30))
PARAMETERS = 8_030_261_248  # of Llama-3-8B
# r 8 on q and v of 32 layers: 8 x (4096 + 4096) + 8 x (4096 + 1024).
ADAPTER = 32 * 8 * (4096 + 4096 + 4096 + 1024)
EPOCHS = 3


def estimated(framework: str, method: str, **training: Any) -> JobEstimate:
    job: dict[str, Any] = {
        "model": "meta-llama/Meta-Llama-3-8B", "framework": framework, "method": method,
        "data": {"num_samples": 6000, "mean_tokens": 500},
        "training": {
            "dtype": "bfloat16", "precision": "none", "max_length": 1024,
            "optim": "adamw_torch_fused", "num_train_epochs": EPOCHS, **training,
        },
        "hardware": {"accelerator": "H200 SXM"},
    }  # fmt: skip
    if method == "lora":
        job["adapter"] = {"r": 8, "target_modules": ["q_proj", "v_proj"]}
    return estimate_job(load_job(job), SOURCES)


def test_torchtune_writes_the_merged_model_and_the_adapter() -> None:
    found = estimated("torchtune", "lora").storage
    # weights and adapter in bf16, two moments of the adapter in bf16
    assert found.checkpoint_bytes == pytest.approx(2 * PARAMETERS + (2 + 4) * ADAPTER)


def test_torchtune_writes_optimizer_states_over() -> None:
    found = estimated("torchtune", "full")
    assert found.resolved.schedule.saves_each_epoch
    one, states = 2 * PARAMETERS, 4 * PARAMETERS
    assert found.storage.checkpoint_bytes == pytest.approx(one + states)
    assert found.storage.kept_bytes == pytest.approx((EPOCHS + 1) * one + states)


def test_litgpt_writes_adapters_alone_every_thousand_steps() -> None:
    found = estimated("litgpt", "lora")
    assert found.resolved.schedule.save_steps == 1000
    assert found.storage.checkpoint_bytes == pytest.approx(2 * ADAPTER)


def test_litgpt_writes_model_and_optimizer_of_a_full_fine_tuning() -> None:
    found = estimated("litgpt", "full")
    assert found.storage.checkpoint_bytes == pytest.approx((2 + 4) * PARAMETERS)


def test_a_trainer_writes_adapters_and_their_states() -> None:
    found = estimated("trl", "lora")
    # adapters of a bf16 base are fp32 in PEFT: 4 bytes and two fp32 moments
    assert found.storage.checkpoint_bytes == pytest.approx((4 + 8) * ADAPTER)
