"""``data profile`` of a part, and ``data tokenize``, by their commands."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def tuneplan(*arguments):
    line = [sys.executable, "-m", "tuneplan", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "data.jsonl"
    lines = (json.dumps({"text": "a plan " * (1 + number % 90)}) for number in range(9000))
    path.write_text("\n".join(lines))
    return path


def test_a_sampled_profile_says_so_with_its_interval(corpus):
    done = tuneplan(
        "data", "profile", corpus, "--tokenizer", "approximate", "--sample", "1MiB", "--json"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    sampling = answer["sampling"]
    assert answer["sampled"] is True
    assert answer["exact"] is False
    assert answer["duplicates"] is None
    assert sampling["read_bytes"] <= sampling["total_bytes"] == corpus.stat().st_size
    assert sampling["num_samples"]["low"] <= 9000 <= sampling["num_samples"]["high"]
    assert [warning["code"] for warning in answer["warnings"]] == ["sampled"]


def test_exact_and_a_sample_are_one_too_many(corpus):
    done = tuneplan("data", "profile", corpus, "--exact", "--sample", "1MiB", "--model", "qwen3")
    assert done.returncode == 2
    assert "--exact reads every row, --sample a part: give one of them" in done.stderr


def test_shards_are_made_and_the_answer_says_how_to_load_them(corpus, tmp_path):
    options = ("--tokenizer", "qwen3", "--max-length", "512", "--pack", "bfd", "-o", tmp_path / "o")
    done = tuneplan("data", "tokenize", corpus, *options)
    assert done.returncode == 0, done.stderr
    assert "packed bfd within each shard" in done.stdout
    assert "datasets.load_from_disk(" in done.stdout
    answer = json.loads(tuneplan("data", "tokenize", corpus, *options, "--json").stdout)
    assert answer["num_samples"] == 9000
    assert answer["num_resumed"] == len(answer["shards"])
    assert answer["packed_efficiency"] > 0.99


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--tokenizer", "approximate"], "has no tokens to write"),
        (["--model", "qwen3", "--pack", "bfd"], "--max-length is needed with --pack bfd"),
        (["--model", "qwen3", "--shard-size", "3KiB"], "a shard takes 64 KiB to 1 GiB"),
        (["--model", "qwen3", "--pack", "tight"], "'tight' is not one of"),
        (["--model", "qwen3", "--ray", "nosuch://x"], "no Ray cluster at nosuch://x"),
    ],
)
def test_what_cannot_be_done_is_told_and_makes_no_folder(corpus, tmp_path, options, told):
    done = tuneplan("data", "tokenize", corpus, "-o", tmp_path / "out", *options)
    assert done.returncode == 2, done.stderr
    assert told in " ".join(done.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl"]


@pytest.mark.parametrize("command", ["profile", "tokenize"])
def test_an_interrupted_command_ends_at_once_with_its_workers(tmp_path, command):
    path = tmp_path / "large.jsonl"
    row = json.dumps({"text": "a plan of many words, " * 300}) + "\n"
    path.write_text(row * 6000)  # 40 MB: many seconds of work
    line = [sys.executable, "-m", "tuneplan", "data", command, str(path), "--tokenizer", "qwen3"]
    line += ["--workers", "2"]
    if command == "tokenize":
        line += ["-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    workers: list[str] = []
    while len(workers) < 2 and process.poll() is None:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        workers = " ".join(task.read_text() for task in tasks).split()
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert stdout == b""
    assert b"Traceback" not in stderr
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
