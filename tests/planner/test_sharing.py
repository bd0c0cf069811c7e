"""Two processes give the answer of one, and one does the work of a second that is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.planner.sharing import in_halves

# Forking wants a process with one thread, which the tests' own need not be.
FORKS = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux alone")
TABLES = """
from datetime import date
import numpy as np
from tuneplan.contract.reading import load_job
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.searching import Search
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import space_of
job = load_job({"model": "Qwen/Qwen2.5-1.5B-Instruct", "method": ["lora", "qlora"],
                "data": {"num_samples": 4000, "mean_tokens": 500}})
sources = Sources(today=date(2026, 11, 30))
model = sources.models.resolve(job.model).architecture
space, data = space_of(job, sources), read_dataset(job)
one = Search(job, space, model, data, sources).table()
two = Search(job, space, model, data, sources).table(2)
for name in ("variant", "chip", "shape", "micro_batch", "accumulation", "needed_bytes", "step_s"):
    assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True), name
assert one.refusals == two.refusals
print(len(one), len(one.refusals))
"""
LOST = """
import os
from tuneplan.planner.sharing import both
parent = os.getpid()
def there():
    if os.getpid() != parent:
        {how}
    return "done by the parent"
print(both(lambda: "here", there))
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    return done.stdout.strip()


@FORKS
def test_a_table_by_two_processes_is_the_table_by_one():
    rows, refusals = map(int, run(TABLES).split())
    assert rows > 1000
    assert refusals > 0


@FORKS
@pytest.mark.parametrize(
    "how", ["os._exit(0)", "os.kill(os.getpid(), 9)", "raise ValueError('no')", "return lambda: 0"]
)
def test_what_a_lost_process_should_have_done_is_done_here(how):
    assert run(LOST.format(how=how)) == "('here', 'done by the parent')"


@given(st.lists(st.floats(0.1, 100.0), max_size=12))
def test_halves_hold_everything_once_and_differ_by_one_item_at_most(weights):
    mine, theirs = in_halves(range(len(weights)), weights)
    assert sorted(mine + theirs) == list(range(len(weights)))
    difference = abs(sum(weights[i] for i in mine) - sum(weights[i] for i in theirs))
    assert difference <= max(weights, default=0.0) + 1e-9
