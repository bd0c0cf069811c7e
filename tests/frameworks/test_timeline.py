from itertools import pairwise

import pytest
from packaging.version import Version

from tuneplan.errors import CatalogError
from tuneplan.frameworks.timeline import facts, look_up


@pytest.mark.parametrize("key", sorted(facts()), ids=" ".join)
def test_spans_of_a_key_follow_each_other_without_gap_or_overlap(key):
    rows = facts()[key]
    assert rows[0].since == ""
    assert rows[-1].until == ""
    assert rows[-1].until_date == ""
    for before, after in pairwise(rows):
        assert (before.until, before.until_date) == (after.since, after.since_date)
        assert before.value != after.value
        if after.since:
            assert not before.since or Version(before.since) < Version(after.since)


@pytest.mark.parametrize("key", sorted(facts()), ids=" ".join)
def test_every_row_names_its_source_and_how_sure_it_is(key):
    for row in facts()[key]:
        assert row.source
        assert row.confidence in ("high", "medium", "low")


def test_a_version_at_the_change_has_the_new_value():
    assert look_up("trl", "gradient_checkpointing", "0.21.0").value == "false"
    assert look_up("trl", "gradient_checkpointing", "0.22.0").value == "true"


def test_a_commit_is_placed_by_its_day():
    assert look_up("litgpt", "strategy", "lit-gpt 8641822").value == "fsdp"


def test_a_value_that_has_only_days_is_found_by_day():
    assert look_up("unsloth", "max_length", "", date="2025-01-01").value == "model"
    assert look_up("unsloth", "max_length", "2025.10.1").value == "2048"


def test_a_key_without_rows_is_an_error_of_the_table():
    with pytest.raises(CatalogError, match="trl / colour"):
        look_up("trl", "colour", "1.0")
