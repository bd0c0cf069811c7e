"""Shards of tokens on disk: what is in them, and what a killed run leaves."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
import tokenizers

from tuneplan.errors import InvalidRequest, NotSupported, UnreadableFile
from tuneplan.planner.tokenise_data import tokenise_data
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.tokenizers import find_tokenizer
from tuneplan.tokens.workers import Workers

ENGLISH = ["the", "plan", "is", "to", "read", "every", "row", "once", "and", "say", "what"]
CHINESE = list("数据按行读取然后说明其中有多少词元以及怎样装箱")


def texts(number, seed=0):
    """Mixed English and Chinese texts of skewed lengths."""
    draw = np.random.default_rng(seed)
    for size in draw.lognormal(3, 1, number):
        zh = draw.random() < 0.4
        words = draw.choice(CHINESE if zh else ENGLISH, min(400, 1 + int(size)))
        yield ("" if zh else " ").join(words)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model with a small tokenizer of its own, which opens at once."""
    folder = tmp_path_factory.mktemp("model")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<end>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(texts(100), trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    return str(folder)


@pytest.fixture
def options(model):
    return {"tokenizer": model, "skip_bad_rows": True, "shard_bytes": 2**16}


@pytest.fixture
def corpus(tmp_path):
    """Two files, the second compressed, with a bad row in each."""
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts(900)]
    lines[100] = "{broken"
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[:300]).encode()))
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl.gz")]


