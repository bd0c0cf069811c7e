"""Code of a user that must type-check: ``make types`` runs mypy over it, nothing executes it."""

from decimal import Decimal
from typing import assert_type

import tuneplan
from tuneplan import (
    Assumption,
    DataProfile,
    Entry,
    Estimate,
    JobCheck,
    JobEstimate,
    JobTrace,
    Mistake,
    Plan,
    StatedJob,
    Validation,
)

job = tuneplan.load_job("job.yaml", overrides={"training.max_length": 4096})
assert_type(job, StatedJob)

answer = tuneplan.estimate(job)
assert_type(answer, JobEstimate)
assert_type(tuneplan.estimate({"model": "7B"}), JobEstimate)
assert_type(answer.memory.ranges.peak_bytes, Estimate)
assert_type(answer.total_s, Estimate | None)
assert_type(answer.assumptions, tuple[Assumption, ...])
if answer.cost is not None:
    assert_type(answer.cost.total.likely.amount, Decimal)

traced = tuneplan.trace(job, limits=["24 GiB"], python="other/bin/python", use_cache=False)
assert_type(traced, JobTrace)
assert_type(traced.memory.answer.ranges.peak_reserved_bytes, Estimate)

checked = tuneplan.check("train.yaml", framework="llamafactory==0.9.3", overrides={"model": "7B"})
assert_type(checked, JobCheck)
assert_type(checked.estimate, JobEstimate)

best = tuneplan.plan("job.yaml")
assert_type(best, Plan)
assert_type(best.entries, tuple[Entry, ...])
assert_type(best.entries[0].job, StatedJob)

assert_type(tuneplan.profile_data(["chats.jsonl"], model="7B"), DataProfile)
assert_type(tuneplan.validate("runs.csv", complete="complete.csv"), Validation)

try:
    tuneplan.load_job({})
except tuneplan.InputError as error:
    assert_type(error.mistakes, tuple[Mistake, ...])
