"""Compare the memory formula with the trace of the real code, case by case.

    python tools/formula_against_trace.py --models Llama-3.2-1B,Qwen3-0.6B --diff 1
    python tools/formula_against_trace.py --write docs/internals/formula_against_trace.md

Both count the same recipe at the same length; depth is cut in both (the formula is per layer).
Prints the signed error of the formula, of the peak and of each phase.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.model_building import without_buffers
from tuneplan.catalog.models import load_models
from tuneplan.errors import TuneplanError
from tuneplan.estimation.adapters import ALL_LINEAR, resolve_target_modules
from tuneplan.estimation.memory import MemoryCount, count_memory
from tuneplan.estimation.target_mistakes import refused_targets
from tuneplan.frameworks.resolve import resolve_recipe
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import MixtureOfExperts, Recurrence
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.stated import StatedAdapter, StatedQuantization, StatedRecipe, StatedTraining
from tuneplan.tracing.result import TraceResult, summarize
from tuneplan.tracing.session import record

# One model of each family whose code is part of transformers.
FAMILIES = (
    "Llama-3.2-1B", "Llama-2-7b", "Qwen2.5-0.5B", "Qwen3-0.6B", "Mistral-7B-v0.1", "gemma-2b",
    "gemma-2-2b", "gemma-3-1b", "Phi-3-mini-4k", "Phi-4-mini-instruct", "phi-2", "pythia-1.4b",
    "falcon-7b", "falcon-40b", "OLMo-2-1124-7B", "glm-4-9b", "GLM-4-9B-0414", "PowerLM-3b",
    "SmolLM3-3B", "starcoder2-3b", "starcoder", "gpt2", "opt-1.3b", "bloom-7b1", "mpt-7b",
    "DeepSeek-V2-Lite", "Moonlight-16B-A3B", "GLM-4.7-Flash", "Mixtral-8x7B-v0.1",
    "Qwen3-30B-A3B", "Qwen1.5-MoE-A2.7B", "GLM-4.5-Air", "gpt-oss-20b", "Phi-3.5-MoE-instruct",
    "Llama-4-Scout-17B-16E", "MiniMax-M2", "Qwen3.5-9B", "Qwen3-Next-80B-A3B-Instruct",
    "Qwen3.5-35B-A3B", "Nemotron-H-56B-Base-8K", "Nemotron-3-Nano-30B-A3B", "MiniMax-Text-01",
    "Qwen2.5-VL-3B-Instruct", "Qwen3-VL-2B-Instruct", "gemma-3-4b", "gemma-3n-E4B",
    "gemma-4-31B", "gemma-4-26B-A4B", "DeepSeek-V3.2", "GLM-5", "DeepSeek-V4-Flash",
)  # fmt: skip
# Layers where four would not hold every kind (Gemma 4's last layer is always a full one; half of
# Gemma 3n's share keys and values).
LAYERS = {"gemma-3n-E4B": 15, "gemma-4-31B": 6, "gemma-4-26B-A4B": 6}
SHARED = {"gemma-3n-E4B": 5}
_SHALLOW = 4
METHODS = ("full", "lora-qv", "lora-all", "qlora")
# The first of these that a model has stands for "queries and values".
QUERY_AND_VALUE = (
    ("q_proj", "v_proj"), ("query_key_value",), ("qkv_proj",), ("c_attn",), ("Wqkv",),
    ("q_proj", "kv_b_proj"), ("q_b_proj", "kv_b_proj"), ("q_b_proj", "kv_proj"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison."""

    model: str
    method: str
    checkpointing: bool
    sequences: int
    length: int
    precision: str = "bf16"
    attention: str | None = None
    dtype: str = "bfloat16"
    dropout: float = 0.0

    def __str__(self) -> str:
        checkpointing = "gc" if self.checkpointing else "--"
        return (
            f"{self.model} {self.method} {checkpointing} {self.sequences}x{self.length} "
            f"{self.precision} {self.attention or ''}"
            f"{f' {self.dtype} weights' if self.dtype != 'bfloat16' else ''}"
        ).strip()


def shortened(config: Mapping[str, Any], layers: int, shared: int = 0) -> dict[str, Any]:
    """The configuration with fewer layers, every kind of layer kept."""
    short: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"):
            short[key] = min(value, layers)
        elif key in ("layer_types", "mlp_layer_types", "compress_ratios", "attn_type_list"):
            short[key] = list(value)[:layers]
        elif key == "hybrid_override_pattern":
            short[key] = _pattern(value, layers)
        elif key == "num_kv_shared_layers":
            short[key] = min(value, shared)
        elif isinstance(value, Mapping):
            short[key] = shortened(value, layers, shared)
        else:
            short[key] = value
    if "hybrid_override_pattern" in short:
        short["num_hidden_layers"] = len(short["hybrid_override_pattern"])
    if "fullatt_block_indexes" in short:
        short["fullatt_block_indexes"] = [min(layers - 1, 1)]
    if "deepstack_visual_indexes" in short:
        short["deepstack_visual_indexes"] = short["deepstack_visual_indexes"][:1] and [0]
    return short


