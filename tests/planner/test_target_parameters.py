"""Adapters on the stacked parameters of routed experts."""

from __future__ import annotations

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.estimation.persistent import persistent
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.sources import Sources


def trained(*parameters: str) -> int:
    adapter = {"r": 8, "target_modules": ["q_proj"], "lora_dropout": 0}
    job = load_job(
        {
            "model": "Qwen/Qwen3-30B-A3B",
            "framework": "axolotl",
            "method": "lora",
            "adapter": adapter | ({"target_parameters": list(parameters)} if parameters else {}),
            "training": {"max_length": 1024},
        }
    )
    resolved = estimate_job(job, Sources()).resolved
    return persistent(resolved.model, resolved.recipe).num_trained


def test_each_expert_has_the_rank() -> None:
    # 48 layers of 128 experts; gate and up are one parameter of 2048 x 1536, down is 768 x 2048
    gate_up, down = 8 * (2048 + 1536), 8 * (768 + 2048)
    assert trained("experts.gate_up_proj", "experts.down_proj") - trained() == 48 * 128 * (
        gate_up + down
    )


def test_a_name_that_no_experts_hold_is_a_mistake_with_near_ones() -> None:
    with pytest.raises(InvalidRequest) as raised:
        trained("experts.gate_up")
    assert raised.value.mistakes[0].near == ("down_proj", "gate_up_proj")