def contents(folder):
    """Every file of a folder, by its path in it."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_datasets_loads_the_shards_and_they_hold_the_tokens_of_every_row(corpus, tmp_path, options):
    made = tokenise_data(corpus, tmp_path / "out", **options)
    rows = datasets.load_from_disk(str(tmp_path / "out"))
    encoder = find_tokenizer(tokenizer=options["tokenizer"]).encoder
    wanted = [text + "<end>" for text in texts(900)]
    wanted = [*wanted[:100], *wanted[101:], *wanted[:100], *wanted[101:300]]
    found = [one.ids.tolist() for one in encoder.encode([Rendered(text) for text in wanted])]
    assert rows["input_ids"][:] == found
    assert rows["labels"][:] == found  # a text is learned whole
    assert len(made.manifest["shards"]) == 3
    assert [(row.path, row.line) for row in made.bad_rows] == [(path, 101) for path in corpus]
    assert made.manifest["totals"]["tokens"] == sum(map(len, found))


def test_parquet_is_loaded_by_the_name_of_the_folder_alone(corpus, tmp_path, monkeypatch, options):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    tokenise_data(corpus[:1], tmp_path / "out", shard_format="parquet", **options)
    rows = datasets.load_dataset(
        str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows.num_rows == 899
    assert rows.column_names == ["input_ids", "labels"]


def test_only_the_answers_of_a_conversation_have_labels(tmp_path):
    row = {
        "messages": [
            {"role": "user", "content": "What is 2 + 2?"},
            {"role": "assistant", "content": "It is 4."},
        ]
    }
    (tmp_path / "chat.jsonl").write_text(json.dumps(row))
    tokenise_data([tmp_path / "chat.jsonl"], tmp_path / "out", tokenizer="qwen3")
    (found,) = datasets.load_from_disk(str(tmp_path / "out"))
    learned = [label for label in found["labels"] if label != -100]
    encoder = find_tokenizer(tokenizer="qwen3").encoder
    (wanted,) = encoder.encode([Rendered("It is 4.<|im_end|>")])
    assert learned == wanted.ids.tolist()
    assert found["labels"][-2 - len(learned) : -len(learned) - 1] != learned


def test_the_same_bytes_come_from_one_process_and_from_many(corpus, tmp_path, options):
    packed = {**options, "max_length": 256, "packing": "bfd"}
    one = tokenise_data(corpus, tmp_path / "one", workers=1, **packed)
    tokenise_data(corpus, tmp_path / "two", workers=2, **packed)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    totals = one.manifest["totals"]
    assert totals["tokens"] / (totals["rows"] * 256) > 0.97


def test_a_made_folder_is_not_made_again_and_other_settings_are_refused(corpus, tmp_path, options):
    first = tokenise_data(corpus, tmp_path / "out", **options)
    again = tokenise_data(corpus, tmp_path / "out", **options)
    assert again.manifest == first.manifest
    assert again.num_resumed == len(first.manifest["shards"])
    with pytest.raises(UnreadableFile, match="other settings"):
        tokenise_data(corpus, tmp_path / "out", max_length=9, **options)
    with pytest.raises(UnreadableFile, match="other data"):
        tokenise_data(corpus[:1], tmp_path / "out", **options)
    with pytest.raises(UnreadableFile, match="other tokenizer"):
        tokenise_data(corpus, tmp_path / "out", **{**options, "tokenizer": "qwen3"})
    with pytest.raises(UnreadableFile, match="holds no shards"):
        tokenise_data(corpus, tmp_path, **options)


def test_bad_rows_are_an_error_unless_skipped_and_the_work_is_kept(corpus, tmp_path, options):
    with pytest.raises(InvalidRequest) as refused:
        tokenise_data(corpus, tmp_path / "out", **{**options, "skip_bad_rows": False})
    assert [(one.line, one.path) for one in refused.value.mistakes[0].places] == [
        (101, corpus[0]),
        (101, corpus[1]),
    ]
    assert not (tmp_path / "out").exists()
    made = tokenise_data(corpus, tmp_path / "out", **options)
    assert made.num_resumed == len(made.manifest["shards"])


def test_pairs_and_pictures_are_refused_by_name(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    with pytest.raises(NotSupported, match="preference pairs"):
        tokenise_data([tmp_path / "pairs.jsonl"], tmp_path / "out", tokenizer="qwen3")
    assert not list(tmp_path.glob("out*partial"))
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}
    row = {"messages": [turn, {"role": "assistant", "content": "a cat"}]}
    (tmp_path / "see.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InvalidRequest, match="no sample"):
        tokenise_data([tmp_path / "see.jsonl"], tmp_path / "out", tokenizer="qwen3")


def test_what_is_wrong_is_told_at_once(tmp_path):
    with pytest.raises(InvalidRequest) as refused:
        tokenise_data([tmp_path / "no.jsonl"], tmp_path / "out", model="nobody/none", packing="bfd")
    codes = [mistake.message.code for mistake in refused.value.mistakes]
    assert codes == ["no_such_file", "packing_needs_length", "no_tokenizer"]


def test_two_runs_do_not_make_one_folder(corpus, tmp_path, options):
    import fcntl

    with (tmp_path / "out.partial.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UnreadableFile, match="another run"):
            tokenise_data(corpus, tmp_path / "out", **options)


# --- Killed runs -------------------------------------------------------------------------------


def command(data, model, output, *more):
    options = ["--max-length", "256", "--pack", "bfd", "--shard-size", "64KiB"]
    start = [sys.executable, "-m", "tuneplan", "data", "tokenize"]
    return [*start, str(data), "--tokenizer", model, "-o", output, *options, *more]


def run(line, environment):
    subprocess.run(line, check=True, env=environment, capture_output=True)


def wait(process, seconds):
    """Whether the process ended by itself within the time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def test_ten_kills_at_random_moments_leave_the_bytes_of_an_undisturbed_run(tmp_path, model):
    draw = np.random.default_rng(6)
    data = tmp_path / "data.jsonl"
    lines = (
        json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts(13_000, seed=1)
    )
    data.write_text("".join(lines), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    whole, output = str(tmp_path / "whole"), str(tmp_path / "out")
    subprocess.run(command(data, model, whole), check=True, env=environment, capture_output=True)
    num_shards = len(list(Path(whole).glob("*.arrow")))
    assert num_shards > 20
    done, killed = Path(f"{output}.partial/done"), 0
    for kill in range(10):
        workers = "2" if kill in (3, 7) else "1"
        process = subprocess.Popen(
            command(data, model, output, "--workers", workers),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # From the very start to the middle of a shard, two or so further each time.
        before = len(list(done.glob("*.json")))
        until = before + int(draw.integers(0, 4))
        while len(list(done.glob("*.json"))) < until and not wait(process, 0.001):
            pass
        wait(process, draw.uniform(0, 0.05 if kill else 0.6))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert not Path(output).exists()
    assert killed == 10
    assert 0 < len(list(done.glob("*.json"))) < num_shards
    subprocess.run(command(data, model, output), check=True, env=environment, capture_output=True)
    assert contents(output) == contents(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "out", "whole"]


@pytest.mark.parametrize("left", ["manifest", "no plan", "unfinished file"])
def test_a_run_that_was_killed_while_it_finished_is_finished(corpus, tmp_path, left, options):
    tokenise_data(corpus, tmp_path / "whole", **options)
    partial = tmp_path / "out.partial"
    shutil.copytree(tmp_path / "whole", partial)
    if left == "unfinished file":
        (partial / ".train-00001.arrow.1.unfinished").write_bytes(b"half")
    if left == "manifest":
        for name in ("state.json", "dataset_info.json"):
            (partial / name).unlink()
    tokenise_data(corpus, tmp_path / "out", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_file_is_what_the_manifest_says(corpus, tmp_path, options):
    from hashlib import sha256

    made = tokenise_data(corpus, tmp_path / "out", **options)
    for shard in made.manifest["shards"]:
        data = (tmp_path / "out" / shard["name"]).read_bytes()
        assert (sha256(data).hexdigest(), len(data)) == (shard["sha256"], shard["bytes"])
        with pa.ipc.open_stream(data) as stream:
            assert stream.read_all().num_rows == shard["rows"]


def test_a_worker_that_dies_does_not_change_the_shards(corpus, tmp_path, monkeypatch, options):
    tokenise_data(corpus, tmp_path / "whole", workers=1, **options)
    monkeypatch.setattr("tuneplan.tokens.workers.Workers", _Murderous)
    tokenise_data(corpus, tmp_path / "out", workers=2, **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


class _Murderous(Workers):
    """Kills a worker process after the first result."""

    def run(self, function, units):
        for number, result in enumerate(super().run(function, units)):
            if number == 0:
                children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
                os.kill(int(" ".join(path.read_text() for path in children).split()[0]), 9)
            yield result
