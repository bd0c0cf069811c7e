"""Rows, bad rows and blank lines of files, with their lines."""

import gzip
import json

import pytest

from tuneplan.tokens.files import file_format, unreadable
from tuneplan.tokens.reading import read_rows
from tuneplan.tokens.rows import BadRow, BlankLine, Row


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def codes(path, **limits):
    return [
        (item.line, item.code if isinstance(item, BadRow) else type(item).__name__)
        for item in read_rows(path, **limits)
    ]


def test_every_line_is_a_row_a_bad_row_or_blank_and_none_is_lost(tmp_path):
    lines = [b'{"text": "a"}', b"", b"{broken", b"[1, 2]", b'{"text": "\xff"}', b'{"text": "b"}']
    path = write(tmp_path / "data.jsonl", b"\n".join(lines))
    assert codes(path) == [
        (1, "Row"),
        (2, "BlankLine"),
        (3, "json_syntax"),
        (4, "not_an_object"),
        (5, "not_utf8"),
        (6, "Row"),
    ]


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path):
    path = write(tmp_path / "data.jsonl", b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b"}\r\n')
    assert [item.value for item in read_rows(path)] == [{"text": "a"}, {"text": "b"}]


def test_a_broken_line_is_placed_to_the_column(tmp_path):
    path = write(tmp_path / "data.jsonl", '{"text": "a" "b"}\n')
    (bad,) = read_rows(path)
    assert str(bad.message) == "not JSON: Expecting ',' delimiter"
    assert bad.place == f"{path}:1:14"


def test_rows_of_a_json_array_carry_the_line_on_which_they_start(tmp_path):
    rows = [{"text": "a"}, {"text": "b", "more": {"x": 1}}, {"text": "c"}]
    path = write(tmp_path / "data.json", json.dumps(rows, indent=2))
    # "[" is line 1; a row of one key takes 3 lines, the second one 6.
    assert codes(path) == [(2, "Row"), (5, "Row"), (11, "Row")]
    assert [item.value["text"] for item in read_rows(path)] == ["a", "b", "c"]


def test_an_array_of_other_things_than_objects_has_every_one_located(tmp_path):
    path = write(tmp_path / "data.json", '[1,\n"two",\nnull,\n{"text": "a"}]')
    assert codes(path) == [
        (1, "not_an_object"),
        (2, "not_an_object"),
        (3, "not_an_object"),
        (4, "Row"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"text": "a"},\n{"text": }]', [(1, "Row"), (2, "broken_array")]),
        ('[{"text": "a"}\n{"text": "b"}]', [(1, "Row"), (2, "broken_array")]),
        ('[{"text": "a"},\n', [(1, "Row"), (2, "broken_array")]),
        ('[{"text": "a"}]\n\n[1]', [(1, "Row"), (3, "after_array")]),
    ],
    ids=["value", "comma", "end", "after"],
)
def test_an_array_that_breaks_keeps_the_rows_before_and_says_where(tmp_path, text, expected):
    assert codes(write(tmp_path / "data.json", text)) == expected


def test_a_json_file_that_holds_lines_is_read_as_lines(tmp_path):
    path = write(tmp_path / "data.json", '{"text": "a"}\n{"text": "b"}\n')
    assert file_format(path) == "jsonl"
    assert codes(path) == [(1, "Row"), (2, "Row")]


def test_the_table_inside_an_object_is_read(tmp_path):
    text = json.dumps({"version": 1, "data": [{"text": "a"}, {"text": "b"}]}, indent=1)
    path = write(tmp_path / "data.json", text)
    assert file_format(path) == "json"
    assert [item.value for item in read_rows(path)] == [{"text": "a"}, {"text": "b"}]


def test_gzip_is_unpacked_and_a_cut_stream_is_a_bad_row(tmp_path):
    packed = gzip.compress(b'{"text": "abcdefgh"}\n' * 400)
    whole = write(tmp_path / "data.jsonl.gz", packed)
    assert file_format(whole) == "jsonl.gz"
    assert len(codes(whole)) == 400
    cut = write(tmp_path / "cut.jsonl.gz", packed[:-12])
    assert codes(cut)[-1][1] == "broken_gzip"


def test_a_line_without_an_end_in_sight_is_one_bad_row_and_the_next_line_is_read(tmp_path):
    path = write(tmp_path / "data.jsonl", '{"text": "' + "a" * 500 + '"}\n{"text": "b"}\n')
    assert codes(path, max_row_bytes=100) == [(1, "row_too_long"), (2, "Row")]


def test_an_array_beyond_the_limit_is_refused_with_the_way_out(tmp_path):
    path = write(tmp_path / "data.json", '[{"text": "' + "a" * 500 + '"}]')
    (bad,) = read_rows(path, max_json_bytes=100)
    assert bad.code == "json_too_large"
    assert "JSON Lines" in str(bad.message)


def test_deeply_nested_json_is_a_bad_row(tmp_path):
    path = write(tmp_path / "data.jsonl", "[" * 100_000 + "\n")
    assert all(isinstance(item, BadRow) for item in read_rows(path))


def test_blank_lines_are_counted_not_judged(tmp_path):
    path = write(tmp_path / "data.jsonl", "\n  \n\t\n")
    assert [type(item) for item in read_rows(path)] == [BlankLine] * 3


def test_progress_reaches_the_size_of_the_file(tmp_path):
    path = write(tmp_path / "data.jsonl", '{"text": "a"}\n' * 2000)
    told: list[int] = []
    rows = [item for item in read_rows(path, on_bytes=told.append) if isinstance(item, Row)]
    assert len(rows) == 2000
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size


class TestFilesThatCannotBeRead:
    def test_an_absent_file_names_its_neighbours(self, tmp_path):
        write(tmp_path / "support_chat.jsonl", "{}")
        problem = unreadable(tmp_path / "suport_chat.jsonl")
        assert "does not exist" in str(problem.message)
        assert problem.near == (str(tmp_path / "support_chat.jsonl"),)

    def test_an_absent_folder_is_named(self, tmp_path):
        problem = unreadable(tmp_path / "no" / "data.jsonl")
        assert problem.message.code == "no_such_folder"

    def test_a_folder_names_the_files_in_it(self, tmp_path):
        write(tmp_path / "a.jsonl", "{}")
        problem = unreadable(tmp_path)
        assert problem.message.code == "is_a_folder"
        assert problem.near == (str(tmp_path / "a.jsonl"),)

    @pytest.mark.parametrize(
        ("name", "content", "code"),
        [
            ("data.jsonl", b"", "empty_file"),
            ("data.xlsx", b"PK\x03\x04", "format_not_read"),
            ("data.parquet.gz", b"PAR1", "format_not_read"),
            ("data.csv", "a,b\n".encode("utf-16"), "other_encoding"),
            ("data.jsonl.zst", b"not Zstandard", "unreadable_file"),
            ("data.jsonl", '{"text": "a"}'.encode("utf-16"), "other_encoding"),
            ("data.jsonl", b"PK\x03\x04\x00\x00", "binary_file"),
            ("data.jsonl.gz", b"not gzip at all", "unreadable_file"),
        ],
    )
    def test_what_is_no_text_table_is_refused_by_name(self, tmp_path, name, content, code):
        problem = unreadable(write(tmp_path / name, content))
        assert problem.message.code == code
        assert str(tmp_path / name) in str(problem.message)

    def test_a_good_file_has_no_problem(self, tmp_path):
        assert unreadable(write(tmp_path / "data.jsonl", "{}")) is None
