"""A second process that stays: half of a search is its, and nothing depends on it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import date

import numpy as np
import pytest

from tuneplan.contract.reading import load_job
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.estimate import resolve_job
from tuneplan.planner.estimating_all import estimate_all
from tuneplan.planner.helping import Helper
from tuneplan.planner.lever_table import levers_job
from tuneplan.planner.plan import plan_job
from tuneplan.planner.searching import Search
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import space_of
from tuneplan.report.levers_answer import levers_answer
from tuneplan.report.plan_answer import plan_answer

JOB = load_job(
    {
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "method": ["lora", "qlora"],
        "data": {"num_samples": 4000, "mean_tokens": 500},
        "training": {"gradient_checkpointing": True},
    }
)

ONE = load_job(
    {
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "method": "lora",
        "hardware": {"accelerator": "L4"},
        "data": {"num_samples": 4000, "mean_tokens": 500},
    }
)


@pytest.fixture
def helper() -> Iterator[Helper]:
    made = Helper()
    yield made
    made.close()


def search() -> Search:
    sources = Sources(today=date(2026, 11, 30))
    model = sources.models.resolve(JOB.model).architecture
    return Search(JOB, space_of(JOB, sources), model, read_dataset(JOB), sources)


def assert_same(one, two) -> None:
    for name in ("variant", "chip", "shape", "micro_batch", "accumulation", "needed_bytes",
                 "step_s", "total_s"):  # fmt: skip
        assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True), name
    assert one.refusals == two.refusals


def test_a_table_with_a_helper_is_the_table_without(helper) -> None:
    alone = search().table()
    assert len(alone) > 1000
    assert_same(alone, search().table(helper=helper))
    assert_same(alone, search().table(helper=helper))


def test_a_plan_with_a_helper_is_the_plan_without(helper) -> None:
    def planned(by: Helper | None) -> str:
        sources = Sources(today=date(2026, 11, 30))
        answer = plan_answer(plan_job(JOB, sources, helper=by), as_of="2026-11-30")
        return re.sub(r'"elapsed_s":[0-9.e-]+', "", answer.model_dump_json())

    alone = planned(None)
    assert planned(helper) == alone
    assert planned(helper) == alone


def test_a_helper_that_died_leaves_the_work_to_who_asks(helper) -> None:
    with helper.asked(abs, -1) as result:
        assert result() == 1
    os.kill(helper._process.pid, signal.SIGKILL)
    helper._process.join()
    with helper.asked(abs, -1) as result:
        assert result() is None
    assert_same(search().table(), search().table(helper=helper))


def test_a_helper_that_fails_or_is_busy_gives_nothing(helper) -> None:
    with helper.asked(int, "no number") as result:
        assert result() is None
    with helper.asked(abs, -2) as result, helper.asked(abs, -3) as other:
        assert other() is None
        assert result() == 2


def test_a_request_that_was_given_up_is_passed_over(helper) -> None:
    with pytest.raises(KeyboardInterrupt), helper.asked(abs, -4):
        raise KeyboardInterrupt
    with helper.asked(abs, -5) as result:
        assert result() == 5


def test_a_helper_ends_when_the_other_end_of_its_pipe_does(helper) -> None:
    helper._pipe.close()
    helper._process.join(20)
    assert helper._process.exitcode == 0


def test_catalogues_in_the_helper_are_those_of_who_asks(helper) -> None:
    for _ in range(6):
        sources = Sources(today=date(2026, 11, 30))
        resolved = [resolve_job(ONE, sources)] * 2
        first, second = estimate_all(resolved, sources, helper)
        assert first.memory == second.memory
        assert first.cost == second.cost
    assert len({Sources().serial, Sources().serial}) == 2


def test_levers_that_a_helper_tried_are_those_tried_here(helper: Helper) -> None:
    def answered(helper: Helper | None) -> dict[str, object]:
        found = levers_job(ONE, Sources(today=date(2026, 11, 30)), helper=helper)
        return levers_answer(found, as_of="2026-11-30").model_dump(mode="json")

    alone = answered(None)
    assert len(alone["levers"]) > 8
    assert answered(helper) == alone
    helper.close()
    assert answered(helper) == alone
