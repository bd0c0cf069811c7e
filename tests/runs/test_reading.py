import pytest

from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.runs.reading import read_complete, read_records


def written(tmp_path, text, name="runs.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_may_come_in_any_order_and_unknown_ones_are_kept(tmp_path):
    path = written(tmp_path, "colour,model,id\nblue,Qwen2.5-7B,a-1\n,Llama-3-8B,a-2\n")
    first, second = read_records(path)
    assert dict(first.cells) == {"colour": "blue", "model": "Qwen2.5-7B", "id": "a-1"}
    assert second.text("colour") == ""


def test_a_record_knows_its_line_even_after_a_cell_with_line_breaks(tmp_path):
    path = written(tmp_path, 'id,model,notes\na-1,m,"two\nlines"\n\na-2,m,x\n')
    assert [record.line for record in read_records(path)] == [2, 5]


@pytest.mark.parametrize("blank", ["", "-", "unknown", "N/A", "not stated", "  "])
def test_words_for_not_known_count_as_blank(tmp_path, blank):
    (record,) = read_records(written(tmp_path, f"id,model,gpu\na-1,m,{blank}\n"))
    assert record.text("gpu") == ""


def test_a_byte_order_mark_does_not_hide_the_first_column(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(b"\xef\xbb\xbfmodel,id\nm,a-1\n")
    assert read_records(path)[0].text("model") == "m"


def test_a_short_row_is_blank_where_it_ends(tmp_path):
    (record,) = read_records(written(tmp_path, "id,model,gpu,seq_len\na-1,m\n"))
    assert record.text("seq_len") == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "file_empty"),
        ("  \n \n", "file_empty"),
        ("id,model\n", "runs_without_rows"),
        ("id,modle\na,b\n", "runs_without_model"),
        ("id,model,id\na,b,c\n", "column_repeated"),
        ('id,model\na,"b\n', "csv_broken"),
    ],
)
def test_a_broken_file_says_what_is_wrong_and_where(tmp_path, text, code):
    path = written(tmp_path, text)
    with pytest.raises(UnreadableFile) as caught:
        read_records(path)
    (mistake,) = caught.value.mistakes
    assert (mistake.message.code, mistake.path) == (code, str(path))


def test_a_near_column_is_offered_for_a_missing_model_column(tmp_path):
    with pytest.raises(UnreadableFile, match=r"modle\?"):
        read_records(written(tmp_path, "id,modle\na,b\n"))


def test_absent_files_folders_and_binary_files_are_told_apart(tmp_path):
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"id,model\na,b\n\xff\xfe\x00")
    codes = {}
    for path in (tmp_path / "no.csv", tmp_path, binary):
        with pytest.raises(UnreadableFile) as caught:
            read_records(path)
        codes[caught.value.message.code] = caught.value.line
    assert codes == {"file_absent": None, "file_is_folder": None, "not_utf8": 3}


def test_every_row_that_is_too_wide_is_named_at_once(tmp_path):
    path = written(tmp_path, "id,model\na,b,c\nd,e\nf,g,h,i\n")
    with pytest.raises(InvalidRequest) as caught:
        read_records(path)
    assert [mistake.line for mistake in caught.value.mistakes] == [2, 4]


def test_complete_rows_say_what_counts(tmp_path):
    path = written(
        tmp_path,
        "id,source,memory_complete,throughput_complete,missing\nfms-1,fms,yes,no,token count\n",
    )
    entry = read_complete(path)["fms-1"]
    assert (entry.source, entry.memory, entry.throughput, entry.missing) == (
        "fms",
        True,
        False,
        "token count",
    )


def test_a_complete_file_without_its_columns_names_them(tmp_path):
    with pytest.raises(UnreadableFile, match="throughput_complete"):
        read_complete(written(tmp_path, "id,memory_complete\nfms-1,yes\n"))


def test_a_complete_file_with_other_words_than_yes_and_no_names_every_line(tmp_path):
    path = written(
        tmp_path, "id,memory_complete,throughput_complete\na,yes,maybe\nb,no,no\nc,1,yes\n"
    )
    with pytest.raises(InvalidRequest) as caught:
        read_complete(path)
    assert [(mistake.line, mistake.value) for mistake in caught.value.mistakes] == [
        (2, "maybe"),
        (4, "1"),
    ]


def test_a_file_beyond_all_bounds_is_not_read_to_its_end(tmp_path):
    path = written(tmp_path, "")
    with path.open("r+b") as file:
        file.truncate(64 * 2**20 + 1)  # sparse: no disk is written
    with pytest.raises(UnreadableFile, match="larger than 64 MiB"):
        read_records(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_ends_a_row(tmp_path, end):
    path = tmp_path / "runs.csv"
    path.write_bytes(f"id,model{end}a-1,m{end}a-2,n{end}".encode())
    assert [(r.line, r.text("model")) for r in read_records(path)] == [(2, "m"), (3, "n")]