def _pattern(pattern: str, layers: int) -> str:
    kinds = "".join(dict.fromkeys(pattern))
    return kinds + pattern[: max(layers - len(kinds), 0)]


def architecture_of(name: str, layers: int) -> ModelArchitecture:
    """A catalogue entry at a small depth."""
    entry = load_models().entry(name)
    layers = LAYERS.get(name, layers) if layers <= _SHALLOW else layers
    config = shortened(entry.config, layers, SHARED.get(name, layers))
    architecture, _ = build_architecture(config, name=name, hf_id=entry.hf_id, source=entry.source)
    return architecture if entry.counts_router_bias else without_buffers(architecture)


def _query_and_value(architecture: ModelArchitecture) -> tuple[str, ...]:
    leaves = {weight.leaf for _, weight, _ in architecture.weights()}
    return next(names for names in QUERY_AND_VALUE if leaves.issuperset(names))


def _every_linear(architecture: ModelArchitecture) -> str | tuple[str, ...]:
    """``all-linear``, less what PEFT refuses or fails on (then by name)."""
    if not refused_targets(architecture):
        return ALL_LINEAR
    return resolve_target_modules(architecture, ALL_LINEAR, passes_over_refused=True)


def is_slow(architecture: ModelArchitecture) -> bool:
    """Whether a mixer runs as PyTorch operations here, and as fused kernels where it is trained."""
    return any(isinstance(group.layer.mixer, Recurrence) for group in architecture.groups)


def recipe_of(case: Case, architecture: ModelArchitecture) -> TrainingRecipe:
    """The resolved recipe of a case under Hugging Face's Trainer on an A100."""
    lora = case.method != "full"
    targets: Any = _every_linear(architecture)
    if case.method == "lora-qv":
        targets = _query_and_value(architecture)
    # PEFT refuses dropout on experts that are stacked into one parameter.
    stacked = any(isinstance(g.layer.feed_forward, MixtureOfExperts) for g in architecture.groups)
    dropout = 0.0 if stacked else case.dropout
    stated = StatedRecipe(
        framework="transformers",
        method={"lora-qv": "lora", "lora-all": "lora"}.get(case.method, case.method),
        adapter=StatedAdapter(r=8, lora_alpha=16, lora_dropout=dropout, target_modules=targets)
        if lora
        else StatedAdapter(),
        quantization=StatedQuantization(bits=4, type="nf4", double_quant=True)
        if case.method == "qlora"
        else StatedQuantization(),
        training=StatedTraining(
            dtype=case.dtype,
            precision=case.precision,
            max_length=case.length,
            per_device_train_batch_size=case.sequences,
            gradient_accumulation_steps=1,
            gradient_checkpointing=case.checkpointing,
            optim="adamw_torch",
            attn_implementation=case.attention,
        ),
    )
    accelerator = load_accelerators().get("A100-SXM4-80GB")
    return resolve_recipe(stated, architecture, accelerator, world_size=1).recipe


def compare(case: Case, layers: int) -> tuple[MemoryCount, TraceResult, TrainingRecipe]:
    """Formula and trace of one case."""
    architecture = architecture_of(case.model, layers)
    recipe = recipe_of(case, architecture)
    shape = {"sequences": case.sequences, "length": case.length}
    formula = count_memory(
        architecture, recipe, Parallelism(), compute_capability=8.0, record=True, **shape
    )
    recording, seconds = record(architecture, recipe, compute_capability=8.0, **shape)
    return formula, summarize(recording, trace_s=seconds), recipe


def errors_of(formula: MemoryCount, trace: TraceResult) -> dict[str, float]:
    """Signed error of the formula, by phase and in the peak."""
    found = {"peak": float(formula.peak_bytes) / trace.allocated_peak_bytes - 1}
    for phase, value in formula.by_phase.items():
        traced = trace.by_phase.get(str(phase))
        if traced:
            found[str(phase)] = float(value) / traced - 1
    return found


