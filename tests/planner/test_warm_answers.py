"""A process that answered before answers as a new one would, whatever came in between."""

from __future__ import annotations

import itertools
import re
import threading
from datetime import date

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.estimation import persistent as persistent_room
from tuneplan.estimation import walking
from tuneplan.language import speaking
from tuneplan.planner import evaluating, known
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.plan import plan_job
from tuneplan.planner.sources import Sources
from tuneplan.planner.tables import MOST_KEPT
from tuneplan.report.estimate_answer import estimate_answer
from tuneplan.report.plan_answer import plan_answer

TODAY = date(2026, 11, 30)
JOB = {
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "hardware.accelerator": "RTX 4090",
    "data.num_samples": 5000,
    "data.mean_tokens": 300,
    "training.max_length": 1024,
}
JOBS = {
    "LoRA": {"method": "lora"},
    "LoRA, longer": {"method": "lora", "training.max_length": 1040},
    "LoRA, another rank": {"method": "lora", "adapter.r": 64},
    "LoRA, another card": {"method": "lora", "hardware.accelerator": "A100 80GB SXM"},
    "QLoRA": {"method": "qlora"},
    "full": {"method": "full"},
    "more data": {"method": "lora", "data.num_samples": 9000},
    "packed": {"method": "lora", "training.packing": True},
    "pipeline and experts": {
        "method": "full",
        "model": "Qwen/Qwen3-30B-A3B",
        "hardware.accelerator": "H100 SXM",
        "hardware.accelerators_per_node": 8,
    },
}
CACHES = (walking._known_walk, persistent_room.persistent, evaluating._reserving)


def test_estimates_that_are_remembered_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(known, "MOST_KEPT", 3)
    warm = Sources(today=TODAY)
    for name in JOBS:
        answered(name, warm)
        assert len(warm.estimates) <= 3


def test_what_is_remembered_is_told_in_the_language_of_the_question() -> None:
    warm = Sources(today=TODAY)
    with speaking("zh-TW"):
        chinese = answered("LoRA", warm)
    assert chinese != answered("LoRA", warm) == anew("LoRA")
    with speaking("zh-TW"):
        assert answered("LoRA", warm) == chinese


def test_data_that_changed_is_another_question() -> None:
    job = load_job(overrides={**JOB, "method": "lora", "data.num_samples": 800})
    more = load_job(overrides={**JOB, "method": "lora", "data.num_samples": 900})
    warm = Sources(today=TODAY)
    dataset = read_dataset(job)
    first = estimate_job(job, warm, dataset=dataset)
    assert estimate_job(job, warm, dataset=read_dataset(job)) is first
    assert estimate_job(job, warm, dataset=read_dataset(more)).total_s != first.total_s


def forget() -> None:
    for cache in CACHES:
        cache.cache_clear()


def answered(name: str, sources: Sources) -> str:
    job = load_job(overrides={**JOB, **JOBS[name]})
    estimate = estimate_job(job, sources, replays=True)
    return estimate_answer(estimate, as_of=TODAY.isoformat()).model_dump_json()


def anew(name: str) -> str:
    forget()
    return answered(name, Sources(today=TODAY))


def planned(sources: Sources) -> str:
    job = load_job(
        overrides={
            **JOB, "method": "lora", "hardware.accelerator": ["RTX 4090", "L4", "A100 80GB SXM"],
        }
    )  # fmt: skip
    answer = plan_answer(plan_job(job, sources), as_of=TODAY.isoformat())
    return re.sub(r'"elapsed_s":[0-9.e-]+', "", answer.model_dump_json())


def test_a_second_answer_is_that_of_a_new_process_after_other_jobs() -> None:
    fresh = {name: anew(name) for name in JOBS}
    forget()
    warm = Sources(today=TODAY)
    for name in itertools.chain(JOBS, reversed(JOBS), ["LoRA", "full", "LoRA"]):
        assert answered(name, warm) == fresh[name], name


def test_a_plan_is_the_same_before_and_after_estimates() -> None:
    forget()
    fresh = planned(Sources(today=TODAY))
    warm = Sources(today=TODAY)
    for name in JOBS:
        answered(name, warm)
    assert planned(warm) == planned(warm) == fresh


def test_threads_that_ask_at_once_get_the_answers_of_one() -> None:
    names = ["LoRA", "QLoRA", "LoRA, longer", "more data"]
    fresh = {name: anew(name) for name in names}
    forget()
    warm = Sources(today=TODAY)
    wrong: list[str] = []

    def ask(start: int) -> None:
        for at in range(len(names)):
            name = names[(start + at) % len(names)]
            if answered(name, warm) != fresh[name]:
                wrong.append(name)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.__name__)
def test_what_is_remembered_is_bounded(cache) -> None:
    assert 0 < cache.cache_info().maxsize <= 256


def planned_within(sources: Sources, limits: dict[str, object]) -> str:
    job = load_job(
        overrides={
            **JOB, **limits, "method": "lora", "hardware.accelerator": ["RTX 4090", "L4"],
        }
    )  # fmt: skip
    answer = plan_answer(plan_job(job, sources), as_of=TODAY.isoformat())
    return re.sub(r'"elapsed_s":[0-9.e-]+', "", answer.model_dump_json())


def test_a_plan_within_other_limits_is_that_of_a_new_search() -> None:
    asked: list[dict[str, object]] = [
        {"limits.budget": "2 USD"},
        {"limits.deadline": "1h"},
        {"goal": "fastest"},
        {"limits.headroom": 0.3},
        {"training.num_train_epochs": 2},
        {"data.num_samples": 7000},
        {"limits.budget": "1 USD"},
        {},
    ]
    warm = Sources(today=TODAY)
    for limits in asked:
        assert planned_within(warm, limits) == planned_within(Sources(today=TODAY), limits)
    assert len(warm.tables._kept) <= MOST_KEPT
