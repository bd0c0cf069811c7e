"""The search around stated tensor, pipeline, context and expert degrees."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.plan import chosen_job, plan_job
from tuneplan.planner.searching import Search
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import space_of

SOURCES = Sources(today=date(2026, 11, 30))


def job(**changes):
    written = {
        "model": "meta-llama/Llama-3.1-8B",
        "method": "full",
        "framework": "nemo",
        "data": {"num_samples": 4000, "mean_tokens": 500},
        "hardware": {
            "accelerator": "H100 SXM", "accelerators_per_node": [4, 8], "num_nodes": 1,
        },
        "parallelism": {"tensor": 2, "pipeline": 2},
        "training": {"per_device_train_batch_size": [1, 2], "max_length": 2048, "packing": True},
    }  # fmt: skip
    return load_job({**written, **changes})


def searched(asked):
    model = SOURCES.models.resolve(asked.model).architecture
    space = space_of(asked, SOURCES)
    return Search(asked, space, model, read_dataset(asked), SOURCES).table()


@pytest.mark.parametrize(
    "parallelism",
    [{"tensor": 2, "pipeline": 2}, {"tensor": 4, "strategy": "ddp"}, {"context": 4}],
)
def test_every_candidate_has_the_figures_of_its_own_estimate(parallelism):
    asked = job(parallelism=parallelism)
    table = searched(asked)
    timed = np.flatnonzero(np.isfinite(table.step_s))
    assert len(timed)
    for row in timed:
        alone = estimate_job(
            replace(chosen_job(asked, table.settings(row), table, row), choices={}), SOURCES
        )
        assert alone.time is not None
        assert table.step_s[row] == pytest.approx(alone.time.step.step_s.likely)
        assert table.total_s[row] == pytest.approx(alone.total_s.likely, rel=1e-3)
        assert table.needed_bytes[row] == pytest.approx(alone.memory.ranges.needed_bytes.likely)


def test_only_cards_that_are_whole_replicas_are_searched():
    space = space_of(job(parallelism={"tensor": 8}), SOURCES)
    assert space.shapes_of("zero1") == ((1, 8),)
    experts = job(model="Qwen/Qwen3-30B-A3B", parallelism={"tensor": 2, "expert": 4})
    assert space_of(experts, SOURCES).shapes_of("zero1") == ((1, 8),)


def test_the_plan_keeps_the_degrees():
    found = plan_job(job(), SOURCES)
    assert found.entries
    layout = found.entries[0].estimate.resolved.parallelism
    assert (layout.tensor, layout.pipeline) == (2, 2)


def test_a_choice_of_degrees_is_refused_by_name():
    with pytest.raises(InputError, match="tensor degree"):
        plan_job(job(parallelism={"tensor": [1, 2]}), SOURCES)
