"""Compare the trace with what real training steps on a CPU allocate.

    python tools/trace_against_cpu.py --write docs/internals/trace_against_cpu.md

Small models with random weights take two real steps under PyTorch's profiler, whose allocator
events give the allocated bytes at every moment. The trace of the same configuration for the CPU
must find the same peak. The real steps are written here, apart from the trace's own loop.
Real runs and traces each have a process of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

_COMMON = {"vocab_size": 2048, "max_position_embeddings": 512, "tie_word_embeddings": True}
_SHAPE = {
    "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
}  # fmt: skip
_DENSE = {**_COMMON, **_SHAPE}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# Model type to a tiny configuration of it, every field that decides memory stated.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": _DENSE,
    "qwen2": _DENSE,
    "qwen3": _DENSE,
    "mistral": {**_DENSE, "sliding_window": None},
    "gemma": {**_DENSE, "num_key_value_heads": 1},
    "gemma2": {**_DENSE, "query_pre_attn_scalar": 32, "sliding_window": 128},
    "gemma3_text": {**_DENSE, "query_pre_attn_scalar": 32, "sliding_window": 128},
    "phi3": {**_DENSE, **_TOKENS},
    "phi": {**_DENSE, "num_key_value_heads": 8, "tie_word_embeddings": False},
    "olmo2": _DENSE,
    "granite": _DENSE,
    "glm4": {**_DENSE, "pad_token_id": 0},
    "starcoder2": {**_DENSE, "sliding_window": None},
    "gpt2": {"vocab_size": 2048, "n_positions": 512, "n_embd": 256, "n_layer": 2, "n_head": 8},
    "gpt_neox": {**_COMMON, **_SHAPE, "num_key_value_heads": 8, "intermediate_size": 1024},
    "opt": {
        "vocab_size": 2048, "max_position_embeddings": 512, "hidden_size": 256, "ffn_dim": 1024,
        "word_embed_proj_dim": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
    },
    "bloom": {"vocab_size": 2048, "hidden_size": 256, "n_layer": 2, "n_head": 8},
    "falcon": {
        "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
        "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False,
        "new_decoder_architecture": False,
    },
    "mixtral": {**_DENSE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **_DENSE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
        "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
}  # fmt: skip
EAGER = ("gemma2", "bloom")  # the others let PyTorch choose the attention kernel
PHASES = ("forward", "backward", "optimizer_step")
SEQUENCES, LENGTH = 2, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One small training job."""

    model: str
    method: str
    checkpointing: bool
    dtype: str = "float32"
    optimizer: str = "for_loop"

    def __str__(self) -> str:
        checkpointing = "checkpointing" if self.checkpointing else "none"
        return f"{self.model} {self.method} {checkpointing} {self.dtype} {self.optimizer}"


def cases(names: list[str]) -> Iterator[Case]:
    """Every case: fp32 throughout; other dtypes and optimizers on one model."""
    for name in names:
        for method in ("full", "lora"):
            for checkpointing in (False, True):
                yield Case(model=name, method=method, checkpointing=checkpointing)
    for dtype, optimizer in (
        ("bfloat16", "for_loop"),
        ("float32", "foreach"),
        ("float32", "fused"),
    ):
        for method in ("full", "lora"):
            yield Case(
                model=names[0], method=method, checkpointing=False, dtype=dtype, optimizer=optimizer
            )


def targets_of(model: str) -> str | list[str]:
    """What LoRA adapts: every linear, where PEFT can ask for that."""
    return "all-linear" if model not in ("mixtral", "qwen3_moe") else ["q_proj", "v_proj"]


def attention_of(model: str) -> str:
    """The attention function of a model."""
    return "eager" if model in EAGER else "sdpa"


def real_peaks(case: Case) -> dict[str, int]:
    """Allocated bytes in two real steps: the peak of each phase."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _train(case)
    events = profiler.profiler.kineto_results.events()
    marks = sorted(
        (event.start_ns(), event.name().split(":")[1])
        for event in events
        if event.name().startswith("phase:")
    )
    sizes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    return _phase_peaks(sizes, marks)


def _phase_peaks(changes: list[tuple[int, int]], marks: list[tuple[int, str]]) -> dict[str, int]:
    """Highest running sum between marks, by name of the mark before."""
    peaks: dict[str, int] = {}
    total, at, phase = 0, 0, ""
    for time, change in changes:
        while at < len(marks) and marks[at][0] <= time:
            phase = marks[at][1]
            peaks[phase] = max(peaks.get(phase, 0), total)
            at += 1
        total += change
        if phase:
            peaks[phase] = max(peaks[phase], total)
    return {name: peaks[name] for name in PHASES}


def _train(case: Case) -> None:
    """Two plain training steps of the real code on the CPU."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch.profiler import record_function
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(case.model, **MODELS[case.model], use_cache=False)
    model: Any = AutoModelForCausalLM.from_config(
        config, dtype=getattr(torch, case.dtype), attn_implementation=attention_of(case.model)
    )
    if case.method == "lora":
        adapters = LoraConfig(
            r=8, lora_alpha=16, target_modules=targets_of(case.model), task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapters)
    if case.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if case.method == "lora":
            model.enable_input_require_grads()
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=1e-4,
        foreach=case.optimizer == "foreach", fused=case.optimizer == "fused",
    )  # fmt: skip
    for _ in range(2):
        with record_function("phase:forward"):
            batch = _batch()
            loss = model(input_ids=batch["input_ids"], labels=batch["labels"]).loss
        with record_function("phase:backward"):
            loss.backward()
            del loss, batch
        with record_function("phase:optimizer_step"):
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def _batch() -> dict[str, Any]:
    """What a collator hands over; the mask is all ones and not passed on."""
    import torch

    tokens = torch.randint(0, 2048, (SEQUENCES, LENGTH))
    return {
        "input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()
    }  # fmt: skip


