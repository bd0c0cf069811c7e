"""The length that is assumed where neither the job, its data nor its framework states one."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tuneplan.contract.job_document import job_document
from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import resolve_job
from tuneplan.planner.evaluating import ORDINARY_LENGTH
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources

SOURCES = Sources(today=date(2026, 11, 30))
CUTS_NOTHING = ("torchtune", "transformers", "litgpt")


def resolved(framework: str, **job: Any) -> Resolved:
    tree = {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "method": "lora",
        "framework": framework,
        "hardware": {"accelerator": "H100 SXM"},
    }
    return resolve_job(load_job({**tree, **job}), SOURCES)


def codes(found: Resolved) -> set[str]:
    return {notice.message.code for notice in found.notices}


@pytest.mark.parametrize("framework", CUTS_NOTHING)
def test_rows_have_an_ordinary_length_where_neither_data_nor_length_is_stated(
    framework: str,
) -> None:
    found = resolved(framework)
    assert found.recipe.max_length == 131_072  # the model's own limit stays what it is
    assert found.batch.worst_length == found.batch.limit_length == ORDINARY_LENGTH
    assumed = {one.name: one for one in found.assumptions}["data.mean_tokens"]
    assert (assumed.value, assumed.reason.code) == (ORDINARY_LENGTH, "ordinary_length")
    assert "no_data_no_length" in codes(found)
    assert "no_data" not in codes(found)


@pytest.mark.parametrize("framework", CUTS_NOTHING)
def test_the_job_of_an_answer_reads_again_as_the_same_job(framework: str) -> None:
    found = resolved(framework)
    again = resolve_job(load_job(job_document(found.job, found.assumptions)), SOURCES)
    assert again.batch == found.batch


@pytest.mark.parametrize("framework", CUTS_NOTHING)
def test_a_stated_length_fills_every_row(framework: str) -> None:
    found = resolved(framework, training={"max_length": 8192})
    assert found.batch.worst_length == 8192
    assert "no_data" in codes(found)


@pytest.mark.parametrize("framework", CUTS_NOTHING)
def test_stated_data_decides_however_long_it_is(framework: str) -> None:
    lengths = {"num_samples": 1000, "mean_tokens": 5000, "quantiles": {"max": 20_000}}
    found = resolved(framework, data=lengths)
    assert found.batch.worst_length > 10_000
    assert not codes(found) & {"no_data", "no_data_no_length"}


def test_a_framework_that_cuts_has_rows_of_its_own_length() -> None:
    found = resolved("trl")
    assert found.batch.worst_length == found.recipe.max_length == 1024
    assert "no_data" in codes(found)


def test_packed_rows_are_as_long_as_the_model_allows() -> None:
    found = resolved("torchtune", training={"packing": True})
    assert found.batch.worst_length == found.recipe.max_length == 131_072


def test_a_model_of_fewer_positions_has_rows_of_these() -> None:
    found = resolved("torchtune", model="gpt2", training={"dtype": "bfloat16"})
    assert found.batch.worst_length == found.recipe.max_length == 1024
