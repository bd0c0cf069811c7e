"""Parts of files give the rows of the whole, wherever they are counted."""

import gzip
import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killed_workers import KilledOnce
from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.profiling import count_units, profile_files
from tuneplan.tokens.reading import parts_of, read_part, read_rows
from tuneplan.tokens.rows import BadRow
from tuneplan.tokens.tokenizers import find_tokenizer
from tuneplan.tokens.work import DataSet, in_batches
from tuneplan.tokens.workers import InProcess, WorkerDied, Workers

LINES = st.lists(
    st.one_of(
        st.text(max_size=30).map(lambda text: json.dumps({"text": text}, ensure_ascii=False)),
        st.sampled_from(["", "  ", "{broken", "[1]", '{"text": "x"}\r', "\ufeff{}"]),
    ).map(lambda line: line.encode("utf-8", "replace")),
    max_size=25,
)


@given(lines=LINES, end=st.sampled_from([b"", b"\n"]), part=st.integers(1, 60), bom=st.booleans())
def test_parts_of_any_size_give_every_row_once_with_its_line(
    tmp_path_factory, lines, end, part, bom
):
    path = tmp_path_factory.mktemp("parts") / "data.jsonl"
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + b"\n".join([b"{}", *lines]) + end)
    found, before, read_bytes = [], 0, []
    for one in parts_of(path, part):
        items = list(read_part(one, read_bytes.append))
        found += [replace(item, line=item.line + before + one.shift) for item in items]
        before += len(items)
    assert found == list(read_rows(path))
    assert sum(read_bytes) == path.stat().st_size


def test_parts_of_plain_text_are_lines_too(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("".join(f"line {number}\n" for number in range(50)))
    rows = [row.value for part in parts_of(path, 64) for row in read_part(part)]
    assert rows == [{"text": f"line {number}"} for number in range(50)]


def test_what_is_one_stream_has_no_parts(tmp_path):
    for name in ("a.jsonl.gz", "a.json", "a.csv"):
        (tmp_path / name).write_bytes(gzip.compress(b"{}\n") if name.endswith(".gz") else b"[{}]")
        assert parts_of(tmp_path / name, 10) is None


@given(weights=st.lists(st.integers(0, 9)), limit=st.integers(1, 20))
def test_batches_hold_everything_in_order_and_little_more_than_the_limit(weights, limit):
    batches = list(in_batches(weights, lambda weight: weight, limit))
    assert [weight for batch in batches for weight in batch] == weights
    assert all(sum(batch) < limit + 9 for batch in batches)


@pytest.fixture
def mixed(tmp_path):
    """Three files of different formats; bad rows on lines that are known."""
    lines = [json.dumps({"text": f"number {number} " * (number % 7 + 1)}) for number in range(400)]
    lines[150], lines[333] = "{broken", ""
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "c.csv").write_text("text\n" + "\n".join(f'"row, {n}"' for n in range(90)))
    return [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.csv")]


@pytest.mark.parametrize("whole_files", [False, True])
def test_the_counts_are_the_same_whatever_the_units_and_the_processes(mixed, whole_files):
    tokenizer = find_tokenizer(tokenizer="qwen3")
    plain = profile_files(mixed, tokenizer=tokenizer, skip_bad_rows=True)
    assert [(row.path, row.line) for row in plain.bad_rows] == [
        (str(mixed[0]), 151),
        (str(mixed[1]), 151),
    ]
    data = DataSet(paths=tuple(map(str, mixed)), part_bytes=1000, whole_files=whole_files)
    totals = count_units(data, RowCounter(tokenizer), Workers(2))
    assert tuple(tally.facts() for tally in data.tallies) == plain.files
    assert tuple(sorted(totals.lengths.items())) == plain.length_counts
    assert tuple(totals.bad_rows) == plain.bad_rows
    assert totals.trained_tokens == plain.tokens.trained.likely


def test_bad_rows_of_every_part_have_the_lines_of_the_file(tmp_path, characters):
    path = tmp_path / "data.jsonl"
    path.write_text("".join('{"text": "a"}\n{broken\n' for _ in range(40)))
    data = DataSet(paths=(str(path),), part_bytes=50)
    totals = count_units(data, RowCounter(characters), InProcess())
    assert [row.line for row in totals.bad_rows] == list(range(2, 82, 2))
    assert all(isinstance(row, BadRow) for row in totals.bad_rows)


# --- Worker processes --------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_units():
    assert list(Workers(2).run(abs, range(-20, 0))) == list(range(20, 0, -1))


def test_what_a_unit_raises_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        list(Workers(2).run(int, ["1", "x"]))


def test_the_unit_of_a_killed_worker_is_done_again(tmp_path):
    function = KilledOnce(abs, tmp_path / "killed")
    assert list(Workers(2).run(function, range(8))) == list(range(8))
    assert (tmp_path / "killed").exists()


def test_a_unit_that_kills_every_worker_is_an_error_that_says_so():
    with pytest.raises(WorkerDied, match=r"status -9.*--workers"):
        list(Workers(1).run(DieAlways(), [1]))


class DieAlways:
    def __reduce__(self):
        return eval, ("lambda unit: __import__('os').kill(__import__('os').getpid(), 9)",)


def test_workers_end_when_the_caller_stops_early():
    results = Workers(2).run(os.getpgid, [0] * 50)
    next(results)
    results.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