def print_difference(formula: MemoryCount, trace: TraceResult) -> None:
    """What is alive at the peak on both sides, largest first, in MiB."""
    phase = max(formula.by_phase, key=lambda phase: float(formula.by_phase[phase]))
    print(f"    formula peaks in {phase}:")
    parts = {**formula.base, **formula.at_phase[phase]}
    for kind, size in sorted(parts.items(), key=lambda item: -float(item[1]))[:14]:
        print(f"      {float(size) / 2**20:10.1f}  {kind}")
    for name, value in formula.working.get(phase, ())[:24]:
        print(f"        {value / 2**20:10.1f}  {name}")
    print(f"    trace peaks in {trace.phase_of_peak}:")
    sums: dict[str, int] = {}
    for group in trace.at_peak:
        sums[group.kind] = sums.get(group.kind, 0) + group.size_bytes
    print("      " + ", ".join(f"{kind} {size / 2**20:.1f}" for kind, size in sums.items()))
    shown = [g for g in trace.at_peak if "weight" not in g.kind][:40]
    for group in shown:
        print(
            f"      {group.size_bytes / 2**20:10.1f}  {group.count:3d} x {group.kind:15s} "
            f"{group.dtype:9s} {list(group.shape)!s:24s} {group.operation:30s} {group.module}"
        )


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(FAMILIES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--checkpointing", default="yes,no")
    parser.add_argument("--shapes", default="1x512,2x1024,1x4096")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--attention", default=None)
    parser.add_argument("--dtype", default="bfloat16", help="of the weights")
    parser.add_argument("--dropout", type=float, default=0.0, help="of the adapters")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--diff", type=float, default=None, help="show cases off by more (%%)")
    parser.add_argument("--json", default=None)
    parser.add_argument("--write", default=None, help="the page to write")
    parser.add_argument("--jobs", type=int, default=1, help="models that run at once")
    parser.add_argument("--full-depth", action="store_true", help="one case a model, all layers")
    parser.add_argument(
        "--autocast", action="store_true", help="fp32 weights under autocast, with dropout"
    )
    options = parser.parse_args()
    if options.autocast:
        options.methods, options.shapes = "full,lora-all,qlora", "2x1024"
        options.dtype, options.dropout = "float32", 0.05
    if options.full_depth:
        options.methods, options.checkpointing, options.shapes = "lora-all", "yes", "1x2048"
        options.layers = 10**6
    models = options.models.split(",")
    if options.jobs > 1:
        # Each process is fresh: a trace patches the libraries of its own.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
            found = list(pool.map(run_model, models, [options] * len(models)))
    else:
        found = [run_model(model, options) for model in models]
    rows = [row for of_model in found for row in of_model]
    print_summary(rows)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    if options.write:
        Path(options.write).write_text("\n".join(page(rows, options)) + "\n")


def run_model(model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all cases of one model."""
    gc.set_threshold(100_000)  # a third of the time went into looking for cycles
    rows = []
    for method in options.methods.split(","):
        for word in options.checkpointing.split(","):
            for shape in options.shapes.split(","):
                sequences, length = map(int, shape.split("x"))
                length = min(length, most_positions(model))
                case = Case(
                    model=model, method=method, checkpointing=word == "yes",
                    sequences=sequences, length=length, precision=options.precision,
                    attention=options.attention, dtype=options.dtype, dropout=options.dropout,
                )  # fmt: skip
                rows.append(run(case, options))
    return rows


def most_positions(model: str) -> int:
    """The longest rows that a model takes."""
    return architecture_of(model, 1).max_position_embeddings


INTRODUCTION = """# The formula against the trace

Made by `python tools/formula_against_trace.py {command}` ({versions}).

Each catalogue family, {layers} layers, is counted by the formula and traced (the real modules on a
device without memory), under Hugging Face's Trainer on an A100 in bf16{weights}: {methods};
checkpointing: {checkpointing}; {shapes} sequences x tokens (fewer where a model has fewer
positions). Errors are formula / trace - 1 of the allocated peak.

Models whose linear-time layers run as fused kernels in training (flash-linear-attention,
mamba-ssm) fall back to PyTorch operations where those are not installed, as here. The trace counts
the fallback, the formula the kernels. They are listed apart and count in no figure.
"""


def page(rows: list[dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """The page: a table by model, with what was left out and what failed."""
    libraries = ("torch", "transformers", "peft")
    lines = [
        INTRODUCTION.format(
            versions=", ".join(f"{name} {version(name)}" for name in libraries),
            command=f"{'--full-depth ' * options.full_depth}{'--autocast ' * options.autocast}"
            f"--write {options.write}",
            weights=f" with {options.dtype} weights and {options.dropout} of the adapters' inputs "
            "dropped out,\nas TRL 1 does unless told otherwise"
            if options.autocast
            else "",
            layers="all" if options.full_depth else f"{options.layers} (or all kinds)",
            checkpointing=options.checkpointing.replace(",", " and "),
            methods=options.methods.replace(",", ", "),
            shapes=options.shapes.replace(",", ", "),
        )
    ]
    counted = [row for row in rows if not row.get("slow")]
    lines += [summary_line(counted), "", *model_table(counted), ""]
    slow = [row for row in rows if row.get("slow")]
    if slow:
        lines += ["## Slow fallback paths, left out", "", *model_table(slow), ""]
    failed = [row for row in rows if "failure" in row]
    if failed:
        lines += ["## Not compared", ""]
        reasons: dict[tuple[str, str], int] = {}
        for row in failed:
            key = row["model"], row["failure"]
            reasons[key] = reasons.get(key, 0) + 1
        lines += [f"- {model}, {count} cases: {why}" for (model, why), count in reasons.items()]
    return lines


def summary_line(rows: list[dict[str, Any]]) -> str:
    """Median, P90 and worst of all."""
    values = sorted(abs(row["errors"]["peak"]) for row in rows if "errors" in row)
    if not values:
        return "Nothing was compared."
    median, most = values[len(values) // 2], values[int(0.9 * len(values))]
    return (
        f"{len(values)} cases: median {100 * median:.2f} %, P90 {100 * most:.2f} %, worst "
        f"{100 * values[-1]:.2f} %."
    )


def model_table(rows: list[dict[str, Any]]) -> list[str]:
    """One line a model: its median and, for each method, the error that is largest."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [
        f"| model | cases | median | {' | '.join(f'worst, {name}' for name in methods)} |",
        "|---" * (3 + len(methods)) + "|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model and "errors" in row]
        if not own:
            continue
        sizes = sorted(abs(row["errors"]["peak"]) for row in own)
        worst = []
        for method in methods:
            found = [row["errors"]["peak"] for row in own if row["method"] == method]
            worst.append(f"{100 * max(found, key=abs):+.2f} %" if found else "")
        lines.append(
            f"| {model} | {len(own)} | {100 * sizes[len(sizes) // 2]:.2f} % | {' | '.join(worst)} |"
        )
    return lines


def run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Run one case and print its line."""
    started = time.perf_counter()
    row: dict[str, Any] = {
        "model": case.model, "method": case.method, "checkpointing": case.checkpointing,
        "sequences": case.sequences, "length": case.length,
    }  # fmt: skip
    try:
        row["slow"] = is_slow(architecture_of(case.model, options.layers))
        formula, trace, recipe = compare(case, options.layers)
    except Exception as error:
        said = str(error).split("\n")[0][:160]
        print(f"{case!s:58s} {type(error).__name__}: {said}", flush=True)
        if options.diff is not None and not isinstance(error, TuneplanError):
            traceback.print_exc(limit=-6)
        return {**row, "failure": f"{type(error).__name__}: {said}"}
    errors = errors_of(formula, trace)
    row |= {
        "errors": errors,
        "trace": trace.allocated_peak_bytes,
        "by_phase": dict(trace.by_phase),
        "notes": dict(trace.notes),
        "kernel": str(recipe.attention),
    }
    text = " ".join(f"{name[:8]} {100 * value:+6.2f}" for name, value in errors.items())
    seconds = time.perf_counter() - started
    notes = ",".join(f"{k}={v}" for k, v in trace.notes.items())
    print(
        f"{case!s:58s} {trace.allocated_peak_bytes / 2**30:6.2f} {trace.phase_of_peak:9s} {text}"
        f"  {recipe.attention} {notes} {seconds:.1f}s",
        flush=True,
    )
    if options.diff is not None and abs(errors["peak"]) * 100 > options.diff:
        print_difference(formula, trace)
    return row


def print_summary(rows: list[dict[str, Any]]) -> None:
    """Median and worst of the peak's error, by model."""
    done = [row for row in rows if "errors" in row]
    print()
    for model in dict.fromkeys(row["model"] for row in rows):
        values = sorted(abs(row["errors"]["peak"]) for row in done if row["model"] == model)
        if values:
            print(
                f"{model:32s} n {len(values):3d} median {100 * values[len(values) // 2]:6.2f} % "
                f"worst {100 * values[-1]:6.2f} %"
            )
    values = sorted(abs(row["errors"]["peak"]) for row in done)
    if values:
        print(
            f"all: {len(values)} of {len(rows)}, median {100 * values[len(values) // 2]:.2f} %, "
            f"worst {100 * values[-1]:.2f} %"
        )


if __name__ == "__main__":
    main()
