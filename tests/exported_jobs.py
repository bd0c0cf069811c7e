"""Jobs as somebody may state them for a framework, and what their exported files say when read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from hypothesis import strategies as st

from settings import MODELS
from tuneplan.contract.reading import load_job
from tuneplan.errors import InputError, InvalidRequest
from tuneplan.formats.foreign import ExportedFile, ForeignDocument
from tuneplan.formats.reading import parse_foreign
from tuneplan.formats.registry import format_named
from tuneplan.frameworks.resolve import ResolvedRecipe, resolve_recipe
from tuneplan.spec.stated import StatedJob, StatedRecipe

QWEN = MODELS.resolve("Qwen/Qwen2.5-7B-Instruct").architecture
_TRAINING: dict[str, list[Any]] = {
    "dtype": ["float32", "bfloat16", "float16"],
    "precision": ["bf16", "fp16", "fp32", "tf32", "none"],
    "num_train_epochs": [1, 3],
    "max_steps": [100],
    "max_length": [512, 4096],
    "packing": [True, False],
    "padding": ["longest", "max_length", "grouped", "none"],
    "per_device_train_batch_size": [1, 4],
    "per_device_eval_batch_size": [2],
    "gradient_accumulation_steps": [1, 8],
    "optim": ["adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit", "muon"],
    "gradient_checkpointing": [True, False, "offload", "selective"],
    "use_reentrant": [True, False],
    "attn_implementation": ["eager", "sdpa", "flash_attention_2", "flex_attention"],
    "loss": ["full", "chunked", "fused"],
    "use_liger_kernel": [True, False],
    "torch_compile": [True, False],
    "max_grad_norm": [0.3, 1.0],
    "master_weights": [True, False],
    "eval_strategy": ["no", "steps", "epoch"],
    "eval_steps": [50],
    "save_strategy": ["no", "steps", "epoch"],
    "save_steps": [50],
    "save_total_limit": [2],
    "optimizer_in_backward": [True, False],
}
_ADAPTER: dict[str, list[Any]] = {
    "r": [8, 64],
    "lora_alpha": [16, 24.5],
    "target_modules": ["all-linear", ["q_proj", "v_proj"], ["o_proj", "down_proj"]],
    "modules_to_save": [["embed_tokens", "lm_head"]],
    "lora_dropout": [0.0, 0.1],
    "use_rslora": [True, False],
    "fused_kernels": [True, False],
}
_QUANTIZATION: dict[str, list[Any]] = {"bits": [4, 8], "double_quant": [True, False]}
_STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp")


def _some(draw: st.DrawFn, choices: dict[str, list[Any]]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(list(choices)), unique=True, max_size=len(choices)))
    return {name: draw(st.sampled_from(choices[name])) for name in names}


def stated_jobs(framework: str) -> st.SearchStrategy[StatedJob]:
    """A job that reads, with any settings stated and any left blank."""
    return stated_trees(framework).map(load_job)


@st.composite
def stated_trees(draw: st.DrawFn, framework: str) -> dict[str, Any]:
    """The same as the tree of a job file."""
    method = draw(st.sampled_from(["full", "freeze", "lora", "dora", "qlora"]))
    tree: dict[str, Any] = {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "framework": framework,
        "method": method,
        "training": _some(draw, _TRAINING),
        "hardware": {"accelerator": "H100 SXM", "accelerators_per_node": 8},
    }
    if method == "freeze":
        tree["training"]["trained_layers"] = 4
    if method in ("lora", "dora", "qlora"):
        tree["adapter"] = _some(draw, _ADAPTER)
    if method == "qlora":
        tree["quantization"] = _some(draw, _QUANTIZATION)
    if draw(st.booleans()):
        tree["objective"] = draw(st.sampled_from(["sft", "pretrain", "dpo", "kto", "orpo", "rm"]))
    if draw(st.booleans()):
        tree["parallelism"] = {"strategy": draw(st.sampled_from(_STRATEGIES))}
        if tree["parallelism"]["strategy"] not in ("ddp",) and draw(st.booleans()):
            tree["parallelism"]["offload"] = draw(st.sampled_from(["none", "optimizer", "params"]))
    without_contradictions(tree)
    return tree


def without_contradictions(tree: dict[str, Any]) -> StatedJob:
    """The job less the keys that contradict others, which is not what is looked at here."""
    while True:
        try:
            return load_job(tree)
        except InvalidRequest as error:
            for mistake in error.mistakes:
                section, _, name = (mistake.path or "").partition(".")
                if name:
                    tree[section].pop(name, None)
                else:
                    tree.pop(section, None)


def reread(name: str, files: Sequence[ExportedFile], *, model: str | None = None) -> StatedJob:
    """What a framework's own reader here makes of exported files."""
    read = [one for one in files if not one.name.endswith(".txt")]
    documents = {one.name: parse_foreign(one.text, name=one.name) for one in read}
    own = next(iter(documents.values()))

    def companion(path: str) -> ForeignDocument | None:
        return documents.get(path)

    imported = format_named(name).load(own, companion=companion, version=None)
    assert not imported.refusals, imported.refusals
    return load_job({**({"model": model} if model else {}), **imported.job})


def meaning(recipe: StatedRecipe, *, with_software_of: StatedRecipe) -> ResolvedRecipe | None:
    """What runs on eight cards; None where it has no formula or contradicts itself.

    Versions are no part of a file; an optimizer has several names; ``max_steps`` ends a run
    whatever its epochs; torchtune's recipes save by epoch, whatever its file says.
    """
    version, software = with_software_of.framework_version, with_software_of.software
    recipe = replace(recipe, framework_version=version, software=software)
    try:
        found = resolve_recipe(recipe, QWEN, None, world_size=8)
    except InputError:
        return None
    optimizer = replace(found.recipe.optimizer, name="")
    run = found.run
    if run.max_steps:
        run = replace(run, num_train_epochs=0.0)
    if recipe.framework == "torchtune":
        run = replace(run, save_steps=None, saves_each_epoch=False)
    known = replace(found.recipe, optimizer=optimizer)
    return replace(found, recipe=known, run=run, assumptions=(), notices=())


def without(job: StatedJob, paths: Sequence[str]) -> StatedJob:
    """The job with these keys blank."""
    recipe = job.recipe
    for path in paths:
        section, _, name = path.partition(".")
        if not name:
            recipe = replace(recipe, **{section: None})
            continue
        held = getattr(recipe, section)
        default = next(f.default for f in fields(held) if f.name == name)
        recipe = replace(recipe, **{section: replace(held, **{name: default})})
    return replace(job, recipe=recipe)


Dump = Callable[[StatedJob], tuple[ExportedFile, ...]]
