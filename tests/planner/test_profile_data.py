"""The use-case behind ``data profile``."""

import json

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.planner.profile_data import profile_data
from tuneplan.report.profile_answer import profile_answer


@pytest.fixture
def path(tmp_path):
    """Three rows, one of them bad."""
    file = tmp_path / "data.jsonl"
    file.write_text('{"text": "one"}\n{"text": "two words"}\n{\n', encoding="utf-8")
    return file


def test_the_answer_holds_every_field_and_is_plain_json(path):
    profile = profile_data([path], model="Qwen/Qwen2.5-7B", max_length=128, skip_bad_rows=True)
    answer = profile_answer(profile, as_of="2026-01-01").model_dump(mode="json")
    assert json.loads(json.dumps(answer)) == answer
    wanted = {"files", "bad_rows", "shape", "tokenizer", "num_samples", "tokens", "length"}
    wanted |= {"at_max_length", "recommended", "duplicates", "empty", "storage"}
    wanted |= {"exact", "sampled"}
    assert wanted <= set(answer)
    assert {"mean", "p5", "p50", "p95", "p99", "max", "histogram"} <= set(answer["length"])
    assert (answer["bad_rows"][0]["line"], answer["bad_rows"][0]["column"]) == (3, 2)
    assert answer["num_samples"] == 2
    assert [one["max_length"] for one in answer["at_max_length"]] == [128]
    assert (answer["exact"], answer["sampled"]) == (True, False)


def test_what_was_assumed_and_what_to_heed_is_in_the_answer(path):
    profile = profile_data([path], tokenizer="approximate", skip_bad_rows=True)
    answer = profile_answer(profile, as_of="2026-01-01")
    assert "data.tokenizer" in [one.name for one in answer.assumptions]
    assert len(answer.warnings) == len(profile.notices)


def test_several_lengths_can_be_looked_at(path):
    profile = profile_data(
        [path], tokenizer="approximate", max_length=[64, 128], skip_bad_rows=True
    )
    assert [one.max_length for one in profile.at_max_length] == [64, 128]


def test_an_absent_file_is_told(tmp_path):
    with pytest.raises(InvalidRequest, match="does not exist"):
        profile_data([tmp_path / "none.jsonl"], tokenizer="approximate")
