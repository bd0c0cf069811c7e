"""Hold ``tuneplan oom`` against field reports of jobs that ran, or ran out of memory.

``python tools/field_cases.py CASES.jsonl`` prints confusion tables of cause and stage, the first
fix against what the report's diagnosis blames or advises, and every miss. The file is not part of
this repository. A line is an object with ``id, date, model, method, config{}, gpu, num_gpus,
outcome{oom, stage, tried_gib | tried_mib, capacity_gib, ...}, diagnosis``.

What goes in: a job made of model, method, config and gpu (one sequence of 1,024 tokens where the
report says neither length nor batch); and a log made of the figures that the
report quotes (the allocator's message, the steps done, "killed" where main memory ran out). The
stage and the diagnosis are only compared with, not read for the answer; ``--frames`` adds the frame
of the traceback where a report says in which function it failed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tuneplan.catalog.models import load_models
from tuneplan.contract.reading import load_job
from tuneplan.diagnosis.oom_text import read_log
from tuneplan.errors import InputError
from tuneplan.planner.oom import Diagnosis, diagnose_job, diagnose_log
from tuneplan.planner.sources import Sources
from tuneplan.spec.stated import StatedJob

Case = Mapping[str, Any]
_LENGTHS: Final = (
    "cutoff_len", "seq_len", "max_seq_len", "model_max_length", "max_length", "sequence_len",
    "max_words", "context_length", "avg_row_tokens",
)  # fmt: skip
_FRAMEWORKS: Final = (
    ("llama-factory", "llamafactory"),
    ("axolotl", "axolotl"),
    ("torchtune", "torchtune"),
    ("ms-swift", "ms-swift"),
    ("unsloth", "unsloth"),
    ("trl", "trl"),
    ("alignment-handbook", "trl"),
    ("", "transformers"),
)
# Fine-tunes that a report names, and the family whose size they have.
_FAMILIES: Final = (("vicuna", "llama"), ("alpaca", "llama"), ("dolly-v2", "pythia"))


# --- what goes in ---------------------------------------------------------------------------------


def model_of(text: str, known: Mapping[str, str]) -> str | None:
    """A catalogue name in a report's words: as it stands, inside it, else its bare size."""
    models = load_models()
    plain = text.split(" vs ")[0]
    inside = re.findall(r"\(([^)]*)\)", plain)
    for words in (text, plain, *inside, plain.split()[0], re.sub(r"[ _]", "-", plain)):
        try:
            return models.resolve(words, base_path=".").architecture.name
        except InputError:
            continue
    folded = plain.casefold()
    for name, family in _FAMILIES:
        folded = folded.replace(name, family)
    hits = [name for name in known if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", folded)]
    if hits:
        return known[max(hits, key=len)]
    size = re.search(r"(?<![\d.])(\d+(?:\.\d+)?) ?[bB]\b", plain)
    return f"{size[1]}B" if size else None


def card_of(text: str, count: int | None, sources: Sources) -> str | None:
    """The card that is named with this count, else the first that the catalogue knows."""
    pieces = re.split(r" / |, (?:then|later)|, | says | say ", text)
    pieces.sort(key=lambda piece: f"x{count}" not in piece.replace(" ", ""))
    for piece in pieces:
        name = re.sub(r"\(.*?\)|\bx ?\d+|-class|\bthen\b", "", piece).strip()
        for words in (name, *re.findall(r"[A-Z]+\d+\w*", name)):
            try:
                return sources.accelerators.resolve(words).accelerator.name
            except InputError:
                continue
    size = re.search(r"(\d+) ?GB card", text)
    if size is None:
        return None
    fitting = [
        one
        for one in sources.accelerators.accelerators
        if one.vendor == "NVIDIA" and round(one.memory_bytes / 2**30) == int(size[1])
    ]
    return min(fitting, key=lambda one: (one.release_year or 0, one.name)).name if fitting else None


def leading(value: Any) -> int | None:
    """The whole number that a value begins with."""
    match = re.match(r"\s*(\d+)", str(value)) if value is not None else None
    return int(match[1]) if match else None


# What a report that says neither is taken to have: a default of the model's whole context, or of
# eight rows, would be another job than the one that was run.
_SILENT: Final = {"max_length": 1024, "per_device_train_batch_size": 1}


def for_card(text: Any, card: str | None) -> Any:
    """Of "1 (A10) / default 4 (A100)" the piece that names the card."""
    for piece in str(text).split(" / "):
        named = re.search(r"\(([^)]+)\)", piece)
        if card and named and re.search(rf"\b{re.escape(named[1])}\b", card):
            return re.sub(r"^\D*", "", piece)
    return text


def job_of(case: Case, model: str, sources: Sources) -> dict[str, Any]:
    """The report's fields as a job file; what it leaves open stays blank."""
    config, method = case["config"], method_of(case)
    job: dict[str, Any] = {"model": model, **method}
    if re.match(r"\d{4}-\d\d", case["date"]):
        job["date"] = case["date"][:7]
    said = str(config.get("framework", "")).casefold()
    job["framework"] = next(name for words, name in _FRAMEWORKS if words in said)
    layout = _layout(f"{config.get('distributed', '')} {config.get('framework', '')}")
    # A layout that splits the weights needs two cards at least, whatever the report leaves out.
    count = case["num_gpus"] or (2 if layout and layout["strategy"] != "ddp" else None)
    card = card_of(case["gpu"], count, sources)
    job["hardware"] = {"accelerator": card} if card else {}
    own = {name: for_card(value, card) for name, value in config.items()}
    job["training"] = _SILENT | dict(_training(own))
    if card and count:
        job["hardware"] |= _cards(count)
    host = config.get("host_ram_gb") or case["outcome"].get("host_ram_gb")
    host = host or case["outcome"].get("host_gb_limit")
    if host:
        job["hardware"]["host_memory"] = f"{host} GB"
    if layout:
        job["parallelism"] = layout
    rows, tokens = config.get("rows"), leading(config.get("row_tokens"))
    if rows and tokens:
        job["data"] = {"num_samples": rows, "mean_tokens": tokens}
    return job


def _cards(count: int) -> dict[str, int]:
    if count <= 8:
        return {"num_nodes": 1, "accelerators_per_node": count}
    return {"num_nodes": count // 8, "accelerators_per_node": 8}


_BASES: Final = (
    (r"gptq", {"method": "gptq-lora"}),
    (r"qlora|4.?bit|int4|nf4", {"method": "qlora"}),
    (r"int8 base|8bit", {"method": "qlora", "quantization": {"bits": 8}}),
    (r"", {"method": "lora"}),
)
_OBJECTIVES: Final = (
    (r"\bdpo\b", "dpo"), (r"\bgrpo\b", "grpo"), (r"reward", "rm"), (r"\bcpo\b", "simpo"),
)  # fmt: skip
_TARGETS: Final = (
    (r"\bq,v\b", ["q_proj", "v_proj"]),
    (r"q,k,v,o", ["q_proj", "k_proj", "v_proj", "o_proj"]),
    (r"c_attn", ["c_attn"]),
    (r"query_key_value", ["query_key_value"]),
    (r"\ball\b|all-linear", "all-linear"),
)


def method_of(case: Case) -> dict[str, Any]:
    """Method, objective, quantisation and adapter, from the report's words."""
    config = case["config"]
    words = f"{case['method']} {case['model']} {config.get('quant', '')}".casefold()
    found: dict[str, Any] = {}
    for pattern, objective in _OBJECTIVES:
        if re.search(pattern, words):
            found["objective"] = objective
    if not re.search(r"\bq?lora\b", words):
        return {**found, "method": "full"}
    found |= next(base for pattern, base in _BASES if re.search(pattern, words))
    rank = re.search(r"\br ?(\d+)|lora (\d+)", words)
    section: dict[str, Any] = {"r": int(rank[1] or rank[2])} if rank else {}
    for pattern, targets in _TARGETS:
        if re.search(pattern, f"{words} {config.get('lora_target', '')}"):
            section["target_modules"] = targets
            break
    return {**found, "adapter": section} if section else found


def _training(config: Case) -> Iterator[tuple[str, Any]]:
    length = next((leading(config[name]) for name in _LENGTHS if config.get(name)), None)
    pair = [leading(config.get(name)) for name in ("max_input", "max_output")]
    pair = pair if all(pair) else [leading(config.get(n)) for n in ("max_source", "max_target")]
    if length or all(pair):
        yield "max_length", length or sum(part or 0 for part in pair)
    for key, name in (
        ("per_device_train_batch_size", "micro_batch"),
        ("per_device_train_batch_size", "per_device_batch"),
        ("gradient_accumulation_steps", "grad_accum"),
        ("per_device_eval_batch_size", "eval_batch"),
        ("eval_steps", "eval_steps"),
        ("save_steps", "save_steps"),
    ):
        number = leading(re.sub(r"^\D*", "", str(config.get(name, ""))))
        if number:
            yield key, number
    if config.get("eval_rows") or config.get("eval_accumulation_steps"):
        yield "eval_strategy", "epoch"
    yield from _types(str(config.get("precision", "")), str(config.get("weights", "")))
    switch = str(config.get("gradient_checkpointing", "")).casefold()
    if switch.startswith(("true", "false", "unsloth")):
        yield "gradient_checkpointing", not switch.startswith("false")
    if config.get("flash_attention") or config.get("flash_attn"):
        yield "attn_implementation", "flash_attention_2"
    if config.get("liger"):
        yield "use_liger_kernel", True
    if config.get("packing") is False:
        yield "packing", False
    optimizer = str(config.get("optimizer", "")).casefold()
    if optimizer:
        name = "adamw_bnb_8bit" if optimizer == "adamw_8bit" else "adamw_torch"
        yield "optim", "paged_adamw_32bit" if "paged" in optimizer else name


def _types(precision: str, weights: str) -> Iterator[tuple[str, Any]]:
    half = next((name for name in ("bf16", "fp16") if precision.startswith(name)), None)
    if "pure bf16" in precision:
        yield from (("dtype", "bfloat16"), ("precision", "none"))
    elif half:
        yield "precision", half
        if "AMP" in precision:
            yield "dtype", "float32"
    elif precision.startswith("fp32") or weights.startswith("fp32"):
        yield from (("dtype", "float32"), ("precision", "fp32"))
    elif "mixed no" in precision:
        yield "precision", "none"


def _layout(text: str) -> dict[str, str] | None:
    folded = text.casefold()
    for words, name in (
        ("zero-3", "zero3"), ("zero-2", "zero2"), ("hybrid_shard", "hsdp"), ("fsdp", "fsdp"),
        ("ddp", "ddp"),
    ):  # fmt: skip
        if words in folded:
            offload = "offload" in folded and "no offload" not in folded
            return {"strategy": name, **({"offload": "params"} if offload else {})}
    return None


# Where a report says that it failed, and the frame that its traceback must have had.
_PLACES: Final = (
    (r"Fails inside the Adam update", "torch/optim/adamw.py", "step"),
    (r"Fails in the trainer constructor", "transformers/trainer.py", "__init__"),
    (r"Fails inside get_peft_model", "peft/mapping.py", "get_peft_model"),
)


def log_of(case: Case, *, frames: bool = False) -> str | None:
    """The log that the quoted figures come from; None where the report quotes nothing."""
    outcome = case["outcome"]
    if not outcome.get("oom"):
        return None
    lines = []
    if outcome.get("step") and outcome.get("total_steps"):
        done, total = outcome["step"], outcome["total_steps"]
        lines.append(f" {100 * done // total}%|##  | {done}/{total} [09:59<99:59,  4.0s/it]")
    elif outcome.get("step"):
        lines.append(f"  9%|#  | {outcome['step']}/9999 [09:59<99:59,  4.0s/it]")
    elif outcome.get("s_per_it_first"):
        total, pace = outcome["steps_planned"], outcome["s_per_it_first"]
        lines.append(f"  0%|    | 1/{total} [00:05<9:59,  {pace}s/it]")
    for words, file, function in _PLACES:
        if frames and re.search(words, case["diagnosis"]):
            lines.append("Traceback (most recent call last):")
            lines.append(f'  File "{file}", line 1, in {function}')
    kind = str(outcome.get("oom_kind", "CUDA"))
    lines.append("exitcode: -9" if kind.startswith("host") else _message(outcome))
    return "\n".join(lines)


def _message(outcome: Case) -> str:
    points = [one for one in outcome.get("points", ()) if one.get("tried_gb")]
    tried = _size(outcome, "tried") or (f"{points[0]['tried_gb']} GiB" if points else None)
    text = "CUDA out of memory."
    if tried is None:
        return text
    text += f" Tried to allocate {tried}"
    capacity, free = _size(outcome, "capacity"), _size(outcome, "free")
    allocated, reserved = _size(outcome, "allocated"), _size(outcome, "reserved")
    if capacity and reserved:
        return (
            f"{text} (GPU 0; {capacity} total capacity; {allocated} already allocated; "
            f"{free} free; {reserved} reserved in total by PyTorch)"
        )
    text += "."
    if capacity:
        text += f" GPU 0 has a total capacity of {capacity} of which {free} is free."
    if outcome.get("process_gib"):
        process = f"{outcome['process_gib']} GiB"
        text += f" Including non-PyTorch memory, this process has {process} memory in use."
    if allocated:
        text += f" Of the allocated memory {allocated} is allocated by PyTorch, and"
    return text


def _size(outcome: Case, name: str) -> str | None:
    for unit, written in (("gib", "GiB"), ("mib", "MiB")):
        value = outcome.get(f"{name}_{unit}")
        if value is not None:
            return f"{value:.2f} {written}"
    return None


# --- what it is compared with ---------------------------------------------------------------------

# Words of a diagnosis, and the fixes that would act on what it blames, or that it advises.
_BLAMES: Final = (
    (r"offload", ("offload",)),
    (r"ZeRO-3 ran|not split|keeps the whole|replicates|own .*copy|not sharded", ("sharding",)),
    (r"\bstates\b|fp32 copies|Adam moments",
     ("sharding", "offload", "optimizer_8bit", "adapter", "more_cards", "larger_card")),
    (r"FSDP worked|at least four|32 cards|80 GB cards|GB cards cannot|16 H100|never fits",
     ("sharding", "more_cards", "larger_card", "adapter")),
    (r"checkpointing", ("checkpointing", "checkpoint_offload")),
    (r"logits|vocab", ("fused_loss", "smaller_batch", "shorter_length", "checkpointing",
                       "eval_batch")),
    (r"\blong|longer|outlier|tokens:|length|32k", ("shorter_length", "smaller_batch",
                                                   "checkpoint_offload", "checkpointing")),
    (r"bucket", ("sharding", "adapter", "offload", "larger_card", "half_weights")),
    (r"eval_batch|prediction_loss_only|preprocess_logits|whole eval set",
     ("eval_batch", "kept_logits")),
    (r"zero3_init|before partitioning|did not shard|loads the whole", ("sharded_loading",)),
    (r"modules_to_save|wte", ("no_copies",)),
    (r"QLoRA|4-bit copy|GB of weights|weights per card|quantised MoE|GB of fp16 weights",
     ("adapter", "sharding", "larger_card")),
    (r"fragmentation", ("expandable_segments", "smaller_batch")),
    (r"[Hh]ost memory|RAM|to CPU", ("more_host_memory", "less_offload", "sharded_checkpoints",
                                    "one_copy", "kept_logits")),
    (r"micro_batch 2|pairs double|micro-batch", ("smaller_batch", "checkpointing")),
    (r"fp32 \(|fp32 load|model was fp32|, fp32\.", ("half_weights",)),
)  # fmt: skip


def expected_causes(case: Case) -> set[str]:
    """The causes that a report's outcome allows."""
    outcome = case["outcome"]
    if not outcome.get("oom"):
        return {"none"}
    kind = str(outcome.get("oom_kind", ""))
    if kind.startswith("host"):
        return {"host"}
    causes = {"shortage", "host"} if "host" in kind else {"shortage"}
    return causes | {"fragmentation"} if "fragmentation" in case["diagnosis"] else causes


def expected_fixes(case: Case) -> set[str]:
    """Fixes that act on what the diagnosis blames or that it advises; empty where it names none."""
    found: set[str] = set()
    for words, codes in _BLAMES:
        if re.search(words, case["diagnosis"], flags=re.IGNORECASE):
            found |= set(codes)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A case and what was answered."""

    case: Case
    job: Mapping[str, Any] | None
    refused: str
    answer: Diagnosis | None

    @property
    def cause(self) -> str:
        """As answered."""
        cause = self.answer.cause.cause if self.answer else None
        return cause.value if cause else "none"

    @property
    def stage(self) -> str:
        """As answered."""
        return self.answer.stage.stage.value if self.answer else "unknown"

    @property
    def first_fix(self) -> str | None:
        """The first that helps."""
        fixes = self.answer.fixes if self.answer else ()
        return next((fix.change.kind for fix in fixes if not fix.cannot_help_because), None)


def _as_run(job: StatedJob, case: Case) -> StatedJob:
    """With the defaults of a script that no job file names (Qwen's own ``finetune.py``)."""
    if "qwen finetune" not in str(case["config"].get("framework", "")).casefold():
        return job
    return replace(job, recipe=replace(job.recipe, framework="qwen"))


def answered(
    case: Case, sources: Sources, known: Mapping[str, str], *, frames: bool = False
) -> Result:
    """Diagnose one case; the log alone where no job can be made of it."""
    text = log_of(case, frames=frames)
    log = read_log(text) if text is not None else None
    model, job, refused = model_of(case["model"], known), None, "the model is not stated"
    if model is not None:
        job = job_of(case, model, sources)
        try:
            stated = _as_run(load_job(job), case)
            answer = diagnose_job(stated, sources, log=log)
            return Result(case=case, job=job, refused="", answer=answer)
        except InputError as error:
            refused = "; ".join(str(one.message) for one in error.mistakes)
    answer = diagnose_log(log) if log is not None else None
    return Result(case=case, job=job, refused=refused, answer=answer)


def confusion(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Stated in rows, answered in columns."""
    counts = Counter(pairs)
    rows = sorted({row for row, _ in counts})
    columns = sorted({column for _, column in counts})
    print(f"\n{title} (rows: stated; columns: answered)\n")
    print(f"{'':18}" + "".join(f"{column:>16}" for column in columns))
    for row in rows:
        print(f"{row:18}" + "".join(f"{counts[row, column] or '.':>16}" for column in columns))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--case", help="show one case in full")
    parser.add_argument(
        "--frames", action="store_true", help="add the frame where a report says that it failed"
    )
    parser.add_argument("--today", type=date.fromisoformat, default=date(2026, 12, 1))
    given = parser.parse_args()
    sources = Sources(today=given.today)
    known: dict[str, str] = {}
    for entry in load_models().names():
        known[entry.casefold()] = entry
    cases = [json.loads(line) for line in given.file.read_text(encoding="utf-8").splitlines()]
    chosen = [case for case in cases if given.case in (None, case["id"])]
    results = [answered(case, sources, known, frames=given.frames) for case in chosen]
    if given.case:
        _in_full(results[0])
        return
    _tables(results)


def _in_full(result: Result) -> None:
    from tuneplan.report.oom import oom_text
    from tuneplan.report.oom_answer import oom_answer
    from tuneplan.report.page import Page

    print(json.dumps(result.case, indent=1), result.job, result.refused, log_of(result.case))
    if result.answer is not None:
        print(oom_text(oom_answer(result.answer, as_of="2026-12-01"), Page()))


def _tables(results: list[Result]) -> None:
    failed = [one for one in results if one.case["outcome"].get("oom")]
    jobs = sum(not one.refused for one in results)
    print(f"{len(results)} cases, {len(failed)} ran out of memory; {jobs} could be made a job of")
    confusion("Cause", ((_nearest(expected_causes(r.case), r.cause), r.cause) for r in results))
    staged = [r for r in failed if r.case["outcome"].get("stage") not in (None, "unknown")]
    confusion("Stage", ((r.case["outcome"]["stage"], r.stage) for r in staged))
    named = [r for r in failed if expected_fixes(r.case)]
    right = [r for r in named if r.first_fix in expected_fixes(r.case)]
    print(f"\nFirst fix: {len(right)} of {len(named)} act on what the diagnosis blames or advises")
    by_fix: dict[str, Counter[str]] = defaultdict(Counter)
    for r in named:
        by_fix[r.first_fix or "none"]["right" if r in right else "other"] += 1
    for name, counts in sorted(by_fix.items()):
        print(f"  {name:22}{counts['right']:4} right {counts['other']:4} other")
    _blocks(failed)
    print("\nMisses")
    for r in results:
        wrong = _wrong(r, staged, named)
        if wrong:
            print(f"  {r.case['url']:44} {'; '.join(wrong)}")
        if wrong and r.refused:
            print(f"  {'':44} (no job: {r.refused})")


def _nearest(allowed: set[str], answer: str) -> str:
    return answer if answer in allowed else " or ".join(sorted(allowed))


def _wrong(r: Result, staged: list[Result], named: list[Result]) -> list[str]:
    wrong = []
    if r.cause not in expected_causes(r.case):
        wrong.append(f"cause {r.cause}, stated {'/'.join(sorted(expected_causes(r.case)))}")
    if r in staged and r.stage != r.case["outcome"]["stage"]:
        wrong.append(f"stage {r.stage}, stated {r.case['outcome']['stage']}")
    if r in named and r.first_fix not in expected_fixes(r.case):
        wrong.append(f"first fix {r.first_fix}")
    return wrong


def _blocks(failed: list[Result]) -> None:
    print("\nRequests that equal a known tensor")
    for r in failed:
        stated = r.case["outcome"].get("tried_equals")
        if stated and r.answer is not None:
            print(f"  {r.case['id']:18} {stated}")
            for match in r.answer.matches:
                flag = " " if match.fits_stage else "~"
                print(f"      {flag} {match.tensor.name}: {match.tensor.formula}"
                      f" (off by {match.error_fraction:.2%})")  # fmt: skip


if __name__ == "__main__":
    main()
