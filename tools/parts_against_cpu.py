"""Compare traced parts of a training job with what real steps of them allocate on a CPU.

    python tools/parts_against_cpu.py [--write docs/internals/parts_against_cpu.md]

Optimizers, checkpointing, adapters, objectives and accumulation, one at a time on a small Llama:
two real steps under PyTorch's profiler against the trace of the same configuration for the CPU.
The real steps are written here, apart from the trace's own loop. See ``trace_against_cpu.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trace_against_cpu import LENGTH, MODELS, PHASES, SEQUENCES, Case, _batch, _phase_peaks, _recipe

MODEL = "llama"
TARGETS = ["q_proj", "v_proj"]
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
AT_TWO = {"target_modules": TARGETS}
# Methods that no recipe names, by PEFT's own configurations.
OTHER_ADAPTERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ia3": (
        "IA3Config",
        {"target_modules": [*LINEARS[1:3], "down_proj"], "feedforward_modules": ["down_proj"]},
    ),
    "vera": ("VeraConfig", {**AT_TWO, "r": 16}),
    "pvera": ("PveraConfig", {**AT_TWO, "r": 16}),
    "adalora": ("AdaLoraConfig", {**AT_TWO, "total_step": 10}),
    "loha": ("LoHaConfig", {**AT_TWO, "r": 8}),
    "lokr": ("LoKrConfig", {**AT_TWO, "r": 8}),
    "oft": ("OFTConfig", {**AT_TWO, "oft_block_size": 32}),
    "boft": ("BOFTConfig", {**AT_TWO, "boft_block_size": 8}),
    "hra": ("HRAConfig", AT_TWO),
    "vblora": ("VBLoRAConfig", {**AT_TWO, "num_vectors": 64, "vector_length": 64}),
    "unilora": ("UniLoraConfig", AT_TWO),
    "randlora": ("RandLoraConfig", {**AT_TWO, "r": 8}),
    "gralora": ("GraloraConfig", {**AT_TWO, "r": 8}),
    "delora": ("DeloraConfig", {**AT_TWO, "r": 8}),
    "hira": ("HiraConfig", {**AT_TWO, "r": 8}),
    "lily": ("LilyConfig", AT_TWO),
    "glora": ("GloraConfig", AT_TWO),
    "miss": ("MissConfig", {**AT_TWO, "r": 8}),
    "deft": ("DeftConfig", AT_TWO),
    "psoft": ("PsoftConfig", {**AT_TWO, "r": 8}),
    "osf": ("OSFConfig", AT_TWO),
    "peanut": ("PeanutConfig", AT_TWO),
    "tinylora": ("TinyLoraConfig", AT_TWO),
    "supertuning": ("SupertuningConfig", AT_TWO),
    "c3a": ("C3AConfig", {**AT_TWO, "block_size": 64}),
    "fourierft": ("FourierFTConfig", {**AT_TWO, "n_frequency": 100}),
    "waveft": ("WaveFTConfig", {**AT_TWO, "n_frequency": 100}),
    "road": ("RoadConfig", AT_TWO),
    "beft": ("BeftConfig", AT_TWO),
    "ln_tuning": ("LNTuningConfig", {"target_modules": ["input_layernorm"]}),
    "trainable_tokens": (
        "TrainableTokensConfig",
        {"token_indices": [1, 2, 3], "target_modules": ["embed_tokens"]},
    ),
    "prompt_tuning": ("PromptTuningConfig", {"num_virtual_tokens": 8}),
    "prefix_tuning": ("PrefixTuningConfig", {"num_virtual_tokens": 8}),
    "p_tuning": ("PromptEncoderConfig", {"num_virtual_tokens": 8}),
    "adaption_prompt": ("AdaptionPromptConfig", {"adapter_len": 8, "adapter_layers": 2}),
}
FULL = (
    "adafactor", "muon", "sgd_momentum", "selective", "reentrant", "freeze", "accumulation",
)  # fmt: skip
ADAPTED = ("dora", "rslora", "saved", "dpo", "orpo", "rm", *OTHER_ADAPTERS)
PARTS = (*FULL, *ADAPTED)


def adapter_config(part: str) -> Any:
    """PEFT's configuration of a part."""
    import peft

    if part in OTHER_ADAPTERS:
        name, settings = OTHER_ADAPTERS[part]
        return getattr(peft, name)(task_type="CAUSAL_LM", **settings)
    return peft.LoraConfig(
        r=8, lora_alpha=16, target_modules=LINEARS, use_dora=part == "dora",
        use_rslora=part == "rslora", modules_to_save=["lm_head"] if part == "saved" else None,
        task_type="SEQ_CLS" if part == "rm" else "CAUSAL_LM",
    )  # fmt: skip


