"""Compressed streams, URLs, and what is wrong with them."""

import gzip
import io
import json
import sys

import fsspec
import pytest
import zstandard

from tuneplan import load_job
from tuneplan.errors import InputError
from tuneplan.planner.dataset import read_dataset
from tuneplan.tokens.compression import BrokenStream, unpacked
from tuneplan.tokens.files import data_files, file_format, unreadable
from tuneplan.tokens.profiling import profile_files
from tuneplan.tokens.reading import read_rows
from tuneplan.tokens.rows import BadRow, Row

LINES = "".join(f'{{"text": "row {number}"}}\n' for number in range(3000)).encode()
PACKED = {".gz": gzip.compress(LINES), ".zst": zstandard.ZstdCompressor().compress(LINES)}


@pytest.mark.parametrize("suffix", PACKED)
def test_a_compressed_file_gives_the_rows_of_the_plain_one(tmp_path, suffix):
    path = tmp_path / f"data.jsonl{suffix}"
    path.write_bytes(PACKED[suffix] * 2)  # streams one after the other are one file
    assert file_format(path) == f"jsonl{suffix}"
    assert [item.value["text"] for item in read_rows(path)] == [f"row {n}" for n in range(3000)] * 2


@pytest.mark.parametrize(("suffix", "code"), [(".gz", "broken_gzip"), (".zst", "broken_zstd")])
@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_a_cut_stream_is_a_bad_row_after_the_rows_before_the_cut(tmp_path, suffix, code, kept):
    path = tmp_path / f"data.jsonl{suffix}"
    packed = PACKED[suffix] + PACKED[suffix]
    path.write_bytes(packed[: int(len(packed) * kept)])
    *rows, last = read_rows(path)
    assert isinstance(last, BadRow)
    assert (last.code, last.line) == (code, len(rows) + 1)
    assert all(isinstance(row, Row) for row in rows)
    assert len(rows) >= (3000 if kept > 0.9 else 0)


@pytest.mark.parametrize("suffix", PACKED)
def test_bytes_that_are_no_stream_are_told(suffix):
    with pytest.raises(BrokenStream):
        unpacked(f"data{suffix}", io.BytesIO(b"this is not compressed")).read()


@pytest.fixture
def memory():
    """A file system of URLs, in memory."""
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/set", recursive=True)


def test_a_set_of_urls_is_profiled_as_the_same_files_of_the_disk(memory, tmp_path, characters):
    names = ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst")
    for name, content in zip(names, (LINES, *PACKED.values()), strict=True):
        memory.pipe(f"/set/{name}", content)
        (tmp_path / name).write_bytes(content)
    remote = profile_files(["memory://set/*.jsonl*"], tokenizer=characters)
    local = profile_files([tmp_path / name for name in names], tokenizer=characters)
    assert [file.path for file in remote.files] == [f"memory:///set/{name}" for name in names]
    assert remote.length_counts == local.length_counts
    assert remote.storage == local.storage


def test_urls_of_files_are_read_too(tmp_path, characters):
    (tmp_path / "data.jsonl").write_bytes(LINES)
    profile = profile_files([f"file://{tmp_path}/data.jsonl"], tokenizer=characters)
    assert profile.num_samples == 3000


def test_a_url_that_matches_nothing_or_is_not_there_is_a_mistake(memory):
    memory.pipe("/set/a.jsonl", b"{}")
    _, problems = data_files(["memory://set/*.csv", "memory://set/b.jsonl"])
    assert [problem.message.code for problem in problems] == ["no_match", "unreadable_file"]


def test_a_missing_driver_is_told_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    _, problems = data_files(["s3://bucket/data.jsonl", "nosuch://x"])
    assert "pip install fsspec s3fs" in str(problems[0].message)
    assert problems[1].message.code == "unknown_url"


def test_without_fsspec_a_url_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match="pip install fsspec gcsfs"):
        unreadable("gs://bucket/data.jsonl")


def test_a_folder_of_datasets_stands_for_its_files(tmp_path):
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
    files, problems = data_files([tmp_path])
    assert files == (str(tmp_path / "a.arrow"),)
    assert [problem.message.code for problem in problems] == ["no_such_file"]


def test_a_job_may_name_its_data_by_url(memory):
    memory.pipe("/set/data.jsonl", LINES)
    job = load_job(
        overrides={
            "model": "Qwen/Qwen2.5-7B",
            "data.path": ["memory://set/data.jsonl"],
            "data.tokenizer": "approximate",
        }
    )
    statistics = read_dataset(job).statistics
    assert statistics is not None
    assert statistics.num_samples == 3000
