"""CSV, text, Parquet, Arrow and saved data sets, row by row, with what is wrong in them located."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.errors import Mistake
from tuneplan.tokens.rows import BadRow, Row
from tuneplan.tokens.tables import (
    arrow_batches,
    csv_header,
    dataset_folder,
    parquet_groups,
    read_arrow,
    read_csv,
    read_parquet,
    read_text,
)

TABLE = pa.table({"prompt": [f"p{i}" for i in range(10)], "completion": ["c"] * 10})


def seen(items):
    return [
        (item.line, item.code if isinstance(item, BadRow) else type(item).__name__)
        for item in items
    ]


def values(items):
    return [item.value for item in items if isinstance(item, Row)]


# --- CSV ---


def test_csv_rows_carry_the_line_on_which_they_start():
    text = 'prompt,completion\n"two\nlines",a\nb,c\n'
    assert seen(read_csv("x.csv", io.BytesIO(text.encode()))) == [(2, "Row"), (4, "Row")]


def test_wrong_csv_rows_are_located_and_the_others_read():
    raw = b"\xef\xbb\xbfprompt,completion\na,b\nonly one\n\nc,\xffd\n e,f\n"
    items = list(read_csv("x.csv", io.BytesIO(raw)))
    assert seen(items) == [
        (2, "Row"),
        (3, "csv_fields"),
        (4, "BlankLine"),
        (5, "not_utf8"),
        (6, "Row"),
    ]
    assert "0xff" in str(items[3].message)
    assert values(items)[0] == {"prompt": "a", "completion": "b"}


def test_a_quote_that_never_closes_is_a_bad_row():
    items = list(read_csv("x.csv", io.BytesIO(b'a,b\n1,"2\n3,4\n')))
    assert seen(items) == [(2, "csv_syntax")]


def test_csv_can_be_read_from_the_middle():
    text = b"prompt,completion\na,b\nc,d\n"
    header, lines = csv_header(io.BytesIO(text))
    assert (header, lines) == (["prompt", "completion"], 1)
    items = read_csv("x.csv", io.BytesIO(b"c,d\n"), header=header, first_line=3)
    assert [(one.line, one.value["prompt"]) for one in items] == [(3, "c")]


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))] * 2)
    )
)
def test_what_the_csv_writer_writes_is_read_back(rows):
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("prompt", "completion"), *rows])
    found = values(read_csv("x.csv", io.BytesIO(file.getvalue().encode())))
    kept = [row for row in rows if any(field.strip() for field in row)]
    assert [tuple(one.values()) for one in found] == kept


# --- text ---


def test_each_line_of_text_is_a_sample():
    raw = b"\xef\xbb\xbfone\r\n\ntwo\n\xff\nthree"
    items = list(read_text("x.txt", io.BytesIO(raw)))
    assert seen(items) == [
        (1, "Row"),
        (2, "BlankLine"),
        (3, "Row"),
        (4, "not_utf8"),
        (5, "Row"),
    ]
    assert [one["text"] for one in values(items)] == ["one", "two", "three"]


def test_a_line_of_text_that_is_too_long_is_skipped_and_counted():
    items = read_text("x.txt", io.BytesIO(b"a" * 50 + b"\nb\n"), max_line_bytes=10)
    assert seen(items) == [(1, "row_too_long"), (2, "Row")]


# --- Parquet ---


@pytest.fixture
def parquet():
    file = io.BytesIO()
    pq.write_table(TABLE, file, row_group_size=4, compression="none", use_dictionary=False)
    return file.getvalue()


def test_parquet_rows_are_numbered_over_all_row_groups(parquet):
    assert parquet_groups(io.BytesIO(parquet)) == [4, 4, 2]
    items = list(read_parquet("x.parquet", io.BytesIO(parquet)))
    assert [item.line for item in items] == list(range(1, 11))
    assert values(items) == TABLE.to_pylist()
    last = list(read_parquet("x.parquet", io.BytesIO(parquet), groups=[2]))
    assert [(item.line, item.value["prompt"]) for item in last] == [(9, "p8"), (10, "p9")]


def test_a_truncated_parquet_file_is_one_bad_row_that_says_so(parquet):
    cut = parquet[: len(parquet) // 2]
    items = list(read_parquet("x.parquet", io.BytesIO(cut)))
    assert seen(items) == [(1, "broken_table")]
    assert "rows from this one on are not read" in str(items[0].message)
    with pytest.raises(OSError, match="Parquet"):
        parquet_groups(io.BytesIO(cut))


def test_a_damaged_row_group_is_located_and_the_next_one_read(parquet):
    second = pq.ParquetFile(io.BytesIO(parquet)).metadata.row_group(1).column(0)
    start = second.data_page_offset
    damaged = parquet[:start] + b"\xff" * 12 + parquet[start + 12 :]
    items = list(read_parquet("x.parquet", io.BytesIO(damaged)))
    assert seen(items) == [
        *((line, "Row") for line in range(1, 5)),
        (5, "broken_row_group"),
        (9, "Row"),
        (10, "Row"),
    ]
    assert "rows 5 to 8 are not read" in str(items[4].message)


# --- Arrow ---


def arrow(kind, batch=3):
    file = io.BytesIO()
    with kind(file, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=batch)
    return file.getvalue()


def test_arrow_streams_and_files_give_the_same_rows():
    stream, file = arrow(pa.ipc.new_stream), arrow(pa.ipc.new_file)
    assert values(read_arrow("x.arrow", io.BytesIO(stream))) == TABLE.to_pylist()
    assert values(read_arrow("x.arrow", io.BytesIO(file))) == TABLE.to_pylist()
    assert arrow_batches(io.BytesIO(stream)) is None
    assert arrow_batches(io.BytesIO(file)) == 4
    some = list(read_arrow("x.arrow", io.BytesIO(file), batches=[1, 3]))
    assert [item.line for item in some] == [4, 5, 6, 10]


def test_a_truncated_arrow_stream_keeps_what_is_whole():
    whole = arrow(pa.ipc.new_stream)
    items = list(read_arrow("x.arrow", io.BytesIO(whole[: len(whole) * 3 // 4])))
    assert len(values(items)) in (3, 6, 9)
    assert seen(items)[-1] == (len(values(items)) + 1, "broken_table")


# --- folders of datasets ---


def saved(folder, splits=None):
    if splits is not None:
        folder.mkdir()
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
        for split in splits:
            saved(folder / split)
        return folder
    folder.mkdir()
    name = "data-00000-of-00001.arrow"
    (folder / name).write_bytes(arrow(pa.ipc.new_stream))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    return folder


def test_a_saved_data_set_is_its_arrow_files(tmp_path):
    folder = saved(tmp_path / "set")
    assert dataset_folder(folder) == (folder / "data-00000-of-00001.arrow",)
    assert dataset_folder(tmp_path) is None


def test_of_splits_the_one_for_training_is_taken(tmp_path):
    folder = saved(tmp_path / "set", ["train", "test"])
    assert dataset_folder(folder) == (folder / "train" / "data-00000-of-00001.arrow",)
    other = saved(tmp_path / "other", ["validation", "test"])
    found = dataset_folder(other)
    assert isinstance(found, Mistake)
    assert found.near == (str(other / "validation"), str(other / "test"))
