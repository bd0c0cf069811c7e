"""Write ``evidence/``: one reviewable file a source, from a table of published runs.

``python tools/collect_evidence.py RUNS.csv COMPLETE.csv`` takes the rows that say enough to be a
job: those whose error counts (``memory_complete``, ``throughput_complete``), those that ran out of
memory, and those that the columns turn into a job at all, which serve verdicts. Figures and
settings are copied, sentences are not: of the notes only the dimensions of unnamed GPTs stay.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan.runs.reading import read_complete, read_records  # noqa: E402
from tuneplan.runs.rows import KNOWN_COLUMNS, measured_run  # noqa: E402
from tuneplan.runs.skips import Skip  # noqa: E402
from tuneplan.runs.to_job import to_job  # noqa: E402

TO = ROOT / "evidence"
MEASURED = {
    "peak_mem_gb", "mem_kind", "mem_unit", "tokens_per_s_per_gpu", "samples_per_s", "step_time_s",
    "oom",
}  # fmt: skip
NUMBERS = {
    "gpu_mem_gb", "num_gpus", "nodes", "lora_rank", "seq_len", "micro_batch_per_gpu", "grad_accum",
    "global_batch", "num_samples", "epochs", "peak_mem_gb", "tokens_per_s_per_gpu",
    "samples_per_s", "step_time_s", "tokens_per_sample",
}  # fmt: skip
SETTINGS = tuple(
    sorted(KNOWN_COLUMNS - MEASURED - {"id", "params_b", "source_repo", "source_commit"})
)
LEFT_OUT = ("source_repo", "source_commit", "params_b")
DIMENSIONS = re.compile(r"\bhidden=\d+ layers=\d+(?: heads=\d+)?|\bvocab \d+k\b")
# What the columns do not say by themselves, in our words.
REMARKS = {
    "litgpt-rt": "Memory is that of the longest sample, which is forced into the first batch; "
    "times are of shorter ones, so they are not compared.",
    "litgpt-ch": "The number of cards is that of the configuration file, also where the table "
    "says otherwise.",
    "fitck": "Each run stands as three rows: a allocated, r reserved, n the whole process.",
    "fms": "Rows whose samples are not packed have no length in columns and serve verdicts alone.",
    "bsg": "Published while the runs were being tuned; the author puts the noise at 40 %.",
    "lf": "Samples per second were cut to whole numbers; kept from 100 on.",
    "qwen": "Sums over several cards are divided by their number. The unit of memory is not "
    "stated, so memory is compared with nothing.",
    "swift-bm": "Lengths vary and the mean is not published: seq_len is the cap.",
    "peft-old": "The reserved peak includes an evaluation that generates text.",
    "tt": "Memory is the peak of active blocks.",
}


def kept_cells(cells: Mapping[str, str]) -> dict[str, str]:
    """Columns that are read, and of the notes the dimensions."""
    kept = {
        key: value
        for key, value in cells.items()
        if value
        and key in KNOWN_COLUMNS
        and key not in ("source_repo", "source_commit", "params_b")
    }
    dimensions = " ".join(DIMENSIONS.findall(cells.get("notes", "")))
    if dimensions and "GPT" in cells["model"]:
        kept["notes"] = dimensions
    return kept


def literal(key: str, value: str) -> str:
    """A TOML value: numbers as numbers, all else in quotes."""
    if key in NUMBERS and re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listed(values: Sequence[str]) -> str:
    """A TOML list, wrapped where it is long."""
    plain = "[" + ", ".join(literal("", value) for value in values) + "]"
    if len(plain) < 90:
        return plain
    return "[\n" + "".join(f"  {literal('', value)},\n" for value in values) + "]"


def page(source: str, rows: Sequence[Mapping[str, str]], counts: Mapping[str, list[str]]) -> str:
    """The file of one source."""
    kept = {row["id"]: kept_cells(row) for row in rows}
    columns = list(dict.fromkeys(key for cells in kept.values() for key in cells))
    shared = {
        key: next(iter(values))
        for key in columns
        if key != "id"
        and len(values := {cells.get(key, "") for cells in kept.values()}) == 1
        and len(rows) > 1
    }
    stated = [key for key in SETTINGS if all(key in cells for cells in kept.values())]
    partly = [key for key in SETTINGS if key not in stated and any(key in c for c in kept.values())]
    blank = [key for key in SETTINGS if key not in stated and key not in partly]
    kinds = sorted({cells.get("mem_kind", "") for cells in kept.values()} - {""})
    commits = list(dict.fromkeys(row["source_commit"] for row in rows if row["source_commit"]))
    files = list(dict.fromkeys(row["source_path"] for row in rows if row["source_path"]))
    repositories = list(dict.fromkeys(row["source_repo"] for row in rows))
    lines = [
        "# Made by tools/collect_evidence.py; evidence/README.md says how to read and extend it.",
        "",
        "[source]",
        f"name = {literal('', source)}",
        f"repository = {literal('', ', '.join(repositories))}",
        f"commit = {literal('', ', '.join(commits) or 'a release')}",
        f"files = {listed(files or ['-'])}",
        f"memory = {listed(kinds)}",
        f"stated = {listed(stated)}",
        f"partly_stated = {listed(partly)}",
        f"defaults = {listed(blank)}",
    ]
    if source in REMARKS:
        lines.append(f"remarks = {literal('', REMARKS[source])}")
    lines += ["", "[shared]"] if shared else []
    lines += [f"{key} = {literal(key, value)}" for key, value in shared.items()]
    lines += ["", "[measured]", "runs = ["]
    for row in rows:
        own = {key: value for key, value in kept[row["id"]].items() if key not in shared}
        cells = [f"{key} = {literal(key, value)}" for key, value in own.items()]
        if len(commits) > 1 and row["source_commit"]:
            cells.append(f"source_commit = {literal('', row['source_commit'])}")
        if counts[row["id"]]:
            cells.append(f"counts = {listed(counts[row['id']])}")
        lines.append(f"  {{ {', '.join(cells)} }},")
    lines.append("]")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every file, and say how many runs each has."""
    runs_path, complete_path = sys.argv[1:3]
    complete = read_complete(complete_path)
    with Path(runs_path).open(encoding="utf-8", newline="") as lines:
        texts = {row["id"]: row for row in csv.DictReader(lines)}
    by_source: dict[str, list[dict[str, str]]] = defaultdict(list)
    counts: dict[str, list[str]] = {}
    for record in read_records(runs_path):
        run = measured_run(record)
        listed_as = complete.get(run.id)
        counted = [
            name
            for name, yes in (
                ("memory", listed_as is not None and listed_as.memory),
                ("throughput", listed_as is not None and listed_as.throughput),
            )
            if yes
        ]
        narrow = run.words["compute_dtype"].casefold().startswith(("fp8", "mxfp", "nvfp"))
        labelled = counted or run.measured.out_of_memory
        if not run.model or (not labelled and (isinstance(to_job(run), Skip) or narrow)):
            continue
        counts[run.id] = counted
        by_source[listed_as.source if listed_as else run.source].append(texts[run.id])
    TO.mkdir(exist_ok=True)
    for old in TO.glob("*.toml"):
        old.unlink()
    for source, rows in sorted(by_source.items()):
        (TO / f"{source}.toml").write_text(page(source, rows, counts), encoding="utf-8")
        num = sum(bool(counts[row["id"]]) for row in rows)
        print(f"{source:12} {len(rows):4} runs, {num} of them count")


if __name__ == "__main__":
    main()
