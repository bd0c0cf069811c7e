r"""Trace measured runs with the libraries that ran, and write how far off the traces are.

    python tools/trace_against_runs.py RUNS.csv --complete COMPLETE.csv \
        --environments FOLDER --results RESULTS.json [--sources fitck,fms] [--page PAGE.md]

Runs have the columns of ``docs/reference/runs.md``; they are not part of the repository. A run
whose row names versions of transformers and PEFT is traced with the environment under
``--environments`` that has them (each is what ``--python`` takes: a virtual environment with the
old libraries, and a ``.pth`` file that names the site-packages which hold PyTorch); without
versions, with the libraries of the interpreter that runs this. Each trace has a process of its
own. What was traced stands in ``--results``, and is not traced again unless ``--again`` is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import statistics
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan.errors import TuneplanError  # noqa: E402 - the source tree comes first
from tuneplan.estimation.allocator import CachingAllocator  # noqa: E402
from tuneplan.estimation.uncertainty import CONTEXT_WIDTH  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402
from tuneplan.planner.trace import JobTrace, trace_job  # noqa: E402
from tuneplan.runs.reading import read_complete, read_records  # noqa: E402
from tuneplan.runs.rows import MeasuredRun, MemoryKind, measured_run  # noqa: E402
from tuneplan.runs.skips import Skip, skip  # noqa: E402
from tuneplan.runs.to_job import to_job  # noqa: E402
from tuneplan.spec.stated import StatedJob  # noqa: E402
from tuneplan.tracing.cache import code_digest  # noqa: E402
from tuneplan.tracing.environment import interpreter  # noqa: E402
from tuneplan.tracing.replay import replay  # noqa: E402

# Ends of a range and a figure that differ by so little are the same: figures are rounded.
SAME = 0.002

# What a row's notes call the figures of one step, to ours.
PHASES = {
    "after_load_allocated_mib": "after load",
    "peak_forward_mib": "forward",
    "peak_backward_mib": "backward",
    "peak_optimizer_mib": "optimizer step",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that is to be traced: rows of one run (one for each kind of memory) stand together."""

    rows: tuple[MeasuredRun, ...]
    job: StatedJob
    python: str | None

    @property
    def key(self) -> str:
        """What its result is kept under."""
        return self.rows[0].id

    @property
    def digest(self) -> str:
        """Changes where the job is read differently, or other libraries trace it."""
        return hashlib.sha256(f"{self.job!r}{self.python}".encode()).hexdigest()[:16]


def main() -> None:
    """Trace what is missing, then write the page."""
    options = _options()
    runs, skipped = read_runs(options)
    known: dict[str, Any] = {}
    if options.results.exists():
        known = json.loads(options.results.read_text())
    for number, run in enumerate(runs, 1):
        found = known.get(run.key)
        if options.no_trace:
            continue
        if found is None or found["digest"] != run.digest or _wanted_again(found, run, options):
            found = _twin(run, known) or {"digest": run.digest, **traced(run)}
            known[run.key] = found
            options.results.write_text(json.dumps(known, indent=1))
        print(f"{number:4d}/{len(runs)} {line(run, found)}", flush=True)
    shown = [
        (run, known[run.key] if known.get(run.key, {}).get("digest") == run.digest else {})
        for run in runs
    ]
    text = page(shown, skipped)
    print(text.split("<!-- tables -->")[1])
    if options.page:
        options.page.write_text(text)