def real_model(part: str) -> Any:
    """The model with what the part changes of it."""
    from peft import get_peft_model
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
    )

    config = AutoConfig.for_model(MODEL, **MODELS[MODEL], use_cache=False)
    auto: Any = AutoModelForCausalLM
    if part == "rm":
        config.num_labels, config.pad_token_id = 1, 0
        auto = AutoModelForSequenceClassification
    model = auto.from_config(config, attn_implementation="sdpa")
    if part in ADAPTED:
        model = get_peft_model(model, adapter_config(part))
    if part == "freeze":
        model.requires_grad_(False)
        model.model.layers[-1].requires_grad_(True)
    if part == "reentrant":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    if part == "selective":
        how = {"use_reentrant": False, "context_fn": every_second_product}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    return model.train()


def every_second_product() -> Any:
    """Contexts that keep every second product of a layer."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    seen = {True: 0, False: 0}

    def policy(context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        if function is not torch.ops.aten.mm.default:
            return CheckpointPolicy.PREFER_RECOMPUTE
        seen[context.is_recompute] += 1
        odd = seen[context.is_recompute] % 2
        return CheckpointPolicy.MUST_SAVE if odd else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def optimizers(part: str, named: list[tuple[str, Any]]) -> list[Any]:
    """The part's optimizers, one tensor at a time where there is a choice."""
    import torch
    from transformers.optimization import Adafactor

    trained = [parameter for _, parameter in named]
    if part == "adafactor":
        return [Adafactor(trained, lr=1e-4, scale_parameter=False, relative_step=False)]
    if part == "sgd_momentum":
        return [torch.optim.SGD(trained, lr=1e-4, momentum=0.9, foreach=True)]
    if part == "muon":
        inner = {name for name, one in named if one.dim() == 2 and "embed" not in name}
        matrices = [one for name, one in named if name in inner]
        rest = [one for name, one in named if name not in inner]
        return [
            torch.optim.Muon(matrices, lr=1e-4),
            torch.optim.AdamW(rest, lr=1e-4, foreach=False),
        ]
    return [torch.optim.AdamW(trained, lr=1e-4, foreach=False, fused=False)]


def chances(logits: Any, labels: Any) -> Any:
    """Log-probabilities of labels summed by row, as TRL computes them of fp32 logits."""
    import torch

    picked = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (picked - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])).sum(-1)


def real_loss(part: str, model: Any, batch: Mapping[str, Any]) -> Any:
    """The loss of a part's objective."""
    import torch
    from torch.nn import functional

    ids, labels = batch["input_ids"], batch["labels"]
    if part not in ("dpo", "orpo", "rm"):
        return model(input_ids=ids, labels=labels).loss
    logits = model(input_ids=ids).logits
    if part == "rm":
        preferred, other = logits.squeeze(-1).chunk(2)
        return -functional.logsigmoid(preferred - other).mean()
    half, extra = logits.shape[0] // 2, 0.0
    if part == "orpo":
        rows = logits[:half, :-1, :].contiguous().view(-1, logits.shape[-1])
        extra = functional.cross_entropy(rows, labels[:half, 1:].reshape(-1))
        del rows
    scores = chances(logits, labels)
    del logits
    if part == "dpo":
        with torch.no_grad(), model.disable_adapter():
            compared = chances(model(input_ids=ids).logits, labels)
        scores = scores - compared
    preferred, other = scores.chunk(2)
    return -functional.logsigmoid(0.1 * (preferred - other)).mean() + extra


def train(part: str) -> None:
    """Two steps."""
    import torch
    from torch.profiler import record_function

    model = real_model(part)
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    steppers = optimizers(part, named)
    for _ in range(2):
        for _ in range(2 if part == "accumulation" else 1):
            with record_function("phase:forward"):
                batch = _batch()
                loss = real_loss(part, model, batch)
            with record_function("phase:backward"):
                loss.backward()
                del loss, batch
        with record_function("phase:optimizer_step"):
            torch.nn.utils.clip_grad_norm_([one for _, one in named], 1.0)
            for stepper in steppers:
                stepper.step()
            model.zero_grad(set_to_none=True)


