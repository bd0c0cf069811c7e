"""The example data set: ours, made by its tool, of a real set's shape."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from tuneplan.tokens.profiling import profile_files
from tuneplan.tokens.tokenizers import find_tokenizer

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "support_chat.jsonl"


def test_the_tool_makes_the_file_that_is_shipped(tmp_path):
    tool = ROOT / "tools" / "make_example_data.py"
    made = tmp_path / "made.jsonl"
    subprocess.run([sys.executable, tool, made], check=True, capture_output=True)
    assert made.read_bytes() == DATA.read_bytes()


def test_it_is_300_different_conversations_with_a_long_tail_under_a_megabyte():
    profile = profile_files([DATA], tokenizer=find_tokenizer(model="Qwen/Qwen2.5-7B"))
    assert (profile.num_samples, profile.shape) == (300, "messages")
    assert (profile.rows_bad, profile.duplicates, profile.empty) == (0, 0, 0)
    assert profile.length.quantiles[0.05] < 60
    assert 2500 < profile.length.max < 3500
    assert profile.length.quantiles[0.95] > 4 * profile.length.mean
    assert DATA.stat().st_size < 1_000_000


def test_it_is_english_and_both_chinese_scripts_with_code_and_tables():
    text = DATA.read_text("utf-8")
    for piece in ("volume", "儲存區", "存储池", "```python", "| --- |", "ERROR"):
        assert piece in text
    turns = [len(json.loads(line)["messages"]) for line in text.splitlines()]
    assert max(turns) > 10
    assert min(turns) == 2


def test_the_example_job_names_the_example_data():
    job = yaml.safe_load((ROOT / "examples" / "support_chat.yaml").read_text("utf-8"))
    assert (ROOT / "examples" / job["data"]["path"]) == DATA
