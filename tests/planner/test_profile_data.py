"""The use-case behind ``data profile``."""

import json

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.planner.profile_data import data_statistics, profile_answer, profile_data
from tuneplan.tokens.saving import save_profile


@pytest.fixture
def path(tmp_path):
    """Three rows, one of them bad."""
    file = tmp_path / "data.jsonl"
    file.write_text('{"text": "one"}\n{"text": "two words"}\n{\n', encoding="utf-8")
    return file


def test_the_answer_holds_every_field_and_is_plain_json(path):
    profile = profile_data([path], model="Qwen/Qwen2.5-7B", max_length=128)
    answer = profile_answer(profile)
    assert json.loads(json.dumps(answer)) == answer
    wanted = {"files", "bad_rows", "shape", "tokenizer", "num_samples", "tokens", "length"}
    wanted |= {"at_max_length", "recommended", "duplicates", "empty", "storage"}
    wanted |= {"exact", "sampled"}
    assert wanted <= set(answer)
    assert {"mean", "p5", "p50", "p95", "p99", "max", "histogram"} <= set(answer["length"])
    assert answer["bad_rows"][0]["line"] == 3
    assert answer["num_samples"] == 2
    assert [one["max_length"] for one in answer["at_max_length"]] == [128]
    assert (answer["exact"], answer["sampled"]) == (True, False)


def test_files_and_their_saved_profile_give_the_same_statistics(path, tmp_path):
    from_files, profile = data_statistics(paths=[path], model="Qwen/Qwen2.5-7B")
    save_profile(profile, tmp_path / "profile.json")
    from_profile, _ = data_statistics(profile=tmp_path / "profile.json")
    assert from_profile == from_files


def test_several_lengths_can_be_looked_at(path):
    profile = profile_data([path], tokenizer="approximate", max_length=[64, 128])
    assert [one.max_length for one in profile.at_max_length] == [64, 128]


def test_an_absent_file_is_told(tmp_path):
    with pytest.raises(InvalidRequest, match="does not exist"):
        profile_data([tmp_path / "none.jsonl"], tokenizer="approximate")
