"""What a job says about its data; names of files are relative to the job file."""

import json
from pathlib import Path

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.profile_data import profile_data
from tuneplan.tokens.saving import save_profile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's folder with data and a tokenizer in it; the working directory is another one."""
    place = tmp_path / "job"
    place.mkdir()
    (place / "data.jsonl").write_text('{"text": "one two"}\n{"text": "three"}\n')
    words = {"one": 0, "two": 1, "three": 2, "[UNK]": 3}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }
    (place / "words").mkdir()
    (place / "words" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return place


def job_in(folder: Path, text: str) -> object:
    (folder / "job.yaml").write_text(text)
    return load_job(folder / "job.yaml")


def test_data_and_tokenizer_lie_beside_the_job_file(folder: Path) -> None:
    job = job_in(folder, "model: 7B\ndata: {path: data.jsonl, tokenizer: words}\n")
    found = read_dataset(job)  # type: ignore[arg-type]
    assert found.statistics is not None
    assert found.statistics.num_samples == 2
    assert found.profile is not None
    assert found.profile.tokenizer.source.endswith("job/words/tokenizer.json")


def test_a_saved_profile_lies_beside_the_job_file(folder: Path) -> None:
    profile = profile_data([folder / "data.jsonl"], tokenizer="approximate")
    save_profile(profile, folder / "profile.json")
    job = job_in(folder, "model: 7B\ndata: {profile: profile.json}\n")
    found = read_dataset(job)  # type: ignore[arg-type]
    assert found.statistics is not None
    assert found.statistics.total_tokens == profile.tokens.all.likely


BAD_ROWS = '{"text": "a"}\n{\n[]\n{"text": 1}\n\n{"text": 2}\n'


def test_rows_that_are_to_be_skipped_are_counted_and_located(folder: Path) -> None:
    (folder / "data.jsonl").write_text(BAD_ROWS)
    job = job_in(
        folder,
        "model: 7B\ndata: {path: data.jsonl, tokenizer: approximate, skip_bad_rows: true}\n",
    )
    found = read_dataset(job)  # type: ignore[arg-type]
    (skipped,) = [one for one in found.assumptions if one.name == "data.skip_bad_rows"]
    assert str(skipped.reason) == "4 bad rows left out"
    notices = found.notices
    codes = [notice.message.code for notice in notices]
    assert codes[0] == "bad_rows_left_out"
    assert notices[0].message.params == {"bad": 4, "all": 5}
    assert [notice.line for notice in notices if notice.message.code == "bad_row"] == [2, 3, 4]


def test_bad_rows_are_a_mistake_where_nobody_says_to_skip_them(folder: Path) -> None:
    (folder / "data.jsonl").write_text(BAD_ROWS)
    for more in ("", ", skip_bad_rows: false"):
        text = f"model: 7B\ndata: {{path: data.jsonl, tokenizer: approximate{more}}}\n"
        with pytest.raises(InvalidRequest) as caught:
            read_dataset(job_in(folder, text))  # type: ignore[arg-type]
        (mistake,) = caught.value.mistakes
        assert str(mistake.message) == "4 of 5 rows cannot be used"
        assert [place.line for place in mistake.places] == [2, 3, 4, 6]


def test_a_profile_that_was_made_without_bad_rows_says_so_in_every_job(folder: Path) -> None:
    (folder / "data.jsonl").write_text(BAD_ROWS)
    profile = profile_data([folder / "data.jsonl"], tokenizer="approximate", skip_bad_rows=True)
    save_profile(profile, folder / "profile.json")
    found = read_dataset(job_in(folder, "model: 7B\ndata: {profile: profile.json}\n"))  # type: ignore[arg-type]
    assert "data.skip_bad_rows" in {one.name for one in found.assumptions}


def test_without_data_nothing_is_invented() -> None:
    found = read_dataset(load_job({"model": "7B"}))
    assert found.statistics is None
    assert [notice.message.code for notice in found.notices] == ["no_data"]