def real_peaks(part: str) -> dict[str, int]:
    """Allocated bytes of the real steps: the peak of each phase."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    gc.collect()  # what an earlier part left must not end while this one is watched
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train(part)
    events = profiler.profiler.kineto_results.events()
    begins = [event for event in events if event.name().startswith("phase:")]
    marks = sorted((event.start_ns(), event.name().split(":")[1]) for event in begins)
    memory = [event for event in events if event.name() == "[memory]"]
    return _phase_peaks(sorted((event.start_ns(), event.nbytes()) for event in memory), marks)


def recipe_of(part: str, architecture: Any) -> Any:
    """The recipe of a part."""
    from tuneplan.spec.recipe import (
        Checkpointing,
        Loss,
        LossPath,
        Method,
        Objective,
        OptimizerFamily,
        OptimizerImplementation,
    )

    method = "lora" if part in ADAPTED else "full"
    checkpointing = part in ("selective", "reentrant")
    recipe = _recipe(Case(model=MODEL, method=method, checkpointing=checkpointing), architecture)
    adapter, optimizer = recipe.adapter, recipe.optimizer
    changes: dict[str, Any] = {
        "selective": {"gradient_checkpointing": Checkpointing.SELECTIVE},
        "reentrant": {"use_reentrant": True},
        "freeze": {"method": Method.FREEZE, "trained_layers": 1},
        "accumulation": {"gradient_accumulation_steps": 2},
    }.get(part, {})
    with contextlib.suppress(ValueError):
        family = OptimizerFamily(part)
        foreach = OptimizerImplementation.FOREACH
        how = foreach if part == "sgd_momentum" else optimizer.implementation
        changes = {"optimizer": replace(optimizer, family=family, implementation=how)}
    if part in ("dora", "rslora"):
        changes = {"adapter": replace(adapter, **{f"use_{part}": True})}
    if part == "saved":
        changes = {"adapter": replace(adapter, modules_to_save=("lm_head",))}
    if part in ("dpo", "orpo", "rm"):
        loss = Loss(path=LossPath.FULL, upcast_logits=False)
        changes = {"objective": Objective(part), "loss": loss}
    return replace(recipe, **changes)


def traced_peaks(part: str) -> dict[str, int]:
    """The same of the trace for the CPU."""
    from tuneplan.catalog.architectures import build_architecture
    from tuneplan.tracing.device import CPU, choose_device
    from tuneplan.tracing.session import prepare_process, record

    choose_device(CPU)
    prepare_process()
    config = {"model_type": MODEL, **MODELS[MODEL]}
    architecture, _ = build_architecture(config, name=MODEL, hf_id=None, source="a test")
    recording, _ = record(
        architecture, recipe_of(part, architecture), sequences=SEQUENCES, length=LENGTH,
        device=CPU, peft_config=adapter_config(part) if part in OTHER_ADAPTERS else None,
    )  # fmt: skip
    blocks = recording.blocks
    changes = [
        (at, blocks[event].size if event >= 0 else -blocks[~event].size)
        for at, event in enumerate(recording.events)
    ]
    same = {"loss": "forward"}
    marks = [(at, same.get(phase, phase)) for at, phase, _ in recording.marks if phase != "load"]
    return _phase_peaks(changes, marks)


def run_all(side: str, parts: tuple[str, ...]) -> list[dict[str, int]]:
    """One side's peaks of every part, in a process of its own."""
    command = [sys.executable, __file__, side, *parts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def compare(parts: tuple[str, ...] = PARTS) -> dict[str, dict[str, float]]:
    """Signed error of the trace, of the peak and of each phase, and the real peak in bytes."""
    found = {}
    both = zip(run_all("real", parts), run_all("trace", parts), strict=True)
    for part, (real, traced) in zip(parts, both, strict=True):
        found[part] = {name: traced[name] / real[name] - 1 for name in PHASES}
        found[part]["peak"] = max(traced.values()) / max(real.values()) - 1
        found[part]["bytes"] = max(real.values())
    return found


HEAD = """# Parts of a job against real allocations

Made by `python tools/parts_against_cpu.py --write docs/internals/parts_against_cpu.md`
({versions}).

Optimizers, checkpointing, PEFT methods, objectives and accumulation, one at a time on a small
Llama (two layers, {sequences} sequences of {length} tokens, 32-bit weights): two real steps on a
CPU under PyTorch's profiler against the trace of the same code for the CPU. Errors are of the
highest sum of allocated bytes in both steps, and of the highest within each phase. PEFT's methods
below `rm` adapt `q_proj` and `v_proj` where they adapt linears, by a configuration of PEFT's own.

What remains is the batch that the real loop names until the backward is over (12 KiB).

BOFT runs its fallback here, as wherever its CUDA extension was not compiled. Not traced, and
refused by name: SHiRA and FRoD, which multiply by sparse matrices; AdaMSS, which clusters the
values of weights; X-LoRA, which runs the model twice with adapters that were trained before.

| part | real peak (MiB) | error of the trace | forward | backward | step |
|---|---|---|---|---|---|
"""


def page(found: Mapping[str, Mapping[str, float]]) -> str:
    """The table as Markdown."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft"))
    head = HEAD.format(versions=libraries, sequences=SEQUENCES, length=LENGTH)
    rows = [
        f"| {part} | {row['bytes'] / 2**20:.2f} | {100 * row['peak']:+.2f} % | "
        + " | ".join(f"{100 * row[name]:+.2f} %" for name in PHASES)
        + " |"
        for part, row in found.items()
    ]
    worst = max(abs(row["peak"]) for row in found.values())
    return head + "\n".join([*rows, "", f"{len(rows)} parts, worst {100 * worst:.2f} %."]) + "\n"


def main() -> None:
    """Run both sides and print what they say."""
    if sys.argv[1:] and sys.argv[1] in ("real", "trace"):
        measure = {"real": real_peaks, "trace": traced_peaks}[sys.argv[1]]
        for part in sys.argv[2:]:
            print(json.dumps(measure(part)), flush=True)
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    text = page(compare())
    print(text)
    if options.write:
        options.write.write_text(text)


if __name__ == "__main__":
    main()
