"""A profile survives its file, and a wrong file is told completely."""

import json

import pytest

from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.tokens.profiling import profile_files
from tuneplan.tokens.saving import load_profile, save_profile


@pytest.fixture
def saved(write_rows, characters, tmp_path):
    """A profile with one of everything, and its file."""
    row = {"prompt": "ppp", "chosen": "cc", "rejected": "r"}
    path = write_rows(
        "data.jsonl", row, row, "{broken", {"prompt": "p", "chosen": "", "rejected": ""}
    )
    profile = profile_files([path], tokenizer=characters, skip_bad_rows=True)
    file = tmp_path / "profile.json"
    save_profile(profile, file)
    return profile, file


def changed(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return file


def mistakes(file):
    with pytest.raises(InvalidRequest) as caught:
        load_profile(file)
    return [str(mistake.message) for mistake in caught.value.mistakes]


def test_what_is_read_is_what_was_written(saved):
    profile, file = saved
    assert load_profile(file) == profile
    assert load_profile(file).statistics() == profile.statistics()


def test_the_file_stays_small_however_many_rows_there_are(write_rows, characters, tmp_path):
    path = write_rows("data.jsonl", *[{"text": "a" * (number % 50)} for number in range(20_000)])
    save_profile(profile_files([path], tokenizer=characters), tmp_path / "profile.json")
    assert (tmp_path / "profile.json").stat().st_size < 10_000


def test_every_wrong_key_is_told_at_once_with_its_place(saved):
    _, file = saved
    at = json.loads(file.read_text())["at_max_length"]
    at[0]["max_length"] = "long"
    found = mistakes(changed(file, num_samples=-3, shape=None, at_max_length=at))
    assert found == [
        "shape must be text, this is null",
        "num_samples must be a whole number of 0 or more, this is a number",
        "at_max_length[0].max_length must be a whole number of 0 or more, this is a string",
    ]


def test_a_missing_key_is_a_mistake(saved):
    _, file = saved
    table = json.loads(file.read_text())
    del table["length_counts"]
    file.write_text(json.dumps(table))
    assert mistakes(file) == ["length_counts must be a list, this is null"]


def test_sums_that_do_not_agree_are_told(saved):
    _, file = saved
    assert "length_counts add up to 6" in mistakes(changed(file, num_samples=7))[0]


def test_a_range_that_is_upside_down_is_told(saved):
    _, file = saved
    tokens = json.loads(file.read_text())["tokens"]
    tokens["all"]["low"] = 1e9
    assert "tokens.all" in mistakes(changed(file, tokens=tokens))[0]


def test_a_sentence_without_its_parameters_is_told(saved):
    _, file = saved
    rows = json.loads(file.read_text())["bad_rows"]
    rows[0]["message"]["params"] = {}
    found = mistakes(changed(file, bad_rows=rows))
    assert found == [
        "bad_rows[0].message must be a sentence with its parameters, this is an object"
    ]


def test_another_version_asks_for_a_new_profile(saved):
    _, file = saved
    assert "version 99" in mistakes(changed(file, version=99))[0]


@pytest.mark.parametrize("content", ["{}", "[1]", '{"format": "other"}'])
def test_another_json_file_is_no_profile(tmp_path, content):
    file = tmp_path / "profile.json"
    file.write_text(content)
    assert "is not a data profile" in mistakes(file)[0]


def test_a_broken_file_has_its_line(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text('{\n"format": \n}')
    with pytest.raises(UnreadableFile) as caught:
        load_profile(file)
    assert caught.value.line == 3


def test_an_absent_file_names_its_neighbours(saved):
    _, file = saved
    with pytest.raises(InvalidRequest) as caught:
        load_profile(file.parent / "profil.json")
    assert caught.value.mistakes[0].near == (str(file),)