def _twin(run: Run, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was found for another run of the same job, by the same code."""
    code = code_digest()[:12]
    twins = (one for one in known.values() if one.get("code") == code)
    return next((dict(one) for one in twins if one["digest"] == run.digest), None)


def _wanted_again(found: Mapping[str, Any], run: Run, options: argparse.Namespace) -> bool:
    wanted = options.again
    if wanted == "refused":
        return "refused" in found
    if wanted == "stale":
        return found.get("code") != code_digest()[:12]
    return bool(wanted) and (wanted == "all" or run.key.startswith(tuple(wanted.split(","))))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--complete", type=Path)
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--sources", default="", help="comma-separated; all where none is given")
    parser.add_argument("--only", default="", help="ids that begin with one of these")
    parser.add_argument(
        "--again",
        default="",
        help="trace again: ids that begin so, 'refused', 'stale' (other code traced it) or 'all'",
    )
    parser.add_argument(
        "--sample", type=int, help="at most so many runs of each group, model and transformers"
    )
    parser.add_argument("--cards", type=int, help="runs on so many cards alone")
    parser.add_argument(
        "--lengths", default="", help="source=tokens,...: the longest batch, where no row says it"
    )
    parser.add_argument(
        "--python-of", default="", help="word=environment,...: of rows whose framework_version has"
    )
    parser.add_argument("--without", default="", help="ids that are left out")
    parser.add_argument("--no-trace", action="store_true", help="of what is known alone")
    parser.add_argument("--page", type=Path)
    return parser.parse_args()


def read_runs(options: argparse.Namespace) -> tuple[list[Run], dict[str, list[str]]]:
    """The runs to trace, and ids of the complete rows that are no jobs, by reason."""
    listed = None if options.complete is None else read_complete(options.complete)
    sources = [name for name in options.sources.split(",") if name]
    only = tuple(name for name in options.only.split(",") if name)
    homes = environments(options.environments)
    lengths = dict(pair.split("=") for pair in options.lengths.split(",") if pair)
    named = dict(pair.split("=") for pair in options.python_of.split(",") if pair)
    groups: dict[str, list[tuple[MeasuredRun, StatedJob]]] = {}
    skipped: dict[str, list[str]] = {}
    for record in read_records(options.runs):
        name = record.cells.get("id", "")
        source = listed[name].source if listed and name in listed else ""
        run = measured_run(record, source=source)
        if listed is not None and (name not in listed or not listed[name].memory):
            continue
        if (sources and run.source not in sources) or (only and not name.startswith(only)):
            continue
        if run.measured.peak_memory_bytes is None:
            continue
        job = to_job(run)
        if name in options.without.split(","):
            job = skip("left_out", "left out by name, see above")
        elif not isinstance(job, Skip):
            job = _variant(job, run.extra.get("notes", ""))
        if isinstance(job, Skip):
            skipped.setdefault(str(job.message), []).append(name)
            continue
        if run.source in lengths:
            training = replace(job.recipe.training, max_length=int(lengths[run.source]))
            job = replace(job, recipe=replace(job.recipe, training=training))
        # The same job in the same measurement: rows that differ in their last letter alone.
        groups.setdefault(f"{name.rstrip('anr')}", []).append((run, job))
    runs = [
        Run(
            rows=tuple(run for run, _ in rows),
            job=rows[0][1],
            python=_named(rows[0][0], named) or (homes.python_of(rows[0][0]) if homes else None),
        )
        for rows in groups.values()
        if options.cards in (None, rows[0][0].accelerators)
    ]
    return _sampled(runs, options.sample), skipped


def _variant(job: StatedJob, notes: str) -> StatedJob | Skip:
    """The variant of LoRA that a row's notes name in PEFT's words."""
    found = re.search(r"variant=([\w=-]+)", notes)
    if found is None:
        return job
    word = found[1]
    if word not in ("use_dora", "use_rslora"):
        return skip("variant", "its notes name a variant that is not traced: {word}", word=word)
    adapter = replace(job.recipe.adapter, **{word: True})
    method = "dora" if word == "use_dora" else job.recipe.method
    return replace(job, recipe=replace(job.recipe, adapter=adapter, method=method))


def _named(row: MeasuredRun, named: Mapping[str, str]) -> str | None:
    """The environment of a framework's version or commit."""
    return next((path for word, path in named.items() if word in row.framework_version), None)


def _sampled(runs: Sequence[Run], most: int | None) -> list[Run]:
    """The first of each kind, in the order of the file."""
    seen: dict[tuple[str, ...], int] = {}
    found = []
    for run in runs:
        row = run.rows[0]
        key = (group_of(run), row.model, row.software.get("transformers", ""))
        seen[key] = seen.get(key, 0) + 1
        if most is None or seen[key] <= most:
            found.append(run)
    return found


@dataclass(frozen=True, slots=True)
class Environments:
    """Folders of environments by the versions of transformers and PEFT in them."""

    known: Mapping[tuple[str, str], str]

    def python_of(self, run: MeasuredRun) -> str | None:
        """The environment with the versions of a row; PEFT's patch level may differ."""
        wanted = run.software.get("transformers")
        if wanted is None:
            return None
        peft = run.software.get("peft", "")
        near = [
            (key[1] != peft, _minor(key[1]) != _minor(peft), path)
            for key, path in self.known.items()
            if key[0] == wanted
        ]
        return min(near)[2] if near else None


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def environments(folder: Path | None) -> Environments | None:
    """What lies under a folder."""
    if folder is None:
        return None
    known = {}
    for inner in sorted(folder.iterdir()):
        if (inner / "bin" / "python").exists():
            versions = interpreter(str(inner)).versions
            known[versions["transformers"], versions["peft"]] = str(inner)
    return Environments(known)


def traced(run: Run) -> dict[str, Any]:
    """Figures of a trace, or why there are none."""
    started = time.perf_counter()
    sources = Sources(today=datetime.now(tz=UTC).date())
    try:
        found = trace_job(run.job, sources, python=run.python)
    except TuneplanError as error:
        mistakes = getattr(error, "mistakes", ())
        said = str(mistakes[0].message) if mistakes else str(error)
        seconds = time.perf_counter() - started
        return {"refused": said, "code": code_digest()[:12], "seconds": seconds}
    return {**figures(found), "seconds": time.perf_counter() - started}


def figures(found: JobTrace) -> dict[str, Any]:
    """What the allocator would have said: in all, and in the first of both steps."""
    played = found.memory.played
    recording = played.recording
    marks = recording.marks
    begin, second = (
        next(at for at, phase, of in marks if of == step and phase == "forward") for step in (0, 1)
    )
    forwards = [at for at, phase, _ in marks if phase == "forward"]
    most: tuple[dict[str, int], dict[str, int]] = ({}, {})
    after_load = alone = 0

    def watch(at: int, allocator: CachingAllocator) -> None:
        nonlocal after_load, alone
        if at < begin:
            after_load = allocator.allocated_bytes
            return
        if at < forwards[1]:
            alone = max(alone, allocator.allocated_bytes)
        phase = next(name for start, name, _ in reversed(marks) if start <= at)
        seen = most[at >= second]
        phase = "forward" if phase == "loss" else phase
        seen[phase] = max(seen.get(phase, 0), allocator.allocated_bytes)

    usual = replay(played, watch=watch)
    answer = found.memory.answer
    return {
        "allocated": usual.peak_allocated_bytes,
        "reserved": usual.peak_reserved_bytes,
        "reserved_least": found.memory.least_reserved_bytes,
        "reserved_worst": max(
            usual.peak_reserved_bytes,
            found.memory.worst.peak_reserved_bytes if found.memory.worst else 0,
        ),
        "reserved_range": [
            answer.ranges.peak_reserved_bytes.low,
            answer.ranges.peak_reserved_bytes.high,
        ],
        "device_range": [answer.ranges.peak_device_bytes.low, answer.ranges.peak_device_bytes.high],
        "expandable": found.memory.expanding.peak_reserved_bytes,
        "formula": found.formula.ranges.peak_bytes.likely,
        "after load": after_load,
        "first micro-batch": alone,
        "first": _phases(most[0]),
        "second": _phases(most[1]),
        "code": code_digest()[:12],
        "phase": str(answer.phase),
        "length": found.request.length,
        "sequences": found.request.sequences,
        "notes": dict(recording.notes),
        "stand_ins": dict(recording.stand_ins),
        "versions": dict(found.traced.versions),
        "host_bytes": found.traced.host_peak_bytes,
        "trace_s": found.traced.trace_s,
    }


def _phases(most: Mapping[str, int]) -> dict[str, int]:
    return {name.replace("_", " "): size for name, size in most.items()}


def errors(run: Run, found: Mapping[str, Any]) -> dict[str, float]:
    """Signed errors of a traced run, by what was measured.

    Phases are those of the second step: the states of the optimizer are there from its beginning.
    """
    if not found or "refused" in found:
        return {}
    result = {}
    for row in run.rows:
        measured, kind = row.measured.peak_memory_bytes, row.measured.memory_kind
        old = kind is MemoryKind.RESERVED and "reserved_least" not in found
        if measured and kind in (MemoryKind.ALLOCATED, MemoryKind.RESERVED) and not old:
            result[kind.value] = found[kind.value] / measured - 1
    phases = {**found["second"], "after load": found["after load"]}
    for word, name in PHASES.items():
        measured = _noted(run.rows[0].extra.get("notes", ""), word)
        if measured and name in phases:
            result[name] = phases[name] / (measured * 2**20) - 1
    return result


def _noted(text: str, word: str) -> float | None:
    """A figure of the JSON object at the end of a row's notes."""
    begin = text.find("{")
    if begin < 0:
        return None
    try:
        value = json.loads(text[begin:]).get(word)
    except ValueError:
        return None
    return float(value) if isinstance(value, int | float) else None


def line(run: Run, found: Mapping[str, Any]) -> str:
    """One run on one line."""
    row = run.rows[0]
    head = f"{run.key:14s} {row.model.split('/')[-1]:24.24s} {row.method:6s}"
    if "refused" in found:
        return f"{head} refused: {found['refused'][:160]}"
    text = " ".join(f"{name} {100 * value:+.2f}" for name, value in errors(run, found).items())
    return f"{head} {found['allocated'] / 2**30:6.2f} GiB  {text}  {found['seconds']:.0f}s"


def group_of(run: Run) -> str:
    """The rows of the table: source, method, kernels, cards."""
    row = run.rows[0]
    kernels = row.words["kernels"] or "none"
    fused = row.words["fused_ce"]
    parts = [row.source, row.method]
    if row.words["quantization"]:
        parts.append(row.words["quantization"])
    if kernels != "none":
        parts.append(kernels)
    elif fused not in ("", "no"):
        parts.append(fused)
    cards = row.accelerators
    parts.append("1 card" if cards == 1 else f"{cards} cards")
    return ", ".join(parts)


HEAD = """<!-- Made by tools/trace_against_runs.py. -->

# Traces against measured runs

`tuneplan trace` against the memory that published runs measured. Made on {day} by

    python tools/trace_against_runs.py RUNS.csv --complete COMPLETE.csv --environments FOLDER \\
        --results RESULTS.json --page docs/internals/trace_accuracy.md

Nothing is fitted to these runs, but they are **no held-out test**: where a trace and a run
disagreed, code was read until the reason was found. PyTorch is {torch}; transformers and PEFT are
those that ran, where the row names them and the table says so.

{states}

Errors are of the trace, in percent of what was measured. `P90` and `worst` are of the absolute
error, `bias` is the median with its sign; `of` counts all complete runs of the kind: where fewer
were traced, they are the first of each kind of model, kernels, cards and transformers in the order
of the file, or others are named below. Phases are those of the second step.

## What decides reserved memory

- **Which of equal free blocks is used.** The allocator takes the one at the lowest address. With
  new segments below the earlier ones, all 18 LoRA runs on the T4 are reserved within 0.3 %; with
  new segments above, those with eager attention are off by -9 to +3 %. No document says where a
  driver puts them: this is one choice of two, made by these runs.
- **The order of loading.** Transformers 5 loads by name, and from 5.4 on quantises one weight
  after the other. In 5.0 to 5.3 four threads put 16-bit weights on the card while one quantises,
  and nothing bounds them: a run may reserve anything between the two ends, and the range has
  both. Of the 19 QLoRA runs with 5.0, the first eight are reserved exactly as if nothing were
  read ahead; the other eleven, of another machine, are not.
- **Lengths of earlier batches**, where they vary: from an empty cache to a history in which each
  batch is a little too long for what is cached.
- **PEFT's comparison** (`method_comparison/MetaMathQA/run.py`): buckets of 20 batches run from
  long to short; the cache is emptied after each step, since November 2025 after each tenth (peft
  #2894), while the gradients and the last outputs are still there. So the longest batch meets an
  empty cache, the gradients' blocks of a full run, and the logits of a short batch. What stays
  open is the length of the very first batch, between whose remains the optimizer's states lie:
  the range plays 0.6 to 1.0 of the longest. Evaluation (generation of 50 samples) is not traced;
  by the size of its cache it needs less.

## What is off, and what would settle it

- **QLoRA on the T4 with transformers 5.17** (`fitck`): reserved 7 % low to 4 % high, worst where
  the model is small. PEFT 0.20 empties the cache after its casts there, PyTorch is 2.14; which of
  the two leaves another segment behind is not known. A memory snapshot
  (`torch.cuda.memory._snapshot`) right after `prepare_model_for_kbit_training` would show it.
- **Fused adapters over a quantised base on several cards** (`fms`, accelerated-peft with foak):
  44 to 53 MiB high, 4 bytes for each weight of the adapters. The published figure adds up what
  Trainer's memory tracker saw in its stages (fms-acceleration `benchmark.py
  extract_gpu_memory_metrics`); these adapters come to the card between two stages
  (`lora_adapters_switch_ddp_from_fsdp`, called after the trainer is made), so it leaves them out.
  `max_memory_allocated` of such a run would show it.
- **PowerLM-3b on two cards**, unquantised: 22 to 38 MiB high. A shard has 81.0045 MiB. In a
  segment of its own (82 MiB) the rest is too small to be split off and counts as allocated: 39.8
  MiB in 40 layers. Cut from larger cached blocks it would not; the trace has the first, and with
  the buffers of FSDP's first broadcast still in use it has the second, 2 to 17 MiB low. A memory
  snapshot after FSDP is set up would show the blocks.
- **LitGPT on several cards** (`litgpt-rt`, 2 cards): 1 to 13 % high. The scripts of 2023 run the
  longest sample first, when no gradients have been accumulated; later ones, with a whole gradient
  of every Block on each rank, are shorter by what no row says, and the trace takes them to be as
  long. So a run should lie between the trace's first micro-batch and its later ones:
  {litgpt_bounds}.
  The seed stands in the script and the data (Alpaca) are public: the lengths of the first 1000
  batches can be computed where the data and each model's tokenizer are at hand, which they were
  not here. Full fine-tuning (`litgpt-ch`, `litgpt-ch0`), whose peak does not depend on them, is
  within 0.1 %.
- **LitGPT on one card**: its own model, adapters and loss, with `--python-of`: the sources of
  `litgpt` at the commit that a row names (0.4.13 has the same model and adapters as 00af8b0d);
  for `litgpt-rt` (October 2023, before there was a package) 0.3.1, the oldest release that was
  tried. What Fabric does around them is written here. From 0.5 on LitGPT puts bitsandbytes'
  `StableEmbedding` into a quantised model, whose gradients stay: no run measures it. 0.5.0 is
  refused for Llama 3: it reads values of its rotary table.
- **PEFT's comparison** (`peft-old`): the longest batch is not published. 698 tokens (`--lengths
  peft-old=698`) were fitted to one run, LoRA of rank 32, by an earlier program, so these runs are
  weak evidence; the tokenised lengths of the training set would make them strong. DoRA and rsLoRA
  are read from the rows' notes; BD-LoRA and the optimizer LoRA-FA are not traced.
- **Reserved under FSDP** (`fsdpq`): -5 to +14 %, with today's transformers, as no row names one.
  Blocks that another stream has used are held back until it is done, which the trace does not
  model; the farthest run nearly fills its card, where the allocator gives cached blocks back. A
  memory snapshot of one run would show how much is held back.
- **torchtune** (`tt`): transformers' model stands in. The run that is packed and not compiled was
  traced; `tt-0009` is left out, whose samples are shorter than the length that its row states. The
  eight compiled runs are refused: Inductor decides what is fused, what is kept and what is computed
  again (the min-cut partition), and no rule for that was found that a trace of eager code could
  apply. Eager code is an upper bound and a loose one: `tt-0010`, 60.0 GiB, is `tt-0011`, 51.0 GiB,
  not compiled. The formula, whose rules for compiled code are its own, is -1.2 to -0.3 % off on
  `tt-0011` to `tt-0015`, +3.0 and +5.6 % on LoRA and QLoRA, and -11 % on `tt-0016`, whose 8-bit
  AdamW may keep the embeddings' states in 32 bits (2.2 GiB; 2.0 are missing). `TORCH_LOGS=
  aot_graphs` of one layer on such a card would list what is kept, a memory snapshot what is fused,
  and `optimizer.state` of one step the states' dtypes.
- **ms-swift** (`swift-bm`): of its models only Yi is part of transformers (traced with 4.45; no
  row names a version). ChatGLM3, Baichuan 2 and the first Qwen are code of their own repositories,
  which is never run, and layers spread over cards are not traced. From an empty cache the trace is
  far below what was reserved, and its range, which plays histories of four lengths, holds few of
  these runs: they had hundreds of lengths, whose order no row has. The lengths in their order,
  played through the allocator, or a memory snapshot at the end would settle it.
- **ArcticTraining** (`alst`) and DeepSpeed's own runs (`ds`): sequences over cards, offloading and
  a model that no row describes are refused by name; what they reserve has no range from a trace.

<!-- tables -->
"""


def page(shown: Sequence[tuple[Run, Mapping[str, Any]]], skipped: Mapping[str, list[str]]) -> str:
    """The whole page as Markdown."""
    versions = {found["versions"]["torch"] for _, found in shown if "versions" in found}
    day = datetime.now(tz=UTC).date().isoformat()
    head = HEAD.format(
        day=day,
        torch=", ".join(sorted(versions)),
        states=_states(shown),
        litgpt_bounds=_between(shown, "litgpt-rt"),
    )
    parts = [head]
    parts += list(
        _table("Allocated peak, by source", shown, "allocated", lambda run: run.rows[0].source)
    )
    parts += list(_table("Allocated peak, by group", shown, "allocated", group_of))
    for name in ("after load", "forward", "backward", "optimizer step", "reserved"):
        parts += list(_table(f"{name.capitalize()}", shown, name, group_of))
    parts += list(_ranges("by source", shown, lambda run: run.rows[0].source))
    parts += list(_ranges("by group", shown, group_of))
    parts += list(_refusals(shown, skipped))
    parts += list(_farthest(shown))
    return "\n".join(parts) + "\n"


def _states(shown: Iterable[tuple[Run, Mapping[str, Any]]]) -> str:
    """Which states of the code that traces stand behind the figures."""
    counts: dict[str, int] = {}
    for _, found in shown:
        if found and "refused" not in found:
            counts[found.get("code", "")] = counts.get(found.get("code", ""), 0) + 1
    earlier = counts.pop("", 0)
    said = [f"{number} with the code {code}" for code, number in sorted(counts.items())]
    if earlier:
        said.append(
            f"{earlier} with an earlier state of the same day, whose reserved figures are not shown"
        )
    return textwrap.fill(
        f"Traced were {sum(counts.values()) + earlier} runs: {', '.join(said)}.", 98
    )


def _between(shown: Iterable[tuple[Run, Mapping[str, Any]]], source: str) -> str:
    """How many runs on several cards lie between the first micro-batch and later ones."""
    held, count = 0, 0
    for run, found in shown:
        row = run.rows[0]
        measured = row.measured.peak_memory_bytes
        if row.source != source or (row.accelerators or 1) < 2 or not measured:
            continue
        if found.get("first micro-batch"):
            count += 1
            held += found["first micro-batch"] <= measured <= found["allocated"]
    return f"{held} of the {count} that were looked at lie there"


def _table(
    title: str, shown: Iterable[tuple[Run, Mapping[str, Any]]], name: str, grouped: Any
) -> Iterator[str]:
    values: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    ran: dict[str, set[str]] = {}
    for run, found in shown:
        group = grouped(run)
        counts[group] = counts.get(group, 0) + 1
        error = errors(run, found).get(name)
        if error is not None:
            values.setdefault(group, []).append(100 * error)
            versions = found["versions"]
            ran.setdefault(group, set()).add(
                f"litgpt {versions['litgpt']}"
                if "Lightning Fabric" in found["stand_ins"]
                else f"{versions.get('transformers')} / {versions.get('peft')}"
            )
    if not values:
        return
    yield f"\n## {title}\n"
    yield "| runs of | traced | of | median | P90 | worst | bias | transformers / PEFT |"
    yield "|---|---|---|---|---|---|---|---|"
    for group in sorted(values):
        found_errors = values[group]
        absolute = sorted(map(abs, found_errors))
        ninth = absolute[math.ceil(0.9 * len(absolute)) - 1]
        worst = max(found_errors, key=abs)
        yield (
            f"| {group} | {len(absolute)} | {counts[group]} | {statistics.median(absolute):.2f} "
            f"| {ninth:.2f} | {worst:+.2f} | {statistics.median(found_errors):+.2f} "
            f"| {', '.join(sorted(ran[group]))} |"
        )


def _ranges(
    title: str, shown: Iterable[tuple[Run, Mapping[str, Any]]], grouped: Any
) -> Iterator[str]:
    """How often a measured figure lies in the range that the trace gives."""
    cells: dict[tuple[str, str], list[_Held]] = {}
    for run, found in shown:
        for kind, held in _held(run, found):
            cells.setdefault((grouped(run), kind), []).append(held)
    if not cells:
        return
    yield f"\n## Reserved and device memory: does the range hold? {title.capitalize()}\n"
    yield (
        "| runs of | measured | runs | in what was played | its width | farthest outside "
        "| in the answer's range | its width |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for (group, kind), found_here in sorted(cells.items()):
        outside = [one.outside for one in found_here if not one.played]
        yield (
            f"| {group} | {kind} | {len(found_here)} | {sum(one.played for one in found_here)} "
            f"| {statistics.median(one.width for one in found_here):.1f} "
            f"| {max(outside, key=abs, default=0.0):+.1f} "
            f"| {sum(one.answered for one in found_here)} "
            f"| {statistics.median(one.answer_width for one in found_here):.1f} |"
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """A measured figure and the two ranges; widths and distances in percent of it."""

    played: bool
    answered: bool
    width: float
    answer_width: float
    outside: float


def _held(run: Run, found: Mapping[str, Any]) -> Iterator[tuple[str, _Held]]:
    if not found or "refused" in found or "reserved_least" not in found:
        return
    least, most = found["reserved_least"], found["reserved_worst"]
    reserved, device = found["reserved_range"], found["device_range"]
    context = (device[1] - reserved[1]) / CONTEXT_WIDTH[1]
    for row in run.rows:
        measured, kind = row.measured.peak_memory_bytes, row.measured.memory_kind
        if not measured or kind not in (MemoryKind.RESERVED, MemoryKind.DEVICE):
            continue
        more, answer = (context, device) if kind is MemoryKind.DEVICE else (0.0, reserved)
        low, high = least + more, most + more
        nearest = min(max(measured, low), high)
        yield (
            kind.value,
            _Held(
                abs(nearest / measured - 1) <= SAME,
                answer[0] <= measured <= answer[1],
                100 * (high - low) / measured,
                100 * (answer[1] - answer[0]) / measured,
                100 * (nearest / measured - 1),
            ),
        )


def _refusals(
    shown: Iterable[tuple[Run, Mapping[str, Any]]], skipped: Mapping[str, list[str]]
) -> Iterator[str]:
    reasons = {reason: list(names) for reason, names in skipped.items()}
    for run, found in shown:
        if "refused" in found:
            reasons.setdefault(found["refused"], []).append(run.key)
    if not reasons:
        return
    yield "\n## Not traced\n\n| runs | reason | for example |\n|---|---|---|"
    for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        yield f"| {len(names)} | {reason.replace('|', '/')} | {', '.join(names[:3])} |"


def _farthest(shown: Iterable[tuple[Run, Mapping[str, Any]]]) -> Iterator[str]:
    found_errors = [
        (abs(value), run, name, value)
        for run, found in shown
        for name, value in errors(run, found).items()
        if name in ("allocated", "reserved")
    ]
    found_errors.sort(key=lambda item: -item[0])
    yield "\n## Farthest off\n\n| run | model | figure | error |\n|---|---|---|---|"
    for _, run, name, value in found_errors[:25]:
        yield f"| {run.key} | {run.rows[0].model} | {name} | {100 * value:+.2f} |"


if __name__ == "__main__":
    main()
