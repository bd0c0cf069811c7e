"""Cells of real files: nothing is lost or counted twice, and the answer says how sure it is."""

import gzip
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.tokens import cells as cells_module
from tuneplan.tokens.cells import CellCounter, cell_units, domains_of
from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.encoders import TokenCount
from tuneplan.tokens.profiling import profile_files
from tuneplan.tokens.reading import lines_before, parts_of
from tuneplan.tokens.saving import load_profile, save_profile
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.work import DataSet, Unit
from tuneplan.tokens.workers import Workers


@pytest.fixture
def small_cells(monkeypatch):
    """Cells of 1 KiB, so that small files have many."""
    monkeypatch.setattr(cells_module, "CELL_BYTES", 1024)


def rows(number, seed=0):
    draw = np.random.default_rng(seed)
    return [{"text": "ab " * int(size)} for size in 1 + draw.lognormal(2, 1.2, number)]


def write(path, table):
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return path


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=20),
    part=st.integers(1, 90),
    end=st.booleans(),
)
def test_the_tokens_of_all_cells_are_those_of_the_file(tmp_path_factory, lengths, part, end):
    class Characters:
        vocab_size = 1

        def has_token(self, _text):
            return False

        def count(self, sequences):
            return [TokenCount(len(one.text), len(one.text)) for one in sequences]

    path = tmp_path_factory.mktemp("cells") / "data.jsonl"
    text = "\n".join(json.dumps({"text": "x" * length}) for length in lengths)
    path.write_text(text + "\n" * end)
    count = CellCounter(RowCounter(Tokenizer(name="", source="", encoder=Characters())))
    data = DataSet(paths=(str(path),))
    shape = next(data.units()).shape
    found = [count(Unit(file=0, shape=shape, content=one)) for one in parts_of(path, part)]
    assert sum(one.totals.num_samples for one in found) == len(lengths)
    assert sum(one.tokens for one in found) == pytest.approx(sum(lengths))
    assert sum(one.trained for one in found) == pytest.approx(sum(lengths))


def test_lines_are_counted_up_to_a_byte(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"ab\ncd\n\nef")
    #                  01 2 34 5  6 78: lines start at 0, 3, 6 and 7.
    assert lines_before(str(path), range(9)) == [0, 1, 1, 1, 2, 2, 2, 3, 4]


@pytest.mark.usefixtures("small_cells")
def test_a_sample_of_all_kinds_of_files_holds_the_truth_and_says_what_it_read(tmp_path, characters):
    paths = [write(tmp_path / f"{n}.jsonl", rows(4000, n)) for n in range(3)]
    for number in range(30):
        text = "".join(json.dumps(row) + "\n" for row in rows(50, 100 + number))
        path = tmp_path / f"{number:02d}.jsonl.gz"
        path.write_bytes(gzip.compress(text.encode()))
        paths.append(path)
    table = pa.Table.from_pylist(rows(5000, 9))
    pq.write_table(table, tmp_path / "z.parquet", row_group_size=50)
    paths.append(tmp_path / "z.parquet")
    truth = profile_files(paths, tokenizer=characters)
    held = 0
    for seed in range(6):
        found = profile_files(paths, tokenizer=characters, sample_bytes=150_000, seed=seed)
        told = found.sampling
        assert found.sampled
        assert not found.exact
        assert told.read_bytes < told.total_bytes / 2
        assert found.duplicates is None
        assert found.num_samples == round(told.num_samples.likely)
        assert found.tokens.all.low <= found.tokens.all.likely <= found.tokens.all.high
        held += told.tokens.low <= truth.tokens.all.likely <= told.tokens.high
        held += told.num_samples.low <= truth.num_samples <= told.num_samples.high
    assert held >= 10  # of 12


@pytest.mark.usefixtures("small_cells")
def test_reading_all_cells_is_the_truth_without_an_error(tmp_path, characters):
    path = write(tmp_path / "data.jsonl", rows(300))
    truth = profile_files([path], tokenizer=characters)
    found = profile_files([path], tokenizer=characters, sample_bytes=10**9)
    assert found.num_samples == truth.num_samples
    assert found.length_counts == truth.length_counts
    assert found.sampling.tokens.low == found.sampling.tokens.high
    assert found.tokens == truth.tokens


@pytest.mark.usefixtures("small_cells")
def test_bad_rows_of_a_sample_are_located_by_their_lines_in_the_file(tmp_path, characters):
    table = [json.dumps(row) for row in rows(2000)]
    for line in range(0, 2000, 7):
        table[line] = "{broken"
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(table))
    found = profile_files([path], tokenizer=characters, sample_bytes=30_000, skip_bad_rows=True)
    assert len(found.bad_rows) > 20
    assert all(row.line % 7 == 1 for row in found.bad_rows)
    assert all(a.line < b.line for a, b in pairwise(found.bad_rows))


@pytest.mark.usefixtures("small_cells")
def test_a_sampled_profile_is_the_same_from_every_run_and_kept_in_its_file(tmp_path):
    from tuneplan.tokens.tokenizers import find_tokenizer

    path = write(tmp_path / "data.jsonl", rows(1500))
    tokenizer = find_tokenizer(tokenizer="approximate")
    found = profile_files([path], tokenizer=tokenizer, sample_bytes=20_000)
    assert found == profile_files([path], tokenizer=tokenizer, sample_bytes=20_000)
    many = profile_files([path], tokenizer=tokenizer, sample_bytes=20_000, engine=Workers(2))
    assert many.sampling == found.sampling
    assert found != profile_files([path], tokenizer=tokenizer, sample_bytes=20_000, seed=1)
    save_profile(found, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == found
    assert any(notice.message.code == "sampled" for notice in found.notices)


def test_a_large_set_is_sampled_unless_all_of_it_is_asked_for(tmp_path, characters, monkeypatch):
    from tuneplan.tokens import profiling

    path = write(tmp_path / "data.jsonl", rows(300))
    monkeypatch.setattr(profiling, "SAMPLED_FROM_BYTES", path.stat().st_size)
    assert profile_files([path], tokenizer=characters).sampled
    assert not profile_files([path], tokenizer=characters, exact=True).sampled
    monkeypatch.setattr(profiling, "SAMPLED_FROM_BYTES", path.stat().st_size + 1)
    assert not profile_files([path], tokenizer=characters).sampled


@pytest.mark.usefixtures("small_cells")
def test_every_file_has_its_share_of_the_cells(tmp_path):
    paths = tuple(str(write(tmp_path / f"{n}.jsonl", rows(1000, n))) for n in range(4))
    data = DataSet(paths=paths)
    domains = domains_of(data, data.size_bytes // 5, seed=3)
    units = list(cell_units(data, domains))
    for file, tally in enumerate(data.tallies):
        read = sum(unit.content.size_bytes for unit in units if unit.file == file)
        assert read == pytest.approx(tally.size_bytes / 5, rel=0.15)
