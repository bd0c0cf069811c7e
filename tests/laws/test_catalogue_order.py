"""No answer depends on the order in which a catalogue lists what it knows."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tuneplan.catalog.model_entries import bundled_entries
from tuneplan.catalog.models import ModelCatalog
from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.plan import plan_job
from tuneplan.planner.sources import Sources
from tuneplan.report.estimate_answer import estimate_answer
from tuneplan.report.plan_answer import plan_answer

SOURCES = Sources(today=date(2026, 11, 30))
DAY = "2026-11-30"
DATA = {"num_samples": 4000, "mean_tokens": 500}
PLANS: list[dict[str, Any]] = [
    {"model": "Qwen2.5-7B", "method": "lora", "data": DATA, "goal": "balanced"},
    {
        "model": "Llama-3.1-70B",
        "method": ["qlora", "full"],
        "data": DATA,
        "training": {"packing": True},
        "limits": {"allow_interruptible": True, "max_nodes": 2},
    },
]
ESTIMATES: list[dict[str, Any]] = [
    {"model": "Qwen2.5-7B", "method": "lora", "data": DATA},
    {"model": "7B", "method": "full", "hardware": {"accelerator": "A100"}, "data": DATA},
    {
        "model": "Mixtral-8x7B",
        "method": "qlora",
        "hardware": {"accelerator": "H100", "accelerators_per_node": 8},
        "parallelism": "zero3",
        "data": DATA,
    },
]


def shuffled(seed: int) -> Sources:
    """The same catalogues, each in another order; ``seed`` 0 turns them round."""

    def mixed(values: Any) -> tuple[Any, ...]:
        found = list(values)[::-1]
        if seed:
            random.Random(seed).shuffle(found)  # noqa: S311 - no secret
        return tuple(found)

    sources = Sources(today=SOURCES.today)
    known = SOURCES.accelerators
    vars(sources)["models"] = ModelCatalog(mixed(bundled_entries()))
    vars(sources)["accelerators"] = replace(known, entries=mixed(known.entries))
    vars(sources)["offers"] = replace(SOURCES.offers, offers=mixed(SOURCES.offers.offers))
    return sources


def planned(job: dict[str, Any], sources: Sources) -> dict[str, Any]:
    answer = plan_answer(plan_job(load_job(job), sources), as_of=DAY).model_dump(mode="json")
    assert answer["search"].pop("elapsed_s") > 0
    return answer


def estimated(job: dict[str, Any], sources: Sources) -> dict[str, Any]:
    found = estimate_job(load_job(job), sources)
    return estimate_answer(found, as_of=DAY).model_dump(mode="json")


@pytest.mark.parametrize("job", PLANS, ids=["lora", "two methods"])
def test_a_plan_over_the_whole_catalogue_is_the_same_in_any_order(job):
    here = planned(job, SOURCES)
    assert here["entries"]
    assert planned(job, shuffled(0)) == here
    assert planned(job, shuffled(7)) == here


@pytest.mark.parametrize("job", ESTIMATES, ids=["every card", "a name of many", "eight cards"])
def test_an_estimate_is_the_same_in_any_order(job):
    here = estimated(job, SOURCES)
    for seed in (0, 7, 8):
        assert estimated(job, shuffled(seed)) == here


@pytest.mark.parametrize("name", ["Lama-3.1-8B", "qwen", "H900", "A6000", "RTX"])
def test_near_matches_are_the_same_in_any_order(name):
    def told(sources: Sources) -> list[Any]:
        found: list[Any] = []
        for catalogue in (sources.models, sources.accelerators):
            try:
                resolved = catalogue.resolve(name)
                found.append((resolved.assumptions, resolved.notes))
            except InputError as error:
                found.append(error.mistakes)
        return found

    here = told(SOURCES)
    for seed in (0, 7, 8):
        assert told(shuffled(seed)) == here
