"""One data set in every format it can come in: the same samples, tokens and lengths."""

import csv
import gzip
import json
import random

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

from tuneplan.tokens.profiling import profile_files

WORDS = ("a", "token", "的", "模型", 'quote "', "line\nbreak", "comma,", "tab\t", "é", "😀")


def words(draw):
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 30)))


def rows(kind, count=60):
    """Rows of a layout; nested ones hold a key that is not in every message."""
    draw = random.Random(4)  # noqa: S311 - no secret
    if kind == "flat":
        return [{"prompt": words(draw), "completion": words(draw)} for _ in range(count)]
    if kind == "pairs":
        keys = ("prompt", "chosen", "rejected")
        return [{key: words(draw) for key in keys} for _ in range(count)]
    return [
        {
            "messages": [
                {"role": "user", "content": words(draw)},
                {"role": "assistant", "content": words(draw)},
            ],
            "tools": None if number % 2 else '[{"name": "f"}]',
        }
        for number in range(count)
    ]


def lines(found):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()


def jsonl(path, found):
    (path / "d.jsonl").write_bytes(lines(found))


def array(path, found):
    (path / "d.json").write_text(json.dumps(found, indent=2), encoding="utf-8")


def wrapped(path, found):
    (path / "d.json").write_text(json.dumps({"version": 1, "data": found}), encoding="utf-8")


def zipped(path, found):
    (path / "d.jsonl.gz").write_bytes(gzip.compress(lines(found)))


def zst(path, found):
    (path / "d.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(lines(found)))


def parquet(path, found):
    pq.write_table(pa.Table.from_pylist(found), path / "d.parquet", row_group_size=7)


def arrow_stream(path, found):
    table = pa.Table.from_pylist(found)
    with pa.ipc.new_stream(str(path / "d.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=9)


def feather(path, found):
    pyarrow.feather.write_feather(pa.Table.from_pylist(found), path / "d.feather")


def saved(path, found):
    arrow_stream(path, found)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "d.arrow"}]}))


def comma_separated(path, found):
    with (path / "d.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)


def tab_separated(path, found):
    with (path / "d.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(found)


NESTED = (jsonl, array, wrapped, zipped, zst, parquet, arrow_stream, feather, saved)
CASES = [
    *(("messages", write) for write in NESTED),
    *((kind, write) for kind in ("flat", "pairs")
      for write in (*NESTED, comma_separated, tab_separated)),
]  # fmt: skip


def facts(profile):
    return (
        profile.num_samples,
        profile.shape,
        profile.length_counts,
        profile.tokens.trained,
        profile.duplicates,
        profile.rows_bad,
    )


@pytest.mark.parametrize(("kind", "write"), CASES)
def test_every_format_gives_the_same_facts(kind, write, tmp_path, characters):
    found = rows(kind)
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder, found)
    name = folder if write is saved else next(folder.iterdir())
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(lines(found))
    expected = profile_files([plain], tokenizer=characters)
    assert expected.num_samples == 60
    assert facts(profile_files([name], tokenizer=characters)) == facts(expected)


def test_each_line_of_a_text_file_is_a_sample(tmp_path, characters):
    path = tmp_path / "d.txt"
    path.write_text("one\n\ntwo words\n", encoding="utf-8")
    profile = profile_files([path], tokenizer=characters)
    assert (profile.shape, profile.num_samples) == ("text", 2)
    assert profile.files[0].blank_lines == 1