def traced_peaks(case: Case) -> dict[str, int]:
    """The same from the trace, nothing allocated."""
    from tuneplan.catalog.architectures import build_architecture
    from tuneplan.tracing.device import CPU
    from tuneplan.tracing.session import record

    config = {"model_type": case.model, **MODELS[case.model]}
    architecture, _ = build_architecture(config, name=case.model, hf_id=None, source="a test")
    recipe = _recipe(case, architecture)
    recording, _ = record(architecture, recipe, sequences=SEQUENCES, length=LENGTH, device=CPU)
    blocks = recording.blocks
    changes = [
        (at, blocks[event].size if event >= 0 else -blocks[~event].size)
        for at, event in enumerate(recording.events)
    ]
    same = {"loss": "forward"}
    marks = [(at, same.get(phase, phase)) for at, phase, _ in recording.marks if phase != "load"]
    return _phase_peaks(changes, marks)


def _recipe(case: Case, architecture: Any) -> Any:
    """The resolved recipe with what a plain loop on a CPU does differently."""
    from tuneplan.frameworks.resolve import resolve_recipe
    from tuneplan.spec.recipe import OptimizerImplementation
    from tuneplan.spec.stated import StatedAdapter, StatedRecipe, StatedTraining

    targets: Any = targets_of(case.model)
    stated = StatedRecipe(
        framework="transformers",
        method=case.method,
        adapter=StatedAdapter(
            r=8, lora_alpha=16, lora_dropout=0.0,
            target_modules=targets if isinstance(targets, str) else tuple(targets),
        ) if case.method == "lora" else StatedAdapter(),
        training=StatedTraining(
            dtype=case.dtype, precision="bf16", max_length=LENGTH,
            per_device_train_batch_size=SEQUENCES, gradient_accumulation_steps=1,
            gradient_checkpointing=case.checkpointing, use_reentrant=False,
            optim="adamw_torch", attn_implementation=attention_of(case.model),
        ),
    )  # fmt: skip
    recipe = resolve_recipe(stated, architecture, None, world_size=1).recipe
    return replace(
        recipe,
        autocast=False,
        attention_mask=False,
        keeps_outputs=False,
        loss=replace(recipe.loss, output_fp32_copies=0),
        optimizer=replace(recipe.optimizer, implementation=OptimizerImplementation(case.optimizer)),
    )


def run_all(side: str, names: list[str]) -> list[dict[str, int]]:
    """One side's peaks of every case, in a process of its own."""
    command = [sys.executable, __file__, "--models", ",".join(names), "--side", side]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One case, measured and traced: the peak of each phase in bytes."""

    case: Case
    measured: Mapping[str, int]
    traced: Mapping[str, int]

    def error(self, phase: str | None = None) -> float:
        """Signed error of the trace, of the whole peak or of a phase."""
        if phase is not None:
            return self.traced[phase] / self.measured[phase] - 1
        return max(self.traced.values()) / max(self.measured.values()) - 1


def compare(names: list[str]) -> list[Comparison]:
    """Every case of these models, really run and traced."""
    both = zip(cases(names), run_all("real", names), run_all("trace", names), strict=True)
    return [Comparison(case=case, measured=real, traced=found) for case, real, found in both]


def table(found: list[Comparison]) -> list[str]:
    """Rows of the comparison, in Markdown."""
    heads = (
        "model", "method", "checkpointing", "weights", "optimizer", "real peak (MiB)",
        "error of the trace", "forward", "backward", "step",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in found:
        case = one.case
        errors = " | ".join(f"{100 * one.error(phase):+.2f} %" for phase in (None, *PHASES))
        lines.append(
            f"| {case.model} | {case.method} | {'yes' if case.checkpointing else 'no'} "
            f"| {case.dtype} | {case.optimizer} | {max(one.measured.values()) / 2**20:.2f} "
            f"| {errors} |"
        )
    worst = max(abs(one.error()) for one in found)
    return [*lines, "", f"{len(found)} cases, worst error of the peak {100 * worst:.2f} %."]


INTRODUCTION = """# The trace against real allocations

Made by `python tools/trace_against_cpu.py --write docs/internals/trace_against_cpu.md`
({versions}).

Small models (two layers, random weights, {sequences} sequences of {length} tokens) take two real
training steps on a CPU under PyTorch's profiler. Its allocator events give the allocated bytes at
every moment. The trace of the same configuration for the CPU allocates nothing. Errors are of the
highest sum in both steps, and of the highest within each phase.

What remains: the real loop names its batch until the backward is over (12 KiB), the traced one
does not; with checkpointing PyTorch saves the state of the host's random generator with every
layer (5,056 bytes), which the trace does not count. Scratch space that oneDNN and MKL take for
themselves is on neither side.
"""


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--side", choices=("real", "trace"), default=None)
    parser.add_argument("--write", default=None, help="the page to write")
    options = parser.parse_args()
    names = options.models.split(",")
    if options.side:
        measure = {"real": real_peaks, "trace": traced_peaks}[options.side]
        for case in cases(names):
            print(json.dumps(measure(case)), flush=True)
        return
    lines = table(compare(names))
    print("\n".join(lines))
    if options.write:
        versions = ", ".join(
            f"{name} {version(name)}" for name in ("torch", "transformers", "peft")
        )
        text = INTRODUCTION.format(versions=versions, sequences=SEQUENCES, length=LENGTH)
        Path(options.write).write_text("\n".join([text, *lines]) + "\n")


if __name__ == "__main__":
    main()
