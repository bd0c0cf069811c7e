"""What is wrong in data files, by the real command: located, counted, and the rest still right."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models

from tuneplan.cli.main import run

GOOD = json.dumps({"messages": [{"role": "user", "content": "q"},
                                {"role": "assistant", "content": "a"}]})  # fmt: skip
TOKENIZER = ("--tokenizer", "approximate")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict:
    assert run(["data", "profile", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def lines(path: Path, *rows: str | bytes) -> Path:
    raw = [row if isinstance(row, bytes) else row.encode() for row in rows]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


# Each bad row, and the code and column that it is told with.
BAD = {
    "broken": ('{"messages": [', "json_syntax", 15),
    "no_json": ("nonsense", "json_syntax", 1),
    "latin": ('{"text": "caf\xe9"}'.encode("latin-1"), "not_utf8", 14),
    "null": ("null", "not_an_object", None),
    "null_messages": ('{"messages": null}', "wrong_type", None),
    "null_turn": ('{"messages": [null]}', "wrong_type", None),
    "null_content": ('{"messages": [{"role": "user", "content": null}]}',
                     "message_without_content", None),
    "role": ('{"messages": [{"role": "narrator", "content": "q"}]}', "unknown_role", None),
    "other_shape": ('{"text": "t"}', "other_shape", None),
    "unknown_shape": ('{"id": 1}', "unknown_shape", None),
    "surrogate": ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "lone_surrogate", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_refused_with_its_place_or_left_out_and_counted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, code, column = BAD[name]
    path = lines(tmp_path / "data.jsonl", GOOD, bad, GOOD, "", GOOD)
    refused = answer(capsys, str(path), *TOKENIZER, status=2)
    (mistake,) = refused["errors"]
    assert mistake["code"] == "bad_rows"
    (place,) = mistake["places"]
    assert (place["code"], place["line"], place["column"]) == (code, 2, column)

    whole = answer(capsys, str(path), *TOKENIZER, "--skip-bad-rows")
    (file,) = whole["files"]
    assert (file["rows_ok"], file["rows_bad"], file["blank_lines"]) == (3, 1, 1)
    (row,) = whole["bad_rows"]
    assert (row["code"], row["line"], row["column"]) == (code, 2, column)
    good = lines(tmp_path / "good.jsonl", GOOD, GOOD, GOOD)
    assert whole["tokens"] == answer(capsys, str(good), *TOKENIZER)["tokens"]


def test_a_byte_order_mark_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lines(tmp_path / "data.jsonl", b"\xef\xbb\xbf" + GOOD.encode(), GOOD)
    assert answer(capsys, str(path), *TOKENIZER)["num_samples"] == 2


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "empty_file"), (GOOD.encode("utf-16"), "other_encoding"), (b"\n\n", "empty_data_set")],
)
def test_a_file_without_a_sample_is_refused(
    content: bytes, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    found = answer(capsys, str(path), *TOKENIZER, "--skip-bad-rows", status=2)
    assert [one["code"] for one in found["errors"]] == [code]


def test_a_folder_and_an_absent_file_are_told_with_what_is_near(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = lines(tmp_path / "data.jsonl", GOOD)
    absent = str(tmp_path / "dats.jsonl")
    found = answer(capsys, str(tmp_path), absent, *TOKENIZER, status=2)
    assert [one["near"] for one in found["errors"]] == [[str(inside)], [str(inside)]]


def test_a_line_of_fifty_megabytes_is_one_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({"text": "a" * 50_000_000})
    path = lines(tmp_path / "data.jsonl", '{"text": "b"}', text, '{"text": "c"}')
    found = answer(capsys, str(path), "--tokenizer", "approximate", "--max-length", "128")
    assert found["num_samples"] == 3
    assert found["length"]["max"] == pytest.approx(50_000_000 / 4, rel=1e-3)


def test_rows_before_the_break_of_a_gzip_stream_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(1)  # noqa: S311 - no secret
    rows = [json.dumps({"text": str(draw.random())}) for _ in range(3_000)]
    whole = gzip.compress("\n".join(rows).encode())
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert run(["data", "profile", str(path), *TOKENIZER]) == 2
    assert "the gzip stream breaks here" in capsys.readouterr().err
    found = answer(capsys, str(path), *TOKENIZER, "--skip-bad-rows")
    (row,) = found["bad_rows"]
    assert found["num_samples"] > 500
    assert row["line"] == found["num_samples"] + 1
    read = lines(tmp_path / "read.jsonl", *rows[: found["num_samples"]])
    assert found["tokens"] == answer(capsys, str(read), *TOKENIZER)["tokens"]


def test_a_truncated_parquet_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"text": ["a b c"] * 1_000}), path)
    assert answer(capsys, str(path), *TOKENIZER)["num_samples"] == 1_000
    path.write_bytes(path.read_bytes()[:-40])
    found = answer(capsys, str(path), *TOKENIZER, "--skip-bad-rows", status=2)
    assert "Parquet" in json.dumps(found["errors"])


def test_a_template_that_leaves_its_sandbox_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")  # noqa: S106 - no secret
    Tokenizer(words).save(str(tmp_path / "tokenizer.json"))
    template = {"chat_template": "{{ messages.__class__.__mro__ }}", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(template))
    path = lines(tmp_path / "data.jsonl", GOOD)
    found = answer(capsys, str(path), "--tokenizer", str(tmp_path), "--skip-bad-rows", status=2)
    assert [one["code"] for one in found["errors"]] == ["unsafe_template"]
